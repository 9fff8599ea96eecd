//! Runs the conformance suite of all engines for each library of this build.

/// Makes a module with the whole suite for one library.
macro_rules! library {
    ($feature:literal $module:ident $flavour:ident) => {
        #[cfg(feature = $feature)]
        mod $module {
            tautline_testkit::tls_conformance!(|server: Option<&_>, client: Option<&_>| {
                tautline_tls_libssl::Engine::new(tautline_tls_libssl::Flavour::$flavour, server, client)
            });
        }
    };
}

/// Makes a module with the whole suite for one library's handshake with our own records.
macro_rules! fused {
    ($feature:literal $module:ident $flavour:ident) => {
        #[cfg(feature = $feature)]
        mod $module {
            tautline_testkit::tls_conformance!(|server: Option<&_>, client: Option<&_>| {
                tautline_tls_libssl::fused::Engine::new(tautline_tls_libssl::Flavour::$flavour, server, client)
            });
        }
    };
}

library! { "openssl" openssl OpenSsl }
library! { "aws-lc" aws_lc AwsLc }
library! { "boringssl" boringssl BoringSsl }
library! { "libressl" libressl LibreSsl }

fused! { "openssl" fused_openssl OpenSsl }
fused! { "aws-lc" fused_aws_lc AwsLc }
fused! { "boringssl" fused_boringssl BoringSsl }
