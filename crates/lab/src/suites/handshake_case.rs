//! Handshakes of the overview.

use super::{ENGINES, Key, Kind, Lab, Outcome, Row, Servers, Subject, row};
use crate::load::Handshakes;
use crate::published;
use crate::rounds::Runs;
use crate::table::{Table, optional};
use crate::{Case, DriverKind, Error, Metric};
use std::ops::Range;
use std::time::Duration;

/// Connections being opened at a time: enough to keep the server busy, and few enough that each finds a ticket.
const AT_ONCE: usize = 8;

/// Handshakes of one kind.
pub(super) struct HandshakeCase {
    kind: Kind,
    resumed: bool,
    /// Full handshakes although they were to resume.
    full: u64,
}

impl HandshakeCase {
    const fn row(kind: Kind, resumed: bool) -> Row<Self> {
        Row::new(Self { kind, resumed, full: 0 })
    }

    /// Key of the certificate; `None` without TLS.
    const fn key(&self) -> Option<Key> {
        if let Kind::Wss(_, key, _) = self.kind { Some(key) } else { None }
    }

    /// Names of key and handshake in tables.
    const fn names(&self) -> (&'static str, &'static str) {
        match (self.key(), self.resumed) {
            (Some(key), false) => (key.name(), "full"),
            (Some(key), true) => (key.name(), "resumed"),
            (None, _) => ("-", "ws, no TLS"),
        }
    }

    fn published(&self) -> Option<f64> {
        published(self.key()?, self.resumed)
    }
}

impl Subject for HandshakeCase {
    fn name(&self) -> String {
        let (key, handshake) = self.names();
        format!("handshakes: {key} {handshake}")
    }

    fn case(&self) -> Case {
        let key = self.key();
        self.kind.case().key(key.map(Key::name)).resumed(key.map(|_| self.resumed))
    }
}

/// CPU time of server and client together in us, from a report on the TLS of Go.
pub(super) fn published(key: Key, resumed: bool) -> Option<f64> {
    let text = match (key, resumed) {
        (Key::Rsa2048, false) => "Go 1.8 RSA-2048 both sides one core full=yes tickets=no",
        (Key::Rsa2048, true) => "Go 1.8 RSA-2048 both sides one core full=no tickets=yes",
        _ => return None,
    };
    published::by_text("handshake", text, None).map(|ns| ns / 1e3)
}

/// Full and resumed handshakes with two kinds of key by the default engine, and connections without TLS.
pub(super) fn rows(driver: DriverKind) -> Vec<Row<HandshakeCase>> {
    let wss = |key, resumed| HandshakeCase::row(Kind::Wss(ENGINES[0], key, driver), resumed);
    vec![
        HandshakeCase::row(Kind::Ws(driver), false),
        wss(Key::Rsa2048, false),
        wss(Key::Rsa2048, true),
        wss(Key::P256, false),
        wss(Key::P256, true),
    ]
}

/// Measures all rows in interleaved rounds.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    servers: &Servers,
    rows: &mut [Row<HandshakeCase>],
    budget: Duration,
    share: Range<f64>,
) -> Result<(), Error> {
    row::measure(lab, rows, &lab.plan(budget), share, |lab, case, _| {
        let (server, resumed, span) = (servers.of(case.kind)?.server()?, case.resumed, lab.span());
        let handshakes = Handshakes { server, at_once: AT_ONCE, resumed, may_refuse: false, rate: None, span };
        let counts = handshakes.run(&mut |_| {})?;
        if resumed {
            case.full += counts.measured.count - counts.resumed.min(counts.measured.count);
        }
        Ok(counts.measured.handshake_metrics())
    })
}

/// Adds lines and the table.
pub(super) fn report(outcome: &mut Outcome, rows: &[Row<HandshakeCase>]) {
    let cpu = Metric::ServerCpuPerHandshake;
    for row in rows {
        let (published, full) = (row.subject.published(), row.subject.full);
        outcome.add_row_beside(row, |metric| published.filter(|_| metric == Metric::CpuPerHandshake));
        if full > 0 {
            let (key, handshake) = row.subject.names();
            outcome.warnings.push(format!("{key} {handshake}: {full} of the handshakes were full"));
        }
    }
    let table = Table::of(rows.iter().filter(|row| !row.runs(cpu).is_empty()).map(|row| {
        let (key, handshake) = row.subject.names();
        let (both, published) = (row.median(Metric::CpuPerHandshake), row.subject.published());
        [
            ("<key", key.to_owned()),
            ("<handshake", handshake.to_owned()),
            ("1/s", optional(row.median(Metric::Handshakes))),
            ("p50 us", optional(row.median(Metric::LatencyP50))),
            ("server us", optional(row.median(cpu))),
            ("± %", optional(row.spread_percent(cpu))),
            ("both sides us", optional(both)),
            ("published us", optional(published)),
            ("x published", optional(both.zip(published).map(|(ours, theirs)| ours / theirs))),
        ]
    }));
    outcome.warn_if_noisy(rows, |_| cpu);
    outcome.text += &format!(
        "\nHandshakes: connect, upgrade, close, {AT_ONCE} at a time, TLS {}, {}.\n\
         Published: Go 1.8, both sides, in memory, without TCP and upgrade.\n\n{table}",
        ENGINES[0],
        rows.first().map_or("-", |row| row.subject.kind.driver_name())
    );
}

/// Server CPU of full handshakes with RSA-2048 over that with P-256.
pub(super) fn rsa_over_p256(rows: &[Row<HandshakeCase>]) -> Option<f64> {
    let full = |key: &str| rows.iter().find(|row| row.subject.names() == (key, "full"));
    let cpu = |key| full(key)?.median(Metric::ServerCpuPerHandshake);
    Some(cpu("rsa2048")? / cpu("p256")?)
}
