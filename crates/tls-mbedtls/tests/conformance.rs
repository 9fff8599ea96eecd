//! The suite that every engine must pass.
#![cfg(feature = "mbedtls")]

tautline_testkit::tls_conformance!(|server: Option<&_>, client: Option<&_>| {
    tautline_tls_libssl::Engine::new(tautline_tls_mbedtls::FLAVOUR, server, client)
});
