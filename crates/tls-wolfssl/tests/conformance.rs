//! Runs the conformance suite of all engines.
#![cfg(feature = "wolfssl")]

tautline_testkit::tls_conformance!(|server: Option<&_>, client: Option<&_>| {
    tautline_tls_libssl::Engine::new(tautline_tls_wolfssl::FLAVOUR, server, client)
});
