use crate::sys::Agreed;
use tautline_tls::Facts;

/// What is agreed on, in the names that all engines use.
pub(crate) fn facts(agreed: Agreed) -> Facts {
    Facts {
        version: match agreed.version {
            0x0304 => "TLSv1.3",
            0x0303 => "TLSv1.2",
            _ => "",
        },
        suite: suite(agreed.suite),
        group: group(&agreed.group),
        alpn: agreed.alpn,
        server_name: agreed.server_name,
        resumed: agreed.resumed,
        peer_certificates: agreed.peer_certificates,
    }
}

/// The suites that are offered, by their numbers in the registry.
fn suite(number: u16) -> String {
    let name = match number {
        0x1301 => "TLS13_AES_128_GCM_SHA256",
        0x1302 => "TLS13_AES_256_GCM_SHA384",
        0x1303 => "TLS13_CHACHA20_POLY1305_SHA256",
        0xc02b => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        0xc02c => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        0xc02f => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        0xc030 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        0xcca8 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        0xcca9 => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        _ => return format!("TLS number {number:#06x}"),
    };
    name.to_owned()
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
