//! Runs the conformance suite of all engines.
#![cfg(feature = "mbedtls")]

tautline_testkit::tls_conformance!(|server: Option<&_>, client: Option<&_>| {
    tautline_tls_libssl::Engine::new(tautline_tls_mbedtls::FLAVOUR, server, client)
});
