use crate::certificate::CertificateExpiry;
use crate::process::ProcessFigures;
use tautline_engine::probe::Stages;
use tautline_engine::{BrokerCounters, Counters, Durations, Outcomes, Staying};

/// The figures of a server at one instant.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Figures {
    /// Each loop's figures.
    pub loops: Vec<LoopFigures>,
    /// The stages of received messages, if they are measured.
    pub stages: Option<Box<Stages>>,
    /// The certificates in use.
    pub certificates: Vec<CertificateExpiry>,
    /// Reloads of the TLS configuration; `None` without TLS.
    pub reloads: Option<ReloadFigures>,
    /// The certificate that the server orders itself; `None` if it does not.
    pub acme: Option<AcmeFigures>,
    /// Upgrades without a disconnect; `None` if the server cannot have any.
    pub upgrades: Option<UpgradeFigures>,
    /// The broker between hosts; `None` without one.
    pub broker: Option<BrokerCounters>,
    /// The process.
    pub process: Option<ProcessFigures>,
}

/// The figures of a loop.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopFigures {
    /// The loop's number.
    pub number: u32,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is being drained, or was.
    pub draining: bool,
    /// Its counters.
    pub counters: Counters,
    /// How its handshakes and connections went.
    pub outcomes: Outcomes,
}

impl LoopFigures {
    /// The figures of a loop that is not being drained.
    #[must_use]
    pub const fn new(number: u32, running: bool, counters: Counters, outcomes: Outcomes) -> Self {
        Self { number, running, draining: false, counters, outcomes }
    }
}

/// Reloads of the TLS configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReloadFigures {
    /// Reloads that replaced the configuration.
    pub done: u64,
    /// Reloads that failed, so that the configuration stayed.
    pub failed: u64,
}

/// A certificate that a server orders itself (ACME).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeFigures {
    /// When it expires, in seconds since 1970; `None` before the first one.
    pub expiry: Option<u64>,
    /// When it was stored, in seconds since 1970; `None` before the first one.
    pub last_success: Option<u64>,
    /// When it is to be renewed, in seconds since 1970; `None` before the first one.
    pub due: Option<u64>,
    /// Certificates that this process has ordered.
    pub orders: u64,
    /// Failures of this process, by their kind.
    pub failures: Vec<(&'static str, u64)>,
    /// Whether this process is the one of several that orders.
    pub orders_itself: bool,
    /// The OCSP responses for it; `None` if it names no responder.
    pub responses: Option<ResponseFigures>,
}

/// The OCSP responses for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseFigures {
    /// When the present one expires, in seconds since 1970; `None` without one.
    pub expiry: Option<u64>,
    /// Responses that this process has fetched.
    pub done: u64,
    /// Requests of this process that failed.
    pub failed: u64,
}

/// Upgrades of a server to new processes, over all of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeFigures {
    /// Upgrades after which a new process went on.
    pub done: u64,
    /// Upgrades that failed, so that the old process went on.
    pub failed: u64,
    /// The times during which no connection was served.
    pub pause: Durations,
    /// Connections that have moved.
    pub moved: u64,
    /// Connections that the new process could not go on with.
    pub refused: u64,
    /// Connections that could not move, by the reason.
    pub staying: Staying,
}
