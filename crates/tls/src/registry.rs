//! IANA's names and numbers of the cipher suites and key exchange groups that the engines negotiate.

/// Suites of TLS 1.3 (RFC 8446, section B.4), and of TLS 1.2 (RFC 5289, RFC 7905).
const SUITES: [(u16, &str); 9] = [
    (0x1301, "TLS13_AES_128_GCM_SHA256"),
    (0x1302, "TLS13_AES_256_GCM_SHA384"),
    (0x1303, "TLS13_CHACHA20_POLY1305_SHA256"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// Groups (RFC 8446, section 4.2.7, and the hybrids with ML-KEM).
const GROUPS: [(u16, &str); 10] = [
    (0x0017, "secp256r1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001d, "X25519"),
    (0x001e, "X448"),
    (0x0200, "MLKEM512"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11eb, "secp256r1MLKEM768"),
    (0x11ec, "X25519MLKEM768"),
];

/// Returns the name of a cipher suite, such as `TLS13_AES_128_GCM_SHA256`.
#[must_use]
pub fn suite(number: u16) -> String {
    name(&SUITES, number)
}

/// Returns the name of a key exchange group, such as `X25519MLKEM768`.
#[must_use]
pub fn group(number: u16) -> String {
    name(&GROUPS, number)
}

/// Returns the number of the group with this name; 0 if it is not in the table.
#[must_use]
pub fn group_number(name: &str) -> u16 {
    GROUPS.iter().find(|(_, known)| *known == name).map_or(0, |&(number, _)| number)
}

fn name(table: &[(u16, &str)], number: u16) -> String {
    let known = table.iter().find(|&&(known, _)| known == number);
    known.map_or_else(|| format!("number {number:#06x}"), |&(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, group, group_number, suite};

    #[test]
    fn maps_numbers_to_names_and_back() {
        assert_eq!(suite(0x1301), "TLS13_AES_128_GCM_SHA256");
        assert_eq!(suite(0x1304), "number 0x1304");
        for (number, name) in GROUPS {
            assert_eq!((group(number).as_str(), group_number(name)), (name, number));
        }
        assert_eq!(group_number("X25519Kyber768"), 0);
    }
}
