use super::crowd_size::CrowdSize;
use crate::cpu::Placement;
use crate::rounds::Plan;
use crate::{DriverKind, Span};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tautline_measure::named;

/// Settings of a run.
pub struct Lab<'a> {
    /// The program `taut`, which is started as server.
    pub program: PathBuf,
    /// Time to spend.
    pub effort: Effort,
    /// CPUs of server and load.
    pub placement: Placement,
    /// Drivers of our servers, see [`drivers`](super::drivers).
    pub drivers: Vec<DriverKind>,
    /// Whether the user chose `drivers`. If not, [`Suite::Stages`](super::Suite::Stages) measures all drivers.
    pub has_chosen_drivers: bool,
    /// The program with the servers of [`Suite::Peers`](super::Suite::Peers); by default it is built from the checkout.
    pub peers: Option<PathBuf>,
    /// Size of the crowd of [`Suite::Million`](super::Suite::Million).
    pub crowd: CrowdSize,
    /// Set to end the suite early: it reports the measurements that it has.
    pub stop: &'a AtomicBool,
    /// Receives the share (0 to 1) of the suite that is done, and the name of the next measurement.
    pub progress: &'a mut dyn FnMut(f64, &str),
}

named! {
    /// Time that a suite takes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Effort {
        /// A minute or two, for figures to publish.
        Thorough = "thorough",
        /// Fewer and shorter rounds, for a first look.
        Quick = "quick",
        /// One short round, to see that everything works. Its figures mean nothing.
        Smoke = "smoke",
    }
}

impl Effort {
    /// The value for this effort, of one for each.
    pub(super) const fn pick<T: Copy>(self, thorough: T, quick: T, smoke: T) -> T {
        match self {
            Self::Thorough => thorough,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }
}

impl<'a> Lab<'a> {
    /// Settings with our servers on epoll only, which `..` may complete.
    pub fn new(
        program: impl Into<PathBuf>,
        effort: Effort,
        stop: &'a AtomicBool,
        progress: &'a mut dyn FnMut(f64, &str),
    ) -> Self {
        Self {
            program: program.into(),
            effort,
            placement: Placement::here(),
            drivers: vec![DriverKind::Epoll],
            has_chosen_drivers: false,
            peers: None,
            crowd: CrowdSize::default(),
            stop,
            progress,
        }
    }

    /// Length of one measurement.
    pub(super) const fn span(&self) -> Span {
        self.effort.pick(Span::millis(150, 600), Span::millis(60, 200), Span::millis(30, 60))
    }

    /// Rounds within `budget`.
    pub(super) const fn plan(&self, budget: Duration) -> Plan {
        // Three rounds are the least number for an interval.
        let (rounds, least_rounds) = self.effort.pick((7, 3), (3, 3), (1, 1));
        Plan { rounds, least_rounds, budget: Some(budget) }
    }

    /// Rounds within `budget`, `times` as many as usual. A smoke run keeps its single round.
    pub(super) const fn plan_times(&self, times: usize, budget: Duration) -> Plan {
        let plan = self.plan(budget);
        Plan { rounds: self.effort.pick(times, times, 1) * plan.rounds, ..plan }
    }
}
