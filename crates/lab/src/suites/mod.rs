//! The suites: what is measured together, and what is said about it.
//!
//! The server of each composition is a process of its own on one CPU; the load is this process on another. All servers
//! of a suite run all the time, and rounds take turns between them.

mod advice;
mod certificates;
mod check;
mod echo;
mod echo_case;
mod handshake;
mod handshake_case;
mod idle;
mod limits;
mod offload;
mod overview;
mod pairs;
mod peer;
mod peers;
mod records;
mod scaling;
mod server;
mod signature;
mod space;
mod stages;
mod windows;
mod wire;

use crate::cpu::{Pinned, Placement};
use crate::rounds::{Plan, Samples};
use crate::stats::Summary;
use crate::{Case, Error, Line};
use certificates::Certificates;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use tautline::TlsEngine;
use tautline::layers::io::Io;

/// TLS engines of this build by their names, the default first.
pub static ENGINES: LazyLock<Vec<&'static str>> = LazyLock::new(|| TlsEngine::all().map(TlsEngine::name).collect());

/// Rows whose rounds spread wider than this make the machine too noisy for fine comparisons.
const NOISY: f64 = 0.10;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Limit, ws and wss side by side, and handshakes, within two minutes.
    Overview,
    /// Messages of many sizes over few and many connections.
    Echo,
    /// What ws costs above bare TCP, and wss above ws.
    Limits,
    /// Memory of connections that do nothing.
    Idle,
    /// Other projects' servers beside ours.
    Peers,
    /// The record path in memory, beside the AEAD alone.
    Records,
    /// Connections per second, and what a storm of them does to others.
    Handshake,
    /// Where a message's time goes, from the network card to the handler.
    Stages,
    /// TLS in the loop, on other threads, and both as the size of messages wants it.
    Offload,
    /// Loops that share nothing beside threads that share a loop.
    Scaling,
    /// How records meet buffers: memory and window BIOs, and records in place.
    Windows,
    /// AF_XDP beside the kernel's TCP, between two network namespaces.
    Wire,
}

impl Suite {
    /// Every suite.
    pub const ALL: [Self; 12] = [
        Self::Overview,
        Self::Echo,
        Self::Limits,
        Self::Idle,
        Self::Peers,
        Self::Records,
        Self::Handshake,
        Self::Stages,
        Self::Offload,
        Self::Scaling,
        Self::Windows,
        Self::Wire,
    ];

    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Echo => "echo",
            Self::Limits => "limits",
            Self::Idle => "idle",
            Self::Peers => "peers",
            Self::Records => "records",
            Self::Handshake => "handshake",
            Self::Stages => "stages",
            Self::Offload => "offload",
            Self::Scaling => "scaling",
            Self::Windows => "windows",
            Self::Wire => "wire",
        }
    }

    /// Measures, which takes minutes, or with [`Pace::Quick`] less than one. A server that ends or falls silent meanwhile
    /// ends the run within seconds.
    ///
    /// # Errors
    /// A server could not be started, or a measurement failed.
    pub fn run(self, lab: &mut Lab<'_>) -> Result<Outcome, Error> {
        if lab.drivers.is_empty() {
            return Err(Error::Usage("there is no driver to measure".to_owned()));
        }
        if self == Self::Peers {
            // A compiler is to have all CPUs.
            lab.find_peers()?;
        }
        let _pinned = Pinned::to(lab.placement.load)?;
        let mut outcome = match self {
            Self::Overview => overview::run(lab),
            Self::Echo => echo::run(lab),
            Self::Limits => limits::run(lab),
            Self::Idle => idle::run(lab),
            Self::Peers => peers::run(lab),
            Self::Records => records::run(lab),
            Self::Handshake => handshake::run(lab),
            Self::Stages => stages::run(lab),
            Self::Offload => offload::run(lab),
            Self::Scaling => scaling::run(lab),
            Self::Windows => windows::run(lab),
            Self::Wire => wire::run(lab),
        }?;
        if lab.placement.is_shared() {
            outcome
                .warnings
                .insert(0, "server and load share the only CPU: rates say little, CPU times hold".to_owned());
        }
        Ok(outcome)
    }
}

impl std::str::FromStr for Suite {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|suite| suite.name() == name).ok_or_else(|| format!("there is no suite {name:?}"))
    }
}

/// The drivers that are compared where nothing else is asked for: epoll, and io_uring where it works here.
#[must_use]
pub fn drivers() -> Vec<Io> {
    [Io::Epoll, Io::Uring].into_iter().filter(|driver| driver.probe().is_ok()).collect()
}

/// Where and how to measure.
pub struct Lab<'a> {
    /// The program `taut`, which is started as server.
    pub program: PathBuf,
    /// How much time to take.
    pub pace: Pace,
    /// CPUs of server and load.
    pub placement: Placement,
    /// Drivers to measure servers of ours on, see [`drivers`].
    pub drivers: Vec<Io>,
    /// The program with the servers of [`Suite::Peers`]; without one it is built from the checkout.
    pub peers: Option<PathBuf>,
    /// Told which share (0 to 1) of the suite is done, and what is being done.
    pub progress: &'a mut dyn FnMut(f64, &str),
}

/// How much time a suite takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A minute or two, for figures to publish.
    Thorough,
    /// Fewer and shorter rounds: a first look.
    Quick,
    /// One short round: whether everything works. Its figures mean nothing.
    Glance,
}

/// What a suite found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// For programs.
    pub lines: Vec<Line>,
    /// For people: tables.
    pub text: String,
    /// What limits the meaning of the figures.
    pub warnings: Vec<String>,
    /// What to do about it, in one line.
    pub advice: Option<String>,
}

impl Outcome {
    /// One line for each metric of each case.
    fn add_samples(&mut self, suite: Suite, case: &Case, samples: &Samples) {
        for (&metric, runs) in samples {
            self.lines.extend(Line::new(suite.name(), case, metric, runs));
        }
    }

    /// Says so where rounds disagree so much that small differences mean nothing; rows by name.
    fn warn_if_noisy<'a>(&mut self, rows: impl Iterator<Item = (&'a str, Option<Summary>)>) {
        let spreads =
            rows.filter_map(|(name, summary)| Some((name, summary.filter(|summary| summary.count > 1)?.spread())));
        let (mut count, mut noisy) = (0, Vec::new());
        for (name, spread) in spreads {
            count += 1;
            noisy.extend((spread > NOISY).then_some((name, spread * 100.0)));
        }
        noisy.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        if let Some((name, spread)) = noisy.first() {
            let number = noisy.len();
            self.warnings.push(format!(
                "{number} of {count} rows spread by more than ± {:.0} %, most {name} with ± {spread:.0} %; smaller \
                 differences than a row's spread mean nothing",
                NOISY * 100.0
            ));
        }
    }
}

/// How long one measurement warms up and lasts.
#[derive(Clone, Copy, Debug)]
struct Span {
    warmup: Duration,
    duration: Duration,
}

impl Lab<'_> {
    fn span(&self) -> Span {
        let (warmup, duration) = match self.pace {
            Pace::Thorough => (150, 600),
            Pace::Quick => (60, 200),
            Pace::Glance => (30, 60),
        };
        Span { warmup: Duration::from_millis(warmup), duration: Duration::from_millis(duration) }
    }

    /// Rounds within `budget`.
    const fn plan(&self, budget: Duration) -> Plan {
        let plan = match self.pace {
            Pace::Thorough => Plan::thorough(),
            Pace::Quick => Plan::quick(),
            Pace::Glance => Plan { rounds: 1, least_rounds: 1, budget: None },
        };
        Plan { budget: Some(budget), ..plan }
    }

    /// Starts servers for `kinds`; their certificates lie on disk only meanwhile.
    fn servers(&self, kinds: &[server::Kind]) -> Result<Vec<server::Process>, Error> {
        let mut keys = Vec::new();
        for key in kinds.iter().map(|kind| kind.key()) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let certificates = Certificates::new(&keys)?;
        kinds.iter().map(|&kind| server::Process::start(self, kind, &certificates)).collect()
    }
}

#[cfg(test)]
mod tests;
