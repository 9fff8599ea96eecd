use crate::Error;
use core::fmt::Write as _;

/// What an engine can do. All of them have RSA and ECDSA certificates, SNI, reload and resumption in TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name in configuration, logs and results.
    pub engine: &'static str,
    /// Whose handshakes and whose records.
    pub library: &'static str,
    /// The feature that builds it in; empty where it always is.
    pub feature: &'static str,
    /// Versions of TLS, oldest first.
    pub versions: &'static [&'static str],
    /// AEADs, those of AES with GCM.
    pub suites: &'static [&'static str],
    /// Application protocols are agreed upon (ALPN).
    pub alpn: bool,
    /// Servers ask for certificates, and clients have them.
    pub client_certificates: bool,
    /// Key exchange with ML-KEM.
    pub post_quantum: bool,
    /// Ed25519 certificates.
    pub ed25519: bool,
    /// Certificates with keys of several kinds stand for one name, so that each client is shown one that it understands.
    pub several_keys: bool,
    /// A server resumes sessions of TLS 1.3 too.
    pub resumes_tls13: bool,
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
        Self { ed25519: false, resumes_tls13: false, key_log: false, ..Self::libssl("libressl", "LibreSSL") },
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
            versions: &["1.2", "1.3"],
            suites: &["AES-128", "AES-256", "ChaCha20"],
            alpn: true,
            client_certificates: true,
            post_quantum: true,
            ed25519: true,
            several_keys: true,
            resumes_tls13: true,
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

    /// All of this as two tables in Markdown, a line for each engine: what it agrees upon with a peer, and what else it does.
    #[must_use]
    pub fn table() -> String {
        let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
        let titles = ["engine", "library", "TLS", "suites", "ALPN", "mTLS", "resumes"];
        let agreed = Self::ALL.map(|one| {
            let resumed = if one.resumes_tls13 { one.versions } else { &["1.2"] };
            let [engine, library] = [one.engine, one.library].map(str::to_owned);
            let [versions, suites, resumed] = [one.versions, one.suites, resumed].map(|names| names.join(" "));
            [engine, library, versions, suites, yes(one.alpn), yes(one.client_certificates), resumed]
        });
        let text = markdown(titles, &agreed);
        let titles = ["engine", "ML-KEM", "Ed25519", "keys", "stapling", "key log", "keys out", "in place", "shared"];
        let further = Self::ALL.map(|one| {
            let flags = [
                one.post_quantum,
                one.ed25519,
                one.several_keys,
                one.stapling,
                one.key_log,
                one.key_export,
                one.in_place,
                one.shares_records,
            ];
            let [mlkem, ed25519, keys, stapling, log, out, place, shared] = flags.map(yes);
            [one.engine.to_owned(), mlkem, ed25519, keys, stapling, log, out, place, shared]
        });
        text + "\n" + &markdown(titles, &further)
    }
}

fn markdown<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let titles = titles.map(str::to_owned);
    let width = |at: usize| rows.iter().chain([&titles]).map(|row| row[at].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        for (cell, &width) in cells.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
    };
    line(&titles);
    line(&widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>());
    rows.iter().for_each(|row| line(row));
    text
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
    fn the_tables_are_square_and_have_everything() {
        let text = Capabilities::table();
        let tables: Vec<&str> = text.split("\n\n").collect();
        for table in &tables {
            let mut lens = table.lines().map(str::len);
            let first = lens.next().unwrap();
            assert!(lens.all(|len| len == first), "{table}");
            assert_eq!(table.lines().count(), 2 + Capabilities::ALL.len());
        }
        let line = |table: &str, engine: &str| {
            let start = format!("| {engine} ");
            let line = table.lines().find(|line| line.starts_with(&start)).unwrap();
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("/")
        };
        assert_eq!(line(tables[0], "libressl"), "libressl/LibreSSL/1.2 1.3/AES-128 AES-256 ChaCha20/yes/yes/1.2");
        assert_eq!(
            line(tables[0], "fused"),
            "fused/rustls, own records/1.2 1.3/AES-128 AES-256 ChaCha20/yes/yes/1.2 1.3"
        );
        assert_eq!(line(tables[1], "fused"), "fused/yes/yes/yes/yes/yes/yes/yes/yes");
        assert_eq!(line(tables[1], "wolfssl"), "wolfssl/yes/no/no/no/yes/no/no/no");
    }
}
