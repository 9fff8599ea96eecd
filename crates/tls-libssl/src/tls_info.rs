use crate::sys::Negotiated;
use tautline_tls::{TlsInfo, registry};

/// Converts the negotiated parameters to the names that all engines use.
pub(crate) fn tls_info(negotiated: Negotiated) -> TlsInfo {
    let mut info = TlsInfo::default();
    info.version = match negotiated.version {
        0x0304 => "TLSv1.3",
        0x0303 => "TLSv1.2",
        _ => "",
    };
    info.suite = registry::suite(negotiated.suite);
    info.group = group(&negotiated.group);
    info.alpn = negotiated.alpn;
    info.server_name = negotiated.server_name;
    info.resumed = negotiated.resumed;
    info.peer_certificates = negotiated.peer_certificates;
    info
}

/// Converts a library's name of a group to the registry's.
fn group(name: &str) -> String {
    let registered = match name {
        "x25519" | "X25519" => "X25519",
        "prime256v1" | "P-256" | "secp256r1" => "secp256r1",
        "P-384" | "secp384r1" => "secp384r1",
        "P-521" | "secp521r1" => "secp521r1",
        other => other,
    };
    registered.to_owned()
}
