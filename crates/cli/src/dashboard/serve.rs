use super::page::{Chart, Dashboard, INTERVAL, Prepared, Table};
use crate::failure::Failure;
use std::thread;
use std::time::{Duration, Instant};
use tautline::{Counters, ShardHandle, Stage, Stages};
use tautline_lab::cpu;

/// Makes the tables of the time since its last call, which was so many seconds ago.
pub(crate) type MakeTables = Box<dyn FnMut(f64) -> Vec<Table> + Send>;

/// Serves live figures of a server until the loops of `shards` have ended.
pub(crate) fn show_server(
    page: Prepared,
    title: String,
    shards: Vec<ShardHandle>,
    mut tables: MakeTables,
) -> Result<(), Failure> {
    let dashboard = Dashboard::start(page, title)?;
    thread::spawn(move || {
        let mut earlier = Sample::of(&shards);
        while shards.iter().any(ShardHandle::is_running) {
            thread::sleep(INTERVAL);
            let now = Sample::of(&shards);
            dashboard.show(now.charts(&earlier), tables((now.at - earlier.at).as_secs_f64()));
            earlier = now;
        }
    });
    Ok(())
}

/// The state of a server.
struct Sample {
    at: Instant,
    counters: Counters,
    stages: Option<Box<Stages>>,
    used: Option<Duration>,
    resident: Option<u64>,
}

impl Sample {
    fn of(shards: &[ShardHandle]) -> Self {
        let mut counters = Counters::default();
        shards.iter().for_each(|shard| counters.merge(&shard.counters()));
        let id = std::process::id();
        Self {
            at: Instant::now(),
            counters,
            stages: crate::stages::merged(shards),
            used: cpu::process_time(id).ok(),
            resident: cpu::resident_memory(id).ok(),
        }
    }

    /// The charts of the time since `earlier`.
    fn charts(&self, earlier: &Self) -> Vec<Chart> {
        let seconds = (self.at - earlier.at).as_secs_f64();
        let rate = |value: fn(&Counters) -> u64| {
            value(&self.counters).saturating_sub(value(&earlier.counters)) as f64 / seconds
        };
        let counters = &self.counters;
        let mut charts = vec![
            Chart::new(
                "Messages",
                "/s",
                [
                    ("received", rate(|counters| counters.messages_in)),
                    ("sent", rate(|counters| counters.messages_out)),
                    ("dropped", rate(|counters| counters.messages_dropped)),
                ],
            ),
            Chart::new(
                "Bytes on the wire",
                "MB/s",
                [
                    ("received", rate(|counters| counters.bytes_in) / 1e6),
                    ("sent", rate(|counters| counters.bytes_out) / 1e6),
                ],
            ),
            Chart::new(
                "Connections",
                "",
                [
                    ("WebSocket", counters.open as f64),
                    ("handshaking", counters.handshaking as f64),
                    ("plain HTTP", counters.http as f64),
                ],
            ),
            Chart::new(
                "Handshakes",
                "/s",
                [
                    ("completed", rate(|counters| counters.opened)),
                    ("resumed", rate(|counters| counters.resumed)),
                    ("failed", rate(|counters| counters.handshakes_failed)),
                ],
            ),
        ];
        charts.extend(self.stages(earlier));
        if let Some((now, earlier)) = self.used.zip(earlier.used) {
            let share = now.saturating_sub(earlier).as_secs_f64() / seconds;
            charts.push(Chart::new("CPU", "% of one", [("this process", 100.0 * share)]));
        }
        let mut memory: Vec<(&'static str, f64)> =
            self.resident.map(|resident| ("resident", resident as f64 / 1e6)).into_iter().collect();
        memory.extend([
            ("connections", counters.memory_connections as f64 / 1e6),
            ("queued", (counters.memory_queued + counters.memory_published) as f64 / 1e6),
            ("unsent", counters.memory_sending as f64 / 1e6),
            ("partial", (counters.memory_partial + counters.memory_heads) as f64 / 1e6),
        ]);
        charts.push(Chart::new("Memory", "MB", memory));
        charts
    }

    /// The stages of received messages, if they are measured and any came.
    fn stages(&self, earlier: &Self) -> Vec<Chart> {
        let Some((now, earlier)) = self.stages.as_ref().zip(earlier.stages.as_ref()) else { return Vec::new() };
        let interval = now.since(earlier);
        let parts = [Stage::Nic, Stage::Loop, Stage::Read, Stage::Tls, Stage::Parse, Stage::Callback];
        let parts: Vec<_> = parts
            .into_iter()
            .map(|stage| (stage, interval.spread(stage)))
            .filter(|(_, spread)| spread.count > 0)
            .map(|(stage, spread)| (stage.name(), spread.p50))
            .collect();
        if parts.is_empty() {
            return Vec::new();
        }
        // Arrival is unknown for some drivers and sockets.
        let total = interval.spread(Stage::Total);
        let (name, spread) = if total.count > 0 {
            ("From the network to the handler", total)
        } else {
            ("From waking up to the handler", interval.spread(Stage::App))
        };
        let latency = [("p50", spread.p50), ("p99", spread.p99), ("p99.9", spread.p999), ("longest", spread.max)];
        vec![Chart::new(name, "µs", latency), Chart::new("Stages of a message, median", "µs", parts)]
    }
}
