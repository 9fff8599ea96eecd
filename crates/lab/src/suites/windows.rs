//! Paths of records between buffers, in memory and over loopback.

use super::{Check, Lab, Metrics, Outcome, Row, Subject, check, row};
use crate::published;
use crate::rounds::Runs;
use crate::stats::Summary;
use crate::table::{Table, bytes, number, optional};
use crate::{Case, Error, Metric, Target};
use std::ops::Range;
use std::time::Duration;
use tautline::layers::tls_records::{Suite, aead};
use tautline_replicas::windows::{Direction, Duplex, Frames, Gets, Maker, Memory, Strategy, Variant};

const SIZES: [usize; 6] = [64, 256, 1024, 4096, LARGE, 65_536];

/// Plaintext of a full record.
const LARGE: usize = 16_384;

/// Requests in flight.
const IN_FLIGHT: usize = 32;

/// Time for the rounds in memory, and for those over sockets.
const BUDGETS: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(150)];

/// Earlier rates at 16 KiB, sealing and opening, over those of OpenSSL's memory BIO.
///
/// They were measured in bare loops in C and Rust (AES-128-GCM, Sapphire Rapids). Machines and compilers differ by about a
/// tenth. Greater ratios are no fault: a library may be built better now. Mbed TLS had no AES instructions then.
const EARLIER: [(Option<&str>, Strategy, [f64; 2]); 9] = [
    (Some("openssl"), Strategy::WindowBio, [1.36, 1.38]),
    (Some("aws-lc"), Strategy::WindowBio, [1.51, 1.26]),
    (Some("boringssl"), Strategy::WindowBio, [1.76, 1.45]),
    (Some("libressl"), Strategy::WindowBio, [0.29, 0.30]),
    (Some("mbedtls"), Strategy::WindowBio, [0.041, 0.045]),
    (Some("wolfssl"), Strategy::WindowBio, [1.32, 1.23]),
    (Some("rustls"), Strategy::Buffered, [1.38, 0.97]),
    (Some("rustls"), Strategy::Unbuffered, [1.42, 1.35]),
    (None, Strategy::Aead, [2.09, 2.15]),
];

/// Work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Records in memory.
    Memory(usize, Direction),
    /// Both directions of a connection at once.
    Duplex { spills: bool },
    /// Small reads beside large ones.
    Frames,
    /// Requests.
    Get { closes: bool },
}

/// A variant with its work.
struct Task {
    variant: Variant,
    work: Work,
    prepared: Option<Prepared>,
    /// The other direction of [`Work::Duplex`], as `Metric::Transfer`.
    written: Vec<f64>,
    /// Operations that were checked: seals of a duplex connection, frames.
    count: u64,
}

/// Connections kept from round to round.
enum Prepared {
    Maker(Maker),
    Memory(Memory),
    Frames(Box<Frames>),
}

impl Task {
    const fn row(variant: Variant, work: Work) -> Row<Self> {
        Row::new(Self { variant, work, prepared: None, written: Vec::new(), count: 0 })
    }

    fn prepare(&self) -> Result<Prepared, Error> {
        let maker = Maker::new(self.variant)?;
        Ok(match self.work {
            Work::Memory(size, direction) => Prepared::Memory(Memory::new(&maker, size, direction)?),
            Work::Frames => Prepared::Frames(Box::new(Frames::new(&maker)?)),
            Work::Duplex { .. } | Work::Get { .. } => Prepared::Maker(maker),
        })
    }

    /// Measures once, for at least `least` of CPU time if in memory.
    fn run(&mut self, lab: &Lab<'_>, least: Duration) -> Result<Metrics, Error> {
        let (placement, span) = (lab.placement, lab.span());
        let mut prepared = self.prepared.take().map_or_else(|| self.prepare(), Ok)?;
        let metrics = match &mut prepared {
            Prepared::Memory(memory) => vec![(Metric::CpuPerMsg, memory.measure(least)?)],
            Prepared::Frames(frames) => {
                let (us, read) = frames.measure(2 * least)?;
                self.count += read;
                vec![(Metric::CpuPerMsg, us)]
            }
            Prepared::Maker(maker) => {
                if let Work::Get { closes } = self.work {
                    let rates = Gets { maker, in_flight: IN_FLIGHT, closes, placement, span }.run()?;
                    vec![(Metric::Throughput, rates.rate), (Metric::ServerCpuPerMsg, rates.server_us)]
                } else {
                    let spills = self.work == Work::Duplex { spills: true };
                    let rates = Duplex { maker, spills, placement, span }.run()?;
                    self.written.push(rates.written);
                    self.count += rates.sealed;
                    vec![(Metric::Transfer, rates.read)]
                }
            }
        };
        self.prepared = Some(prepared);
        Ok(metrics)
    }

    /// Names of library and strategy.
    fn names(&self) -> [String; 2] {
        [self.variant.tls.unwrap_or("-").to_owned(), self.variant.strategy.name().to_owned()]
    }
}

impl Subject for Task {
    fn name(&self) -> String {
        let name = self.variant.name();
        match self.work {
            Work::Memory(size, direction) => format!("{name}: {} {}", direction.name(), bytes(size as u64)),
            Work::Duplex { spills } => format!("{name}: duplex{}", if spills { ", spills" } else { "" }),
            Work::Frames => format!("{name}: multiplexed"),
            Work::Get { closes } => format!("{name}: GET{}", if closes { ", close" } else { "" }),
        }
    }

    fn case(&self) -> Case {
        let case = Case::default().tls(self.variant.tls).strategy(self.variant.strategy.name());
        let in_place = matches!(self.variant.strategy, Strategy::Fused | Strategy::Aead);
        let case = case.aead(in_place.then(|| aead::names(Suite::Aes128Gcm)));
        match self.work {
            Work::Memory(size, direction) => case.size(size).direction(direction.name()),
            Work::Duplex { spills } => case.connections(1).direction("read").setup(spills.then_some("spill")),
            Work::Frames => case.size(LARGE).setup("multiplexed"),
            Work::Get { closes } => {
                case.connections(IN_FLIGHT).size(LARGE).setup(if closes { "close" } else { "keep-alive" })
            }
        }
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let mut memory: Vec<_> = SIZES
        .into_iter()
        .flat_map(|size| Variant::all().into_iter().map(move |variant| (size, variant)))
        .flat_map(|(size, variant)| Direction::ALL.map(|to| Task::row(variant, Work::Memory(size, to))))
        .collect();
    let mut sockets = Vec::new();
    for variant in Variant::all().into_iter().filter(|variant| variant.strategy != Strategy::Aead) {
        let spilling = variant.can_spill().then_some(Work::Duplex { spills: true });
        let works = [Work::Duplex { spills: false }].into_iter().chain(spilling).chain([
            Work::Frames,
            Work::Get { closes: false },
            Work::Get { closes: true },
        ]);
        sockets.extend(works.map(|work| Task::row(variant, work)));
    }
    measure(lab, &mut memory, BUDGETS[0], 0.0..0.5)?;
    measure(lab, &mut sockets, BUDGETS[1], 0.5..1.0)?;
    outcome.text =
        [memory_table(&memory), duplex_table(&sockets), frames_table(&sockets), get_table(&sockets)].concat();
    for row in memory.iter().chain(&sockets) {
        outcome.add_row(row);
        outcome.add(&row.subject.case().direction("write"), Metric::Transfer, &row.subject.written);
    }
    check::report(outcome, checks(&memory));
    if Variant::all().iter().all(|variant| variant.strategy != Strategy::WindowBio) {
        outcome.warnings.push(
            "memory and window BIOs are those of OpenSSL, AWS-LC and BoringSSL, which this program \
             does not have: build it with --features engines"
                .to_owned(),
        );
    }
    Ok(())
}

fn measure(lab: &mut Lab<'_>, rows: &mut [Row<Task>], budget: Duration, share: Range<f64>) -> Result<(), Error> {
    let least = Duration::from_millis(lab.effort.pick(30, 8, 1));
    row::measure(lab, rows, &lab.plan(budget), share, |lab, task, _| task.run(lab, least))
}

fn find<'a>(rows: &'a [Row<Task>], tls: Option<&str>, strategy: Strategy, work: Work) -> Option<&'a Row<Task>> {
    rows.iter().map(|row| (row, &row.subject)).find_map(|(row, task)| {
        let Variant { tls: of, strategy: by } = task.variant;
        (of == tls && by == strategy && task.work == work).then_some(row)
    })
}

/// The row that all rates in memory are compared with.
fn base(rows: &[Row<Task>], work: Work) -> Option<&Row<Task>> {
    find(rows, Some("openssl"), Strategy::MemoryBio, work)
}

fn memory_table(rows: &[Row<Task>]) -> String {
    const TITLES: &str = "<size|<tls|<strategy|seal ns|± %|MB/s|x mem|open ns|± %|MB/s|x mem";
    let mut table = Table::new(&TITLES.split('|').collect::<Vec<_>>());
    for row in rows {
        let Task { variant, work: Work::Memory(size, Direction::Seal), .. } = row.subject else { continue };
        let opens = find(rows, variant.tls, variant.strategy, Work::Memory(size, Direction::Open));
        let Some(opens) = opens else { continue };
        let mut cells = vec![bytes(size as u64)];
        cells.extend(row.subject.names());
        for row in [row, opens] {
            let us = row.median(Metric::CpuPerMsg);
            // The ratio of rates is the inverse of that of times.
            let over = base(rows, row.subject.work).and_then(|base| base.times(row, Metric::CpuPerMsg));
            let (time, rate) = (us.map(|us| us * 1e3), us.map(|us| size as f64 / us));
            cells.extend([time, row.spread_percent(Metric::CpuPerMsg), rate, over].map(optional));
        }
        table.row(cells);
    }
    format!(
        "Windows: messages in memory on one thread, TLS 1.3 with AES-128-GCM, a seal or an open of each; CPU\n\
         time. memory-bio: the library's own memory between it and the caller's. window-bio: none, what is\n\
         opened lies where the record lay. direct: it goes where the caller wants it. aead: the\n\
         AEAD of {} alone.\n\
         x mem: rate over that of OpenSSL's memory BIO.\n\n{table}",
        aead::names(Suite::Aes128Gcm)
    )
}

fn duplex_table(rows: &[Row<Task>]) -> String {
    let mut table =
        Table::new(&["<tls", "<strategy", "read MB/s", "± %", "published", "write MB/s", "± %", "published", "seals"]);
    for row in rows {
        let Work::Duplex { spills } = row.subject.work else { continue };
        let [tls, strategy] = row.subject.names();
        let mut cells = vec![tls, strategy + if spills { ", spills" } else { "" }];
        for (direction, runs) in [("read", row.runs(Metric::Transfer)), ("write", &row.subject.written)] {
            let case = row.subject.case().direction(direction);
            let rate = Summary::of(runs);
            cells.extend([
                optional(rate.map(|rate| rate.median)),
                optional(rate.map(|rate| rate.spread() * 100.0)),
                optional(published::lookup("windows", &case, Metric::Transfer)),
            ]);
        }
        cells.push(number(row.subject.count as f64));
        table.row(cells);
    }
    format!(
        "\nDuplex: one connection over loopback, both ends send and receive 32 KiB at a time, always; what\n\
         the server received and sent. A reader wants the bytes in a buffer of its own: all but direct and\n\
         buffered copy them there. spills: nothing that the library writes goes to the caller's buffer.\n\
         seals: of 32 KiB each, on both ends, all without an error. Published: .NET's SslStream.\n\n{table}"
    )
}

fn frames_table(rows: &[Row<Task>]) -> String {
    let table = Table::of(rows.iter().filter(|row| row.subject.work == Work::Frames).map(|row| {
        let us = row.median(Metric::CpuPerMsg);
        let [tls, strategy] = row.subject.names();
        [
            ("<tls", tls),
            ("<strategy", strategy),
            ("us/frame", optional(us)),
            ("± %", optional(row.spread_percent(Metric::CpuPerMsg))),
            ("MB/s", optional(us.map(|us| (9 + LARGE) as f64 / us))),
            ("frames", number(row.subject.count as f64)),
        ]
    }));
    format!(
        "\nMultiplexed: 100 streams on one connection in memory, 9 bytes of header read before each 16 KiB,\n\
         records that begin and end anywhere, ciphertext in pieces of any length. A read of less than a\n\
         record is served from memory of the reader's. CPU time to read; no frame had an error.\n\n{table}"
    )
}

fn get_table(rows: &[Row<Task>]) -> String {
    let mut table =
        Table::new(&["<tls", "<strategy", "kept 1/s", "± %", "us", "published", "close 1/s", "± %", "us", "published"]);
    for row in rows.iter().filter(|row| row.subject.work == Work::Get { closes: false }) {
        let Variant { tls, strategy } = row.subject.variant;
        let closing = find(rows, tls, strategy, Work::Get { closes: true });
        let mut cells = row.subject.names().to_vec();
        for (row, closes) in [(Some(row), false), (closing, true)] {
            cells.extend([
                optional(row.and_then(|row| row.median(Metric::Throughput))),
                optional(row.and_then(|row| row.spread_percent(Metric::Throughput))),
                optional(row.and_then(|row| row.median(Metric::ServerCpuPerMsg))),
                optional(row.and_then(|_| published_gets(strategy, closes))),
            ]);
        }
        table.row(cells);
    }
    format!(
        "\nGET: HTTPS requests for 16 KiB over loopback, 32 in flight, a thread at each end. kept: connections\n\
         stay. close: each is new, with a full handshake (P-256). us: server CPU.\n\
         Published: HTTP/1.1 on 56 cores.\n\n{table}"
    )
}

fn published_gets(strategy: Strategy, closes: bool) -> Option<f64> {
    let text = match (strategy, closes) {
        (Strategy::MemoryBio, false) => "HTTPS GET 16KiB HTTP/1.1 keep-alive c=32 strategy=memory-bio",
        (Strategy::Direct, false) => {
            "HTTPS GET 16KiB HTTP/1.1 keep-alive c=32 strategy=window-bio+direct-decrypt gate>=16384"
        }
        (Strategy::MemoryBio, true) => "HTTPS GET 16KiB connection-close strategy=memory-bio",
        _ => return None,
    };
    published::by_text("windows", text, None)
}

fn checks(rows: &[Row<Task>]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |tls, strategy, direction: Direction, least: f64, why: &str| {
        let work = Work::Memory(LARGE, direction);
        let (Some(row), Some(base)) = (find(rows, tls, strategy, work), base(rows, work)) else { return };
        let name = format!("16 KiB {}: {}, x mem{why}", direction.name(), row.subject.variant.name());
        let ratio = (Metric::RatioToMemoryBio, base.over(row, Metric::CpuPerMsg));
        checks.extend(Check::ratio(name, row.subject.case(), ratio, Target::AtLeast(least)));
    };
    for direction in Direction::ALL {
        check(Some("openssl"), Strategy::WindowBio, direction, 1.3, "");
    }
    for (tls, strategy, ratios) in EARLIER {
        for (direction, ratio) in Direction::ALL.into_iter().zip(ratios) {
            let why = format!(", earlier {}", number(ratio));
            check(tls, strategy, direction, 0.9 * ratio, &why);
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WIDTH;

    fn rows() -> Vec<Row<Task>> {
        let variants = [
            (Some("openssl"), Strategy::MemoryBio),
            (Some("openssl"), Strategy::WindowBio),
            (Some("boringssl"), Strategy::Direct),
            (None, Strategy::Aead),
        ];
        let works = [
            Work::Memory(LARGE, Direction::Seal),
            Work::Memory(LARGE, Direction::Open),
            Work::Duplex { spills: false },
            Work::Duplex { spills: true },
            Work::Frames,
            Work::Get { closes: false },
            Work::Get { closes: true },
        ];
        let mut rows = Vec::new();
        for (number, (tls, strategy)) in variants.into_iter().enumerate() {
            for work in works {
                let mut row = Task::row(Variant { tls, strategy }, work);
                let us = 10.0 / (number + 1) as f64;
                for (metric, value) in [
                    (Metric::CpuPerMsg, us),
                    (Metric::Transfer, 12_345.6),
                    (Metric::Throughput, 123_456.0),
                    (Metric::ServerCpuPerMsg, 1_234.5),
                ] {
                    row.samples.insert(metric, vec![value; 3]);
                }
                row.subject.written = vec![12_345.6; 3];
                row.subject.count = 123_456_789;
                rows.push(row);
            }
        }
        rows
    }

    #[test]
    fn tables_fit_and_show_published_figures() {
        let rows = rows();
        for text in [memory_table(&rows), duplex_table(&rows), frames_table(&rows), get_table(&rows)] {
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH) && !text.contains('…'), "{text}");
        }
        for published in ["601", "695", "758", "795", "774", "877", "617", "805"] {
            assert!(duplex_table(&rows).contains(published), "{published}: {}", duplex_table(&rows));
        }
        assert!(["27,040", "27,745", "7,180"].iter().all(|figure| get_table(&rows).contains(figure)));
    }

    #[test]
    fn rates_are_judged_over_that_of_the_memory_bio() {
        let mut outcome = Outcome::of("windows");
        check::report(&mut outcome, checks(&rows()));
        let found: Vec<_> = outcome.lines.iter().map(|line| (line.value, line.target)).collect();
        let at_least = |least: f64| Some(Target::AtLeast(least));
        assert_eq!(found[..2], [(2.0, at_least(1.3)); 2]);
        assert_eq!(found[2..4], [(2.0, at_least(0.9 * 1.36)), (2.0, at_least(0.9 * 1.38))]);
        assert_eq!(found[4..], [(4.0, at_least(0.9 * 2.09)), (4.0, at_least(0.9 * 2.15))]);
    }
}
