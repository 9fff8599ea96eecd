//! How records meet buffers, in memory and over loopback.

use super::check::{self, Check};
use super::{Lab, Outcome, Pace, Suite};
use crate::rounds::{Runs, Samples, interleave};
use crate::stats::{Ratio, Summary};
use crate::table::{Table, bytes, number, optional};
use crate::windows::{Direction, Duplex, Frames, Gets, Maker, Memory, Strategy, Way};
use crate::{Case, Error, Metric, Target, published};
use std::time::Duration;

const SIZES: [usize; 6] = [64, 256, 1024, 4096, LARGE, 65_536];

/// Plaintext of a full record.
const LARGE: usize = 16_384;

/// Requests in flight.
const IN_FLIGHT: usize = 32;

/// What the rounds in memory and over sockets may take.
const BUDGETS: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(150)];

/// What the same libraries gave at 16 KiB in bare loops in C and Rust, sealing and opening, as rates over that of OpenSSL's memory
/// BIO (AES-128-GCM, Sapphire Rapids). A tenth less is within what machines and compilers differ by. More is no fault of ours: a
/// library may be built better by now, as Mbed TLS is, whose build had no AES instructions then.
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

/// What one row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Records in memory.
    Memory(usize, Direction),
    /// Both directions of a connection at once.
    Duplex { spills: bool },
    /// Small reads beside large ones.
    Frames,
    /// Requests.
    Get { closes: bool },
}

struct Row {
    way: Way,
    what: What,
    made: Made,
    samples: Samples,
    /// The other direction of [`What::Duplex`], as `Metric::Transfer`.
    written: Vec<f64>,
    /// Things that could have gone wrong: seals that spilled, frames.
    count: u64,
}

/// What is kept from round to round.
enum Made {
    Nothing,
    Maker(Maker),
    Memory(Memory),
    Frames(Box<Frames>),
}

impl Row {
    const fn new(way: Way, what: What) -> Self {
        Self { way, what, made: Made::Nothing, samples: Samples::new(), written: Vec::new(), count: 0 }
    }

    fn case(&self) -> Case {
        let case = Case {
            tls: self.way.tls.map(str::to_owned),
            strategy: Some(self.way.strategy.name().to_owned()),
            ..Case::default()
        };
        let setup = |setup: &str| Some(setup.to_owned());
        match self.what {
            What::Memory(size, direction) => {
                let direction = if direction == Direction::Seal { "seal" } else { "open" };
                Case { size: Some(size as u64), direction: Some(direction.to_owned()), ..case }
            }
            What::Duplex { spills } => Case {
                connections: Some(1),
                direction: Some("read".to_owned()),
                setup: spills.then(|| "spill".to_owned()),
                ..case
            },
            What::Frames => Case { size: Some(LARGE as u64), setup: setup("multiplexed"), ..case },
            What::Get { closes } => Case {
                connections: Some(IN_FLIGHT as u64),
                size: Some(LARGE as u64),
                setup: setup(if closes { "close" } else { "keep-alive" }),
                ..case
            },
        }
    }

    fn summary(&self, metric: Metric) -> Option<Summary> {
        Summary::of(self.samples.runs(metric))
    }

    /// The rate of this row over that of another.
    fn over(&self, other: &Self) -> Option<Ratio> {
        Ratio::paired(other.samples.runs(Metric::CpuPerMsg), self.samples.runs(Metric::CpuPerMsg))
    }

    fn measure(&mut self, lab: Measuring) -> Result<Vec<(Metric, f64)>, Error> {
        match self.what {
            What::Memory(size, direction) => {
                let memory = match &mut self.made {
                    Made::Memory(memory) => memory,
                    made => {
                        *made = Made::Memory(Memory::new(&Maker::new(self.way)?, size, direction)?);
                        return self.measure(lab);
                    }
                };
                Ok(vec![(Metric::CpuPerMsg, memory.measure(lab.least)?)])
            }
            What::Frames => {
                let frames = match &mut self.made {
                    Made::Frames(frames) => frames,
                    made => {
                        *made = Made::Frames(Box::new(Frames::new(&Maker::new(self.way)?)?));
                        return self.measure(lab);
                    }
                };
                let (us, read) = frames.measure(2 * lab.least)?;
                self.count += read;
                Ok(vec![(Metric::CpuPerMsg, us)])
            }
            What::Duplex { .. } | What::Get { .. } => self.over_sockets(lab),
        }
    }

    fn over_sockets(&mut self, lab: Measuring) -> Result<Vec<(Metric, f64)>, Error> {
        if !matches!(self.made, Made::Maker(_)) {
            self.made = Made::Maker(Maker::new(self.way)?);
        }
        let Made::Maker(maker) = &self.made else { return Ok(Vec::new()) };
        let Measuring { placement, span, .. } = lab;
        let (warmup, duration) = (span.warmup, span.duration);
        Ok(match self.what {
            What::Get { closes } => {
                let got = Gets { maker, in_flight: IN_FLIGHT, closes, placement, warmup, duration }.run()?;
                vec![(Metric::Throughput, got.rate), (Metric::ServerCpuPerMsg, got.server_us)]
            }
            What::Duplex { spills } => {
                let moved = Duplex { maker, spills, placement, warmup, duration }.run()?;
                self.written.push(moved.written);
                self.count += moved.sealed;
                vec![(Metric::Transfer, moved.read)]
            }
            What::Memory(..) | What::Frames => Vec::new(),
        })
    }
}

/// How to measure.
#[derive(Clone, Copy)]
struct Measuring {
    /// CPU time of one measurement in memory.
    least: Duration,
    span: super::Span,
    placement: crate::cpu::Placement,
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let mut memory: Vec<Row> = SIZES
        .into_iter()
        .flat_map(|size| Way::all().into_iter().map(move |way| (size, way)))
        .flat_map(|(size, way)| [Direction::Seal, Direction::Open].map(|to| Row::new(way, What::Memory(size, to))))
        .collect();
    let mut sockets = Vec::new();
    for way in Way::all().into_iter().filter(|way| way.strategy != Strategy::Aead) {
        sockets.push(Row::new(way, What::Duplex { spills: false }));
        if way.can_spill() {
            sockets.push(Row::new(way, What::Duplex { spills: true }));
        }
        sockets.push(Row::new(way, What::Frames));
        sockets.extend([false, true].map(|closes| Row::new(way, What::Get { closes })));
    }
    measure(lab, &mut memory, BUDGETS[0], (0.0, 0.5))?;
    measure(lab, &mut sockets, BUDGETS[1], (0.5, 1.0))?;
    let text = [memory_table(&memory), duplex_table(&sockets), frames_table(&sockets), get_table(&sockets)].concat();
    let mut outcome = Outcome { text, ..Outcome::default() };
    for row in memory.iter().chain(&sockets) {
        outcome.add_samples(Suite::Windows, &row.case(), &row.samples);
        let written = Case { direction: Some("write".to_owned()), ..row.case() };
        outcome.lines.extend(crate::Line::new(Suite::Windows.name(), &written, Metric::Transfer, &row.written));
    }
    check::report(&mut outcome, Suite::Windows, checks(&memory));
    if Way::all().iter().all(|way| way.strategy != Strategy::WindowBio) {
        outcome.warnings.push(
            "memory and window BIOs are those of OpenSSL, AWS-LC and BoringSSL, which this program \
             does not have: build it with --features engines"
                .to_owned(),
        );
    }
    Ok(outcome)
}

fn measure(lab: &mut Lab<'_>, rows: &mut [Row], budget: Duration, (from, to): (f64, f64)) -> Result<(), Error> {
    let least = Duration::from_millis(match lab.pace {
        Pace::Thorough => 30,
        Pace::Quick => 8,
        Pace::Glance => 1,
    });
    let (plan, measuring) = (lab.plan(budget), Measuring { least, span: lab.span(), placement: lab.placement });
    let names: Vec<String> = rows.iter().map(|row| format!("{}, {:?}", row.way.name(), row.what)).collect();
    let progress = &mut lab.progress;
    let samples = interleave(
        rows,
        &plan,
        |step| progress(from + (to - from) * step.done as f64 / step.total as f64, &names[step.case]),
        |row, _| row.measure(measuring),
    )?;
    for (row, samples) in rows.iter_mut().zip(samples) {
        row.samples = samples;
    }
    Ok(())
}

fn find<'a>(rows: &'a [Row], tls: Option<&str>, strategy: Strategy, what: What) -> Option<&'a Row> {
    rows.iter().find(|row| row.way.tls == tls && row.way.strategy == strategy && row.what == what)
}

/// What all rates in memory are compared with.
fn base(rows: &[Row], what: What) -> Option<&Row> {
    find(rows, Some("openssl"), Strategy::MemoryBio, what)
}

fn names(row: &Row) -> [String; 2] {
    [row.way.tls.unwrap_or("-").to_owned(), row.way.strategy.name().to_owned()]
}

fn memory_table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "<size",
        "<tls",
        "<strategy",
        "seal ns",
        "± %",
        "MB/s",
        "x mem",
        "open ns",
        "± %",
        "MB/s",
        "x mem",
    ]);
    for row in rows {
        let What::Memory(size, Direction::Seal) = row.what else { continue };
        let Some(opens) = find(rows, row.way.tls, row.way.strategy, What::Memory(size, Direction::Open)) else {
            continue;
        };
        let [tls, strategy] = names(row);
        let mut cells = vec![bytes(size as u64), tls, strategy];
        for row in [row, opens] {
            let us = row.summary(Metric::CpuPerMsg);
            let over = base(rows, row.what).and_then(|base| row.over(base));
            cells.extend([
                optional(us.map(|us| us.median * 1e3)),
                optional(us.map(|us| us.spread() * 100.0)),
                optional(us.map(|us| size as f64 / us.median)),
                optional(over.map(|over| over.summary.median)),
            ]);
        }
        table.row(cells);
    }
    format!(
        "Windows: messages in memory on one thread, TLS 1.3 with AES-128-GCM, a seal or an open of each; CPU\n\
         time. memory-bio: the library's own memory between it and the caller's. window-bio: none, what is\n\
         opened lies where the record lay. direct: it goes where the caller wants it. aead: AWS-LC alone.\n\
         x mem: rate over that of OpenSSL's memory BIO.\n\n{table}"
    )
}

fn duplex_table(rows: &[Row]) -> String {
    let mut table =
        Table::new(&["<tls", "<strategy", "read MB/s", "± %", "published", "write MB/s", "± %", "published", "seals"]);
    for row in rows {
        let What::Duplex { spills } = row.what else { continue };
        let [tls, strategy] = names(row);
        let mut cells = vec![tls, strategy + if spills { ", spills" } else { "" }];
        for (direction, runs) in [("read", row.samples.runs(Metric::Transfer)), ("write", &row.written)] {
            let case = Case { direction: Some(direction.to_owned()), ..row.case() };
            let rate = Summary::of(runs);
            cells.extend([
                optional(rate.map(|rate| rate.median)),
                optional(rate.map(|rate| rate.spread() * 100.0)),
                optional(published::lookup(Suite::Windows.name(), &case, Metric::Transfer)),
            ]);
        }
        cells.push(number(row.count as f64));
        table.row(cells);
    }
    format!(
        "\nDuplex: one connection over loopback, both ends send and receive 32 KiB at a time, always; what\n\
         the server received and sent. A reader wants the bytes in a buffer of its own: all but direct and\n\
         buffered copy them there. spills: nothing that the library writes goes to the caller's buffer.\n\
         seals: of 32 KiB each, on both ends, all without an error. Published: .NET's SslStream.\n\n{table}"
    )
}

fn frames_table(rows: &[Row]) -> String {
    let mut table = Table::new(&["<tls", "<strategy", "us/frame", "± %", "MB/s", "frames"]);
    for row in rows.iter().filter(|row| row.what == What::Frames) {
        let us = row.summary(Metric::CpuPerMsg);
        let [tls, strategy] = names(row);
        table.row([
            tls,
            strategy,
            optional(us.map(|us| us.median)),
            optional(us.map(|us| us.spread() * 100.0)),
            optional(us.map(|us| (9 + LARGE) as f64 / us.median)),
            number(row.count as f64),
        ]);
    }
    format!(
        "\nMultiplexed: 100 streams on one connection in memory, 9 bytes of header read before each 16 KiB,\n\
         records that begin and end anywhere, ciphertext in pieces of any length. A read of less than a\n\
         record is served from memory of the reader's. CPU time to read; no frame had an error.\n\n{table}"
    )
}

fn get_table(rows: &[Row]) -> String {
    let mut table =
        Table::new(&["<tls", "<strategy", "kept 1/s", "± %", "us", "published", "close 1/s", "± %", "us", "published"]);
    for row in rows.iter().filter(|row| row.what == What::Get { closes: false }) {
        let closing = find(rows, row.way.tls, row.way.strategy, What::Get { closes: true });
        let mut cells = names(row).to_vec();
        for (row, closes) in [(Some(row), false), (closing, true)] {
            let rate = row.and_then(|row| row.summary(Metric::Throughput));
            let cpu = row.and_then(|row| row.summary(Metric::ServerCpuPerMsg));
            cells.extend([
                optional(rate.map(|rate| rate.median)),
                optional(rate.map(|rate| rate.spread() * 100.0)),
                optional(cpu.map(|cpu| cpu.median)),
                optional(row.and_then(|row| published_gets(row.way.strategy, closes))),
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
    published::figures().iter().find(|figure| figure.suite == "windows" && figure.text == text).map(|one| one.value)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |tls, strategy, direction, least: f64, why: &str| {
        let what = What::Memory(LARGE, direction);
        let (Some(row), Some(base)) = (find(rows, tls, strategy, what), base(rows, what)) else { return };
        let verb = if direction == Direction::Seal { "seal" } else { "open" };
        let what = format!("16 KiB {verb}: {}, x mem{why}", row.way.name());
        let ratio = (Metric::RatioToMemoryBio, row.over(base));
        checks.extend(Check::ratio(what, row.case(), ratio, Target::AtLeast(least)));
    };
    let directions = [Direction::Seal, Direction::Open];
    for direction in directions {
        check(Some("openssl"), Strategy::WindowBio, direction, 1.3, "");
    }
    for (tls, strategy, ratios) in EARLIER {
        for (direction, ratio) in directions.into_iter().zip(ratios) {
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

    fn rows() -> Vec<Row> {
        let ways = [
            (Some("openssl"), Strategy::MemoryBio),
            (Some("openssl"), Strategy::WindowBio),
            (Some("boringssl"), Strategy::Direct),
            (None, Strategy::Aead),
        ];
        let whats = [
            What::Memory(LARGE, Direction::Seal),
            What::Memory(LARGE, Direction::Open),
            What::Duplex { spills: false },
            What::Duplex { spills: true },
            What::Frames,
            What::Get { closes: false },
            What::Get { closes: true },
        ];
        let mut rows = Vec::new();
        for (number, (tls, strategy)) in ways.into_iter().enumerate() {
            for what in whats {
                let mut row = Row::new(Way { tls, strategy }, what);
                let us = 10.0 / (number + 1) as f64;
                for (metric, value) in [
                    (Metric::CpuPerMsg, us),
                    (Metric::Transfer, 12_345.6),
                    (Metric::Throughput, 123_456.0),
                    (Metric::ServerCpuPerMsg, 1_234.5),
                ] {
                    row.samples.insert(metric, vec![value; 3]);
                }
                row.written = vec![12_345.6; 3];
                row.count = 123_456_789;
                rows.push(row);
            }
        }
        rows
    }

    #[test]
    fn tables_fit_and_stand_beside_what_is_published() {
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
    fn rates_are_over_that_of_the_memory_bio() {
        let mut outcome = Outcome::default();
        check::report(&mut outcome, Suite::Windows, checks(&rows()));
        let found: Vec<_> = outcome.lines.iter().map(|line| (line.value, line.target)).collect();
        let at_least = |least: f64| Some(Target::AtLeast(least));
        assert_eq!(found[..2], [(2.0, at_least(1.3)); 2]);
        assert_eq!(found[2..4], [(2.0, at_least(0.9 * 1.36)), (2.0, at_least(0.9 * 1.38))]);
        assert_eq!(found[4..], [(4.0, at_least(0.9 * 2.09)), (4.0, at_least(0.9 * 2.15))]);
    }
}
