//! Enums whose variants have names in results and arguments.

/// Declares an enum with `ALL`, its variants in order, and `name`. Each variant stands beside its name.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $Enum:ident { $($(#[$doc:meta])* $Variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        $vis enum $Enum { $($(#[$doc])* $Variant,)+ }

        #[allow(dead_code, reason = "not every enum is listed")]
        impl $Enum {
            /// Every variant, in the order of declaration.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Name in results and arguments.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name,)+ }
            }
        }
    };
}
