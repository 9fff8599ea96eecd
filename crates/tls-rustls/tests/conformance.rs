//! Runs the conformance suite of all engines for the engines of this crate.

mod library {
    tautline_testkit::tls_conformance!(tautline_tls_rustls::Engine::new);
}

mod fused {
    tautline_testkit::tls_conformance!(tautline_tls_rustls::fused::Engine::new);
}
