//! The upgrades of a server, counted over all of its processes.

use super::handed::HandedOver;
use std::time::Duration;
use tautline_engine::{Durations, Staying, Totals};

/// The upgrades of a server by [`hand_over`](crate::ServerHandle::hand_over), those of the processes before this one included.
///
/// ```
/// use tautline::ServerHandle;
///
/// fn report(server: &ServerHandle) -> String {
///     let upgrades = server.upgrades();
///     format!("{} upgrades, {} connections moved, closed: {}", upgrades.done, upgrades.moved, upgrades.staying)
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrades {
    /// Upgrades after which a new process went on.
    pub done: u64,
    /// Upgrades that failed, so that the old process went on.
    pub failed: u64,
    /// The times during which no connection was served.
    pub pause: Durations,
    /// Connections that have moved.
    pub moved: u64,
    /// Connections that the new process could not go on with, and those with more than 256 MiB to move.
    pub refused: u64,
    /// Connections that could not move, by the reason.
    pub staying: Staying,
}

impl Upgrades {
    /// Counts an upgrade, but for its pause.
    pub(super) fn count(&mut self, handed: &HandedOver) {
        self.done += 1;
        self.moved += handed.moved as u64;
        self.refused += handed.refused as u64;
        self.staying.merge(&handed.staying);
    }

    pub(super) fn put(&self, totals: &mut Totals) {
        totals.put("done", self.done);
        totals.put("failed", self.failed);
        totals.put("moved", self.moved);
        totals.put("refused", self.refused);
        for (reason, count) in self.staying.by_reason() {
            totals.put(format!("staying/{reason}"), count as u64);
        }
        self.pause.put_totals("pause", totals);
    }

    pub(super) fn add(&mut self, name: &str, value: u64) {
        match (name, name.split_once('/')) {
            ("done", _) => self.done += value,
            ("failed", _) => self.failed += value,
            ("moved", _) => self.moved += value,
            ("refused", _) => self.refused += value,
            (_, Some(("staying", reason))) => self.staying.add(reason, usize::try_from(value).unwrap_or(usize::MAX)),
            (_, Some(("pause", what))) => self.pause.add_total(what, value),
            _ => {}
        }
    }
}

/// All that goes along with the last word of the old process.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// The upgrades, this one included, but for its pause.
    pub(crate) upgrades: Upgrades,
    /// Reloads of the TLS configuration that were done and that failed.
    pub(crate) reloads: [u64; 2],
    /// The broker's counters, by their names.
    pub(crate) broker: Totals,
    /// Those of the application.
    pub(crate) application: Totals,
    /// The time from the first loop that stopped to the word.
    pub(super) stopped: Duration,
}

impl Legacy {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut totals = Totals::default();
        self.upgrades.put(&mut totals);
        totals.put("reloads/done", self.reloads[0]);
        totals.put("reloads/failed", self.reloads[1]);
        self.broker.iter().for_each(|(name, value)| totals.put(format!("broker/{name}"), value));
        self.application.iter().for_each(|(name, value)| totals.put(format!("application/{name}"), value));
        totals.put("stopped", u64::try_from(self.stopped.as_nanos()).unwrap_or(u64::MAX));
        totals.encode()
    }

    /// Reads what [`encode`](Self::encode) wrote, perhaps that of another build. Without sense it counts nothing, since the
    /// connections go on in any case.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut legacy = Self::default();
        let totals = Totals::decode(bytes).inspect_err(|error| log::warn!("counters of the old process: {error}"));
        for (name, value) in totals.unwrap_or_default().iter() {
            match name {
                "reloads/done" => legacy.reloads[0] += value,
                "reloads/failed" => legacy.reloads[1] += value,
                "stopped" => legacy.stopped = Duration::from_nanos(value),
                name => match name.split_once('/') {
                    Some(("broker", name)) => legacy.broker.put(name, value),
                    Some(("application", name)) => legacy.application.put(name, value),
                    _ => legacy.upgrades.add(name, value),
                },
            }
        }
        legacy
    }
}

#[cfg(test)]
mod tests {
    use super::{Legacy, Upgrades};
    use crate::HandedOver;
    use std::time::Duration;
    use tautline_engine::{Staying, Totals};

    #[test]
    fn counts_go_along_and_add_up() {
        let mut staying = Staying::default();
        staying.add("tls", 3);
        let handed = HandedOver { moved: 10, refused: 2, staying, ..HandedOver::default() };
        let mut upgrades = Upgrades { failed: 1, ..Upgrades::default() };
        upgrades.count(&handed);
        upgrades.count(&handed);
        upgrades.pause.add(Duration::from_millis(70));
        let stopped = Duration::from_micros(1500);
        let mut broker = Totals::default();
        broker.put("passed", 9);
        let mut application = Totals::default();
        application.put("hub/chat:*/publications", 7);
        let legacy = Legacy {
            upgrades: upgrades.clone(),
            reloads: [4, 1],
            broker: broker.clone(),
            application: application.clone(),
            stopped,
        };
        let read = Legacy::decode(&legacy.encode());
        assert_eq!((read.upgrades, read.reloads, read.stopped), (upgrades.clone(), [4, 1], stopped));
        assert_eq!((read.broker, read.application), (broker, application));
        assert_eq!((upgrades.done, upgrades.moved, upgrades.refused, upgrades.staying.tls), (2, 20, 4, 6));
        assert_eq!(upgrades.pause.sum(), Duration::from_millis(70));
    }

    #[test]
    fn words_of_other_builds_count_nothing() {
        let mut totals = Totals::default();
        for name in ["of a later build", "staying/boredom", "pause/never", "reloads/other"] {
            totals.put(name, 7);
        }
        assert_eq!(Legacy::decode(&totals.encode()).upgrades, Upgrades::default());
        assert_eq!(Legacy::decode(b"no totals").upgrades, Upgrades::default());
    }
}
