//! The suite that every engine must pass, for the engines of this crate.

mod rustls {
    tautline_testkit::tls_conformance!(tautline_tls_rustls::Engine::new);
}
