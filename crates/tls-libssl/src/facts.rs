use crate::sys::Agreed;
use tautline_tls::{Facts, registry};

/// What is agreed on, in the names that all engines use.
pub(crate) fn facts(agreed: Agreed) -> Facts {
    Facts {
        version: match agreed.version {
            0x0304 => "TLSv1.3",
            0x0303 => "TLSv1.2",
            _ => "",
        },
        suite: registry::suite(agreed.suite),
        group: group(&agreed.group),
        alpn: agreed.alpn,
        server_name: agreed.server_name,
        resumed: agreed.resumed,
        peer_certificates: agreed.peer_certificates,
    }
}

/// Each library has its own names for groups; the registry's are used here.
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
