use crate::Error;
use core::fmt::Write as _;

/// The features of a TLS engine.
///
/// Every engine has RSA and ECDSA certificates, SNI, reload and resumption in TLS 1.2.
///
/// ```
/// # mod tautline { pub use tautline_tls::Capabilities; }
/// use tautline::Capabilities;
///
/// static MINE: Capabilities = {
///     let mut can = Capabilities::new("mine", "MyTLS 1.0").with_feature("mine");
///     can.ed25519 = false;
///     can
/// };
/// assert!(MINE.refusal("use an Ed25519 key").to_string().contains("mine cannot use an Ed25519 key"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The engine's name in configuration, logs and results.
    pub engine: &'static str,
    /// The TLS library; `own records` says that Tautline seals and opens the records itself.
    pub library: &'static str,
    /// The Cargo feature that builds the engine in; empty if it is always built in.
    pub feature: &'static str,
    /// Versions of TLS, oldest first.
    pub versions: &'static [&'static str],
    /// AEADs; AES stands for AES-GCM.
    pub suites: &'static [&'static str],
    /// The engine negotiates application protocols (ALPN).
    pub alpn: bool,
    /// Servers request client certificates, and clients present them.
    pub client_certificates: bool,
    /// The engine offers key exchange with ML-KEM.
    pub post_quantum: bool,
    /// The engine accepts Ed25519 certificates.
    pub ed25519: bool,
    /// One name may have certificates with several kinds of key; each client gets one that it can verify.
    pub several_keys: bool,
    /// A server resumes sessions of TLS 1.3 too.
    pub resumes_tls13: bool,
    /// A server staples OCSP responses.
    pub stapling: bool,
    /// The engine writes secrets to the file that `SSLKEYLOGFILE` names.
    pub key_log: bool,
    /// A program can decide about peers' certificates ([`Verify`](crate::Verify)).
    pub own_verifier: bool,
    /// TLS 1.3 sessions export keying material ([`Session::export_keying_material`](crate::Session)).
    pub exporter: bool,
    /// A server answers challenges of TLS-ALPN-01 ([`Challenges`](crate::Challenges)).
    pub challenges: bool,
    /// An established session's keys can be exported.
    pub key_export: bool,
    /// Records are opened in place, without a copy.
    pub in_place: bool,
    /// Several threads can seal the records of one message ([`Session::seal_with`](crate::Session::seal_with)).
    pub shares_records: bool,
    /// Bytes that the library holds for an established session, beside the value of type [`Session`](crate::Session). About, as
    /// measured; those of records in progress come on top. A server's account of memory counts them.
    pub session_memory: usize,
}

impl Capabilities {
    /// Everything that rustls has, with records of the library's own, in every build.
    #[must_use]
    pub const fn new(engine: &'static str, library: &'static str) -> Self {
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
            own_verifier: true,
            exporter: true,
            challenges: true,
            key_export: false,
            in_place: false,
            shares_records: false,
            session_memory: 0,
        }
    }

    /// Names the cargo feature that builds the engine.
    #[must_use]
    pub const fn with_feature(self, feature: &'static str) -> Self {
        Self { feature, ..self }
    }

    /// Sets the memory of an established session, in bytes.
    #[must_use]
    pub const fn with_session_memory(self, bytes: usize) -> Self {
        Self { session_memory: bytes, ..self }
    }

    /// Adds the capabilities of records that this project opens and seals in place.
    #[must_use]
    pub const fn with_own_records(self) -> Self {
        Self { key_export: true, in_place: true, shares_records: true, ..self }
    }

    /// The error of an engine that is asked for something (`what`) that it cannot do.
    #[must_use]
    pub fn refusal(&self, what: &str) -> Error {
        let engine = self.engine;
        Error::Config(format!("{engine} cannot {what}; take an engine that can (docs/engines.md), or leave it out"))
    }

    /// Two tables in Markdown with a line for each engine: what it negotiates with a peer, and what else it does.
    #[must_use]
    pub fn table(engines: &[&Self]) -> String {
        let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
        let titles = ["engine", "library", "TLS", "suites", "ALPN", "mTLS", "resumes"];
        let negotiated = engines.iter().map(|one| {
            let resumed = if one.resumes_tls13 { one.versions } else { &["1.2"] };
            let [engine, library] = [one.engine, one.library].map(str::to_owned);
            let [versions, suites, resumed] = [one.versions, one.suites, resumed].map(|names| names.join(" "));
            [engine, library, versions, suites, yes(one.alpn), yes(one.client_certificates), resumed]
        });
        let text = markdown(titles, &negotiated.collect::<Vec<_>>());
        let titles = ["engine", "ML-KEM", "Ed25519", "keys", "stapling", "key log", "keys out", "in place", "shared"];
        let further = engines.iter().map(|one| {
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
        text + "\n" + &markdown(titles, &further.collect::<Vec<_>>())
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
    fn a_refusal_names_the_engine_and_the_way_out() {
        let why = Capabilities::new("one", "a library").refusal("staple OCSP responses").to_string();
        assert!(why.contains("one cannot staple OCSP responses; take an engine that can"), "{why}");
    }

    #[test]
    fn the_tables_are_square_and_have_every_engine() {
        let fused = Capabilities::new("fused", "rustls, own records").with_own_records();
        let other = Capabilities { resumes_tls13: false, ..Capabilities::new("other", "another library") };
        let text = Capabilities::table(&[&fused, &other]);
        let tables: Vec<&str> = text.split("\n\n").collect();
        for table in &tables {
            let mut lens = table.lines().map(str::len);
            let first = lens.next().unwrap();
            assert!(lens.all(|len| len == first), "{table}");
            assert_eq!(table.lines().count(), 4);
        }
        let line = |table: &str, engine: &str| {
            let start = format!("| {engine} ");
            let line = table.lines().find(|line| line.starts_with(&start)).unwrap();
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("/")
        };
        assert_eq!(line(tables[0], "other"), "other/another library/1.2 1.3/AES-128 AES-256 ChaCha20/yes/yes/1.2");
        assert_eq!(line(tables[1], "fused"), "fused/yes/yes/yes/yes/yes/yes/yes/yes");
        assert_eq!(line(tables[1], "other"), "other/yes/yes/yes/yes/yes/no/no/no");
    }
}
