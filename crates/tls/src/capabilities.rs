use crate::Error;
use core::fmt::Write as _;

/// What an engine can do. All of them have TLS 1.2 and 1.3 with AES-GCM and ChaCha20-Poly1305, RSA and ECDSA, SNI, ALPN, client
/// certificates, reload and resumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name in configuration, logs and results.
    pub engine: &'static str,
    /// Whose handshakes and whose records.
    pub library: &'static str,
    /// The feature that builds it in; empty where it always is.
    pub feature: &'static str,
    /// Key exchange with ML-KEM.
    pub post_quantum: bool,
    /// Ed25519 certificates.
    pub ed25519: bool,
    /// Certificates with keys of several kinds stand for one name, so that each client is shown one that it understands.
    pub several_keys: bool,
    /// A TLS 1.3 server resumes sessions.
    pub tickets: bool,
    /// OCSP responses are stapled.
    pub stapling: bool,
    /// Secrets can be written for those who look into the traffic.
    pub key_log: bool,
    /// An established session's keys can be taken out.
    pub key_export: bool,
    /// Records are opened where they lie, without a copy.
    pub in_place: bool,
    /// Several threads can seal the records of one message ([`Session::seal_with`](crate::Session::seal_with)).
    pub shares_records: bool,
}

impl Capabilities {
    /// Every engine, built in or not.
    pub const ALL: [Self; 11] = [
        Self::rustls("fused", "rustls, own records").with_own_records(),
        Self::rustls("rustls", "rustls on AWS-LC"),
        Self::libssl("openssl", "OpenSSL 3"),
        Self::libssl("aws-lc", "AWS-LC"),
        Self::libssl("boringssl", "BoringSSL"),
        Self { ed25519: false, tickets: false, key_log: false, ..Self::libssl("libressl", "LibreSSL") },
        Self { post_quantum: false, ed25519: false, ..Self::libssl("mbedtls", "Mbed TLS 3.6") },
        Self { ed25519: false, several_keys: false, ..Self::libssl("wolfssl", "wolfSSL (GPLv3)") },
        Self::fused("fused+openssl", "OpenSSL 3, own records", "openssl"),
        Self::fused("fused+aws-lc", "AWS-LC, own records", "aws-lc"),
        Self::fused("fused+boringssl", "BoringSSL, own records", "boringssl"),
    ];

    const fn rustls(engine: &'static str, library: &'static str) -> Self {
        Self {
            engine,
            library,
            feature: "",
            post_quantum: true,
            ed25519: true,
            several_keys: true,
            tickets: true,
            stapling: true,
            key_log: true,
            key_export: false,
            in_place: false,
            shares_records: false,
        }
    }

    const fn libssl(engine: &'static str, library: &'static str) -> Self {
        Self { feature: engine, stapling: false, ..Self::rustls(engine, library) }
    }

    /// The handshakes of the library that this feature builds in, our own records.
    const fn fused(engine: &'static str, library: &'static str, feature: &'static str) -> Self {
        Self { feature, ..Self::libssl(engine, library).with_own_records() }
    }

    const fn with_own_records(self) -> Self {
        Self { key_export: true, in_place: true, shares_records: true, ..self }
    }

    /// The engine of this name.
    #[must_use]
    pub fn of(engine: &str) -> Option<&'static Self> {
        const { &Self::ALL }.iter().find(|one| one.engine == engine)
    }

    /// The error of `engine`, asked for something (`what`) that it cannot do: it names those that can.
    #[must_use]
    pub fn refusal(engine: &str, what: &str, can: impl Fn(&Self) -> bool) -> Error {
        let able: Vec<_> = Self::ALL.iter().filter(|one| can(one)).map(|one| one.engine).collect();
        Error::Config(format!("{engine} cannot {what}; take {}, or leave it out", able.join(" or ")))
    }

    /// All of this as a table in Markdown, a line for each engine.
    #[must_use]
    pub fn table() -> String {
        let head = [
            "engine", "library", "ML-KEM", "Ed25519", "keys", "tickets", "stapling", "key log", "keys out", "in place",
        ];
        let yes = |can: bool| if can { "yes" } else { "no" };
        let mut rows = vec![head.map(str::to_owned), head.map(|title| "-".repeat(title.len()))];
        rows.extend(Self::ALL.iter().map(|one| {
            let flags = [
                one.post_quantum,
                one.ed25519,
                one.several_keys,
                one.tickets,
                one.stapling,
                one.key_log,
                one.key_export,
                one.in_place,
            ];
            let mut cells = [one.engine, one.library, "", "", "", "", "", "", "", ""].map(str::to_owned);
            for (cell, flag) in cells.iter_mut().skip(2).zip(flags) {
                yes(flag).clone_into(cell);
            }
            cells
        }));
        let widths: Vec<usize> =
            (0..head.len()).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or_default()).collect();
        let mut text = String::new();
        for (number, row) in rows.iter().enumerate() {
            for (cell, &width) in row.iter().zip(&widths) {
                let _ = if number == 1 {
                    write!(text, "| {} ", "-".repeat(width))
                } else {
                    write!(text, "| {cell:width$} ")
                };
            }
            text.push_str("|\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Capabilities;

    #[test]
    fn refusals_name_those_that_can() {
        let why = Capabilities::refusal("openssl", "staple OCSP responses", |one| one.stapling).to_string();
        assert!(why.ends_with("openssl cannot staple OCSP responses; take fused or rustls, or leave it out"), "{why}");
        assert_eq!(Capabilities::of("fused").map(|one| one.in_place), Some(true));
        assert!(Capabilities::of("schannel").is_none());
    }

    #[test]
    fn the_table_is_square() {
        let table = Capabilities::table();
        let mut lens = table.lines().map(str::len);
        let first = lens.next().unwrap();
        assert!(lens.all(|len| len == first));
        assert_eq!(table.lines().count(), 2 + Capabilities::ALL.len());
    }
}
