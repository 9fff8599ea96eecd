use tautline_tls::Capabilities;

#[cfg(feature = "openssl")]
pub(crate) static OPENSSL: Capabilities = library("openssl", "OpenSSL 3").with_session_memory(28_200);
#[cfg(feature = "openssl")]
pub(crate) static FUSED_OPENSSL: Capabilities = fused("fused+openssl", "OpenSSL 3, own records", "openssl");

#[cfg(feature = "aws-lc")]
pub(crate) static AWS_LC: Capabilities = library("aws-lc", "AWS-LC").with_session_memory(6_600);
#[cfg(feature = "aws-lc")]
pub(crate) static FUSED_AWS_LC: Capabilities = fused("fused+aws-lc", "AWS-LC, own records", "aws-lc");

#[cfg(feature = "boringssl")]
pub(crate) static BORINGSSL: Capabilities = library("boringssl", "BoringSSL").with_session_memory(4_800);
#[cfg(feature = "boringssl")]
pub(crate) static FUSED_BORINGSSL: Capabilities = fused("fused+boringssl", "BoringSSL, own records", "boringssl");

#[cfg(feature = "libressl")]
pub(crate) static LIBRESSL: Capabilities = {
    // Not measured: that of OpenSSL, which it comes from.
    let mut can = library("libressl", "LibreSSL").with_session_memory(28_200);
    can.ed25519 = false;
    can.stapling = false;
    can.resumes_tls13 = false;
    can.key_log = false;
    can
};

/// Everything but what needs calls into the program, in builds with the feature of the engine's name.
pub(crate) const fn library(engine: &'static str, library: &'static str) -> Capabilities {
    let mut can = Capabilities::new(engine, library).with_feature(engine);
    can.own_verifier = false;
    can.exporter = false;
    can.challenges = false;
    can
}

/// Handshakes of the library that `feature` builds in, our own records.
#[cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl"))]
const fn fused(engine: &'static str, title: &'static str, feature: &'static str) -> Capabilities {
    library(engine, title).with_feature(feature).with_own_records()
}
