//! Where the time of a feed's messages goes, from the network card to the handler.

mod cost;
mod report;
mod rows;

use super::server::{Feed, Kind, Process, Site};
use super::space::{self, Space};
use super::{ENGINES, Lab, Outcome, Pace};
use crate::Error;
use crate::cpu::thread_time;
use crate::load::{self, Server};
use crate::records::Work;
use rows::{Row, Wire};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tautline::layers::io::{Io, kernel};
use tautline::{Spread, Stage, Stages, TlsEngine, Way};

/// Messages before those that count.
const WARM_UP: u64 = 100;

/// What targets speak of: messages of 200 bytes, each with a record of its own.
const STEADY: Feed = Feed::Steady { size: SIZE, rate: 10_000 };
const SIZE: u32 = 200;

/// Where a feed comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Loopback,
    Veth,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        }
    }
}

/// Which part of a run is over when the probe's own cost is measured.
const COST_FROM: f64 = 0.8;

/// A composition that runs here.
struct StageCase {
    row: Row,
    place: Place,
    feed: Feed,
    engine: TlsEngine,
    way: Way,
    /// What the rounds found.
    found: Vec<Found>,
    /// Why it did not work after all.
    failed: Option<Error>,
}

/// What one round found.
struct Found {
    /// In the order of [`Stage::ALL`].
    spreads: [Spread; 8],
    tls_share: f64,
    per_read: (f64, u64),
    per_record: (f64, u64),
    clock: String,
}

/// What messages cost at least, in us.
struct Least {
    /// A receive that finds nothing.
    call: f64,
    /// The AEAD over 200 bytes, once.
    aead: f64,
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<Outcome, Error> {
    let (messages, rounds) = match lab.pace {
        Pace::Thorough => (10_000, 3),
        // As many, in rounds short enough for several: whoever disturbs one is not in the median.
        Pace::Quick => (2_000, 5),
        Pace::Glance => (300, 1),
    };
    let certificates = super::Certificates::new(&[super::server::Key::P256])?;
    let space = Space::new();
    let mut servers = Vec::new();
    for feed in [Feed::Market, STEADY] {
        let kind = Kind::Feed(feed, Io::Epoll);
        servers.push((feed, Place::Loopback, Process::start(lab, kind, &certificates)?));
        if let Ok(space) = &space {
            let site = Site { command: space.command(), address: space::SERVER };
            servers.push((feed, Place::Veth, Process::start_at(lab, kind, &certificates, Some(site))?));
        }
    }
    let mut skipped = Vec::new();
    let has = Here {
        veth: space.as_ref().map(drop).map_err(Clone::clone),
        kernel_tls: kernel::probe().map(drop).map_err(|error| error.to_string()),
    };
    let mut cases = cases(lab.pace, &has, &mut skipped);
    let count = cases.len();
    for round in 0..rounds {
        for (number, case) in cases.iter_mut().enumerate() {
            let done = (round * count + number) as f64 / (rounds * count) as f64;
            (lab.progress)(COST_FROM * done, &case.row.name());
            let process = servers.iter().find(|(feed, place, _)| (*feed, *place) == (case.feed, case.place));
            let Some((.., process)) = process.filter(|_| case.failed.is_none()) else { continue };
            let feed = load::Feed { server: case.server(process)?, warm_up: WARM_UP, messages };
            let listen = || feed.run(&mut |_| {});
            let found = match (&space, case.place) {
                (Ok(space), Place::Veth) => space.at_client(listen),
                _ => listen(),
            };
            match found {
                Ok(stages) => case.found.push(Found::of(&stages)),
                // One composition of many: the others are told.
                Err(error) => case.failed = Some(error),
            }
        }
    }
    if cases.iter().all(|case| case.found.is_empty())
        && let Some(error) = cases.iter_mut().find_map(|case| case.failed.take())
    {
        return Err(error);
    }
    for case in &cases {
        skipped.extend(case.failed.as_ref().map(|error| (case.name(), error.to_string())));
    }
    let least =
        Least { call: empty_call()?, aead: Work::aead(SIZE as usize)?.measure(Duration::from_millis(5))? / 2.0 };
    drop(servers);
    let costs = cost::measure(lab, &certificates, COST_FROM)?;
    Ok(report::report(&cases, &skipped, &costs, &least, messages))
}

/// What this machine has, or why not.
struct Here {
    veth: Result<(), String>,
    kernel_tls: Result<(), String>,
}

/// What runs here; why the others do not goes to `skipped`.
fn cases(pace: Pace, has: &Here, skipped: &mut Vec<(String, String)>) -> Vec<StageCase> {
    let mut cases = Vec::new();
    if let Err(why) = &has.veth {
        skipped.push(("everything over veth".to_owned(), why.clone()));
    }
    for row in rows::all() {
        let kernel_tls = has.kernel_tls.as_ref().copied().map_err(String::as_str);
        let made = row.engine(kernel_tls).and_then(|engine| row.way().map(|way| (engine, way)));
        let (engine, way) = match made {
            Ok(made) => made,
            Err(why) => {
                skipped.push((row.name(), why));
                continue;
            }
        };
        // To see whether it works, our default and one of the report's will do.
        if pace == Pace::Glance && !matches!(row.mode, None | Some(9)) {
            skipped.push((row.name(), "this run is too short for it".to_owned()));
            continue;
        }
        for place in [Place::Loopback, Place::Veth] {
            let possible = match place {
                Place::Loopback => !matches!(row.wire, Wire::Xdp { .. }),
                Place::Veth => has.veth.is_ok(),
            };
            let feeds: &[Feed] = if row.mode.is_none() { &[Feed::Market, STEADY] } else { &[Feed::Market] };
            for &feed in feeds.iter().filter(|_| possible) {
                cases.push(StageCase { row, place, feed, engine, way: way.clone(), found: Vec::new(), failed: None });
            }
        }
    }
    cases
}

impl StageCase {
    /// `fused epoll`, or `fused epoll 200 B` where all messages are of that size.
    fn short_name(&self) -> String {
        match self.feed {
            Feed::Market => self.row.name(),
            Feed::Steady { size, .. } => format!("{} {size} B", self.row.name()),
        }
    }

    fn name(&self) -> String {
        format!("{} over {}", self.short_name(), self.place.name())
    }

    fn server(&self, process: &Process) -> Result<Server, Error> {
        let mut server = process.server()?;
        (server.engine, server.way) = (self.engine, self.way.clone());
        Ok(server)
    }

    /// One value for each round.
    fn runs(&self, value: impl Fn(&Found) -> f64) -> Vec<f64> {
        self.found.iter().map(value).collect()
    }
}

impl Found {
    fn of(stages: &Stages) -> Self {
        Self {
            spreads: Stage::ALL.map(|stage| stages.spread(stage)),
            tls_share: stages.tls_share(),
            per_read: stages.per_read(),
            per_record: stages.per_record(),
            clock: stages.clock(),
        }
    }

    const fn spread(&self, stage: Stage) -> Spread {
        self.spreads[stage as usize]
    }

    /// From the stamp to the handler; from the end of the wait where there is no stamp.
    fn total(&self) -> Spread {
        let total = self.spread(Stage::Total);
        if total.count == 0 { self.spread(Stage::App) } else { total }
    }

    /// Whether arrivals were stamped.
    const fn has_arrivals(&self) -> bool {
        self.spread(Stage::Nic).count > 0
    }
}

/// What a receive costs that finds nothing, in us of CPU time.
fn empty_call() -> Result<f64, Error> {
    const CALLS: u32 = 2_000;
    let failed = |error| Error::Failed(format!("cannot connect to this process: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let mut stream = listener.local_addr().and_then(TcpStream::connect).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let began = thread_time();
    for _ in 0..CALLS {
        // It would block, which is what is measured.
        let _ = stream.read(&mut [0; 64]);
    }
    Ok(thread_time().saturating_sub(began).as_secs_f64() * 1e6 / f64::from(CALLS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_tls_adds_the_rows_that_its_drivers_can_serve() {
        let none = || Err("none here".to_owned());
        for kernel_tls in [Ok(()), none()] {
            let mut skipped = Vec::new();
            let is_there = kernel_tls.is_ok();
            let cases = cases(Pace::Quick, &Here { veth: none(), kernel_tls }, &mut skipped);
            let modes: Vec<_> = cases.iter().filter_map(|case| case.row.mode).collect();
            assert_eq!(modes.contains(&4), is_there, "{modes:?}");
            assert_eq!(modes.contains(&5), is_there, "{modes:?}");
            let why = skipped.iter().find(|(row, _)| row.starts_with("5. ktls select")).map(|(_, why)| why.as_str());
            assert_eq!(why, if is_there { None } else { Some("none here") });
        }
    }
}
