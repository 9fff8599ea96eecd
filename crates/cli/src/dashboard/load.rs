use super::page::{Chart, Dashboard, DashboardArguments, INTERVAL};
use crate::failure::Failure;
use std::cell::Cell;
use std::time::{Duration, Instant};
use tautline_lab::cpu;
use tautline_lab::load::{Interval, Progress, Server};

/// Live figures of `taut load`; shows nothing without the option.
pub(crate) struct LoadDashboard(Option<Inner>);

struct Inner {
    dashboard: Dashboard,
    /// The server's process, if its CPU time and memory are measured.
    pid: Option<u32>,
    /// Payload bytes of each message, if messages are measured.
    size: Option<usize>,
    open: Cell<usize>,
    shown: Cell<Instant>,
    /// CPU time of this thread and of the server, at the last interval.
    used: Cell<(Duration, Option<Duration>)>,
}

impl LoadDashboard {
    /// Starts the page, if it was asked for. `size` is the payload of the messages.
    pub(crate) fn start(arguments: &DashboardArguments, server: &Server, size: Option<usize>) -> Result<Self, Failure> {
        let Some(prepared) = arguments.prepare(server.target.is_secure())? else { return Ok(Self(None)) };
        let dashboard = Dashboard::start(prepared, format!("taut load {}", server.target.uri))?;
        let used = Cell::new((cpu::thread_time(), server_time(server.pid)));
        Ok(Self(Some(Inner {
            dashboard,
            pid: server.pid,
            size,
            open: Cell::new(0),
            shown: Cell::new(Instant::now()),
            used,
        })))
    }

    /// Shows the progress of the load.
    pub(crate) fn show(&self, progress: Progress) {
        let Some(inner) = &self.0 else { return };
        match progress {
            Progress::Connecting(open, _) => inner.open.set(open),
            Progress::Running(_) => {}
            Progress::Interval(interval) => return inner.dashboard.show(inner.charts(&interval), Vec::new()),
        }
        if inner.shown.get().elapsed() >= INTERVAL {
            inner.dashboard.show(inner.held(), Vec::new());
        }
    }
}

fn server_time(pid: Option<u32>) -> Option<Duration> {
    pid.and_then(|pid| cpu::process_time(pid).ok())
}

impl Inner {
    fn charts(&self, interval: &Interval) -> Vec<Chart> {
        let Interval { seconds, count, latency: [p50, p99, p999, longest] } = *interval;
        let rate = count as f64 / seconds;
        let mut charts =
            vec![Chart::new(if self.size.is_some() { "Messages" } else { "Handshakes" }, "/s", [("completed", rate)])];
        if let Some(size) = self.size {
            charts.push(Chart::new("Transfer in and out", "MB/s", [("payload", rate * size as f64 * 2.0 / 1e6)]));
        }
        let latency = [("p50", p50), ("p99", p99), ("p99.9", p999), ("longest", longest)];
        charts.push(Chart::new("Latency", "µs", latency));
        let (own, server) = (cpu::thread_time(), server_time(self.pid));
        let (earlier_own, earlier_server) = self.used.replace((own, server));
        let share = |now: Duration, earlier: Duration| now.saturating_sub(earlier).as_secs_f64() / seconds;
        let mut used = vec![("load", 100.0 * share(own, earlier_own))];
        if let Some((now, earlier)) = server.zip(earlier_server) {
            used.push(("server", 100.0 * share(now, earlier)));
            let each = share(now, earlier) / rate.max(f64::MIN_POSITIVE) * 1e6;
            let name = if self.size.is_some() { "Server CPU per message" } else { "Server CPU per handshake" };
            charts.extend((count > 0).then(|| Chart::new(name, "µs", [("server", each)])));
        }
        charts.push(Chart::new("CPU", "% of one", used));
        charts.extend(self.held());
        charts
    }

    /// The connections and the server's memory.
    fn held(&self) -> Vec<Chart> {
        self.shown.set(Instant::now());
        let mut charts = Vec::new();
        charts.extend((self.open.get() > 0).then(|| Chart::new("Connections", "", [("open", self.open.get() as f64)])));
        if let Some(resident) = self.pid.and_then(|pid| cpu::resident_memory(pid).ok()) {
            charts.push(Chart::new("Server memory", "MB", [("resident", resident as f64 / 1e6)]));
        }
        charts
    }
}
