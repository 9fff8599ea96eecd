//! The fleets and their work.

use super::super::{Effort, Row, Subject};
use crate::load::FLEET_TEXT;
use crate::rounds::Samples;
use crate::{Case, Protocol};
use tautline_measure::named;

/// Deliveries in a second: what a CPU does for each of the servers, with room to spare.
pub(super) const RATE: usize = 20_000;

/// Subscribers of a room.
pub(super) const ROOM: usize = 100;

named! {
    /// The servers of a fleet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Who {
        Ours = "tautline",
        Centrifugo = "centrifugo",
    }
}

named! {
    /// The means by which processes share topics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Broker {
        None = "memory",
        Nats = "nats",
        Redis = "redis",
    }
}

/// A fleet of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) broker: Broker,
    /// Whether topics have history.
    pub(super) history: bool,
    pub(super) processes: usize,
    pub(super) subscribers: usize,
}

impl Shape {
    /// The broker, and whether topics have history.
    pub(super) fn topics(self) -> String {
        format!("{}{}", self.broker.name(), if self.history { ", history" } else { "" })
    }
}

/// A fleet of some servers.
pub(super) struct FleetCase {
    pub(super) who: Who,
    pub(super) shape: Shape,
    /// Figures of messages to all subscribers. Those of the row itself are of messages to rooms.
    pub(super) everyone: Samples,
}

impl Subject for FleetCase {
    fn name(&self) -> String {
        let Shape { processes, subscribers, .. } = self.shape;
        format!("{}, {}, {processes} processes, {subscribers} subscribers", self.who.name(), self.shape.topics())
    }

    fn case(&self) -> Case {
        let Shape { processes, subscribers, .. } = self.shape;
        let case = Case::default().protocol(Protocol::Ws).size(FLEET_TEXT).subscribers(subscribers);
        case.threads(processes).peer(self.who.name()).setup(self.shape.topics().as_str())
    }
}

impl FleetCase {
    /// The case of messages to all subscribers.
    pub(super) fn everyone_case(&self) -> Case {
        self.case().setup(format!("{}, to all", self.shape.topics()).as_str())
    }
}

pub(super) type FleetRow = Row<FleetCase>;

/// The fleets of these servers on these brokers, so that those that are compared are measured one after the other.
pub(super) fn rows(effort: Effort, everyone: &[Who], brokers: &[Broker]) -> Vec<FleetRow> {
    let sizes: &[usize] = effort.pick(&[1_000, 5_000, 15_000], &[1_000], &[60]);
    let mut rows = Vec::new();
    for &broker in brokers {
        let fleets: &[usize] = if broker == Broker::None { &[1] } else { &[1, 3] };
        for history in [false, true] {
            for (&processes, &subscribers) in
                fleets.iter().flat_map(|fleet| sizes.iter().map(move |size| (fleet, size)))
            {
                let shape = Shape { broker, history, processes, subscribers };
                // Centrifugo has no history on NATS.
                let can = |who: &Who| *who == Who::Ours || broker != Broker::Nats || !history;
                let cases = everyone.iter().copied().filter(can);
                rows.extend(cases.map(|who| Row::new(FleetCase { who, shape, everyone: Samples::new() })));
            }
        }
    }
    rows
}
