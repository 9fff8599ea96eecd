//! Errors whose `Debug` is their text, so that a `main` that returns one prints it.

/// Makes a type with a `Display` such an error.
macro_rules! plain_error {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl std::error::Error for $name {}
    };
}

pub(crate) use plain_error;
