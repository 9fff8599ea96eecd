mod shape;
mod threshold;

use crate::dashboard::{DashboardArguments, LoadDashboard};
use crate::failure::{Failure, one_line};
use crate::output;
use crate::progress::Progress;
use crate::target::TargetArguments;
use shape::{Shape, ShapeArguments};
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;
use tautline_lab::load::Template;
use tautline_lab::load::crowd::{self, Crowd};
use tautline_lab::load::{
    Broadcast, Echo, Errors, Handshakes, Idle, IdleMemory, Listeners, Progress as Stage, Server, Traffic, Watch,
};
use tautline_lab::table::{bytes, number};
use tautline_lab::{Case, Content, Line, Machine, Measured, Metric, Protocol, Span, cpu, write_json};
use tautline_probe::amount;
use threshold::{Figures, Threshold};

/// Load a WebSocket server and measure it.
///
/// One thread holds all connections, and compares every reply with its message, byte for byte. Errors are counted by kind, and
/// reported with the figures. The default is a closed loop:
/// each reply is followed by the next message. --rate is an open loop: messages leave on schedule. Latency then counts from the
/// scheduled time, so that a stall counts for every message that it delays.
///
/// The report has the load's own CPU use. If that was the bottleneck, the server's CPU time per message is still valid.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut load wss://127.0.0.1:8443/                          100 connections, 64 B, at full speed
  taut load wss://127.0.0.1:8443/ --server-pid $(pgrep -x taut)
  taut load ws://127.0.0.1:8080/ --size 16384 --pipeline 8
  taut load wss://127.0.0.1:8443/ --rate 20000 --duration 10
  taut load wss://127.0.0.1:8443/ --handshakes --connections 16
  taut load wss://127.0.0.1:8443/ --broadcast --connections 1000
  taut load wss://127.0.0.1:8443/ --idle --connections 10000 --server-pid PID
  taut load wss://127.0.0.1:8443/ --idle --connections 1000000
  taut load wss://127.0.0.1:8443/ --http2 --streams 10     100 WebSockets on 10 connections
  taut load ws://127.0.0.1:8080/ --ramp 10s --think 100ms-1s --slo p99=50ms --slo errors=0.1%
  taut load ws://127.0.0.1:8080/ --stage 1000:30s --stage 1000:2m --stage 0:10s
  taut load ws://127.0.0.1:8080/ --payload '{\"id\":{{message}},\"user\":\"{{value}}\"}' --values users.txt --any-reply
  taut load ws://127.0.0.1:8080/ --subscribe '{\"type\":\"subscribe\",\"topic\":\"room{{connection}}\"}'")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Concurrent connections.
    #[arg(short, long, value_name = "N", default_value_t = 100, value_parser = amount::count)]
    connections: usize,
    /// Payload bytes per message.
    #[arg(short, long, value_name = "BYTES", default_value_t = 64, value_parser = size)]
    size: usize,
    /// Messages in flight per connection.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = amount::count)]
    pipeline: usize,
    /// Messages per second over all connections, in an open loop.
    #[arg(short, long, value_name = "R", conflicts_with = "pipeline", value_parser = rate)]
    rate: Option<f64>,
    /// Seconds to measure.
    #[arg(short, long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    duration: Duration,
    /// Seconds to run before measuring.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds, conflicts_with_all = ["idle", "stage"])]
    warmup: Duration,
    /// Measure connecting, upgrading and closing instead: full handshakes, then resumed ones.
    #[arg(long, conflicts_with_all = ["rate", "pipeline", "size"])]
    handshakes: bool,
    /// Let the server send each message to all connections instead (`taut serve --app broadcast`). One connection publishes: its
    /// next message follows when all connections have received the last.
    #[arg(long, conflicts_with_all = ["rate", "handshakes"])]
    broadcast: bool,
    /// Hold idle connections instead, and measure the server's memory.
    #[arg(long, conflicts_with_all = ["rate", "pipeline", "size", "handshakes", "broadcast"])]
    idle: bool,
    /// With --idle: address of this machine that connections come from. May be repeated: each has ports for tens of thousands.
    /// Default for very many connections to a loopback address: addresses of 127/8.
    #[arg(long, value_name = "IP", requires = "idle")]
    source: Vec<IpAddr>,
    /// Connect by HTTP/2: each connection is a stream of one that others share (RFC 8441).
    #[arg(long, conflicts_with = "handshakes")]
    http2: bool,
    /// With --http2: streams on each HTTP/2 connection. Servers take about 100 at once.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", value_parser = amount::count)]
    streams: usize,
    #[command(flatten)]
    shape: ShapeArguments,
    #[command(flatten)]
    dashboard: DashboardArguments,
    /// Server process on this machine, whose CPU time and memory are measured.
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Run on this CPU only.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Print JSON: the machine, then one result per line.
    #[arg(long)]
    json: bool,
}

/// Longest payload. Every message and its reply are in memory.
const LARGEST: usize = 256 << 20;

fn size(text: &str) -> Result<usize, String> {
    let bytes = amount::bytes(text)?;
    if bytes <= LARGEST { Ok(bytes) } else { Err(format!("at most {LARGEST} bytes")) }
}

fn rate(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| *value > 0.0 && *value <= 1e9);
    value.ok_or_else(|| "write messages per second above 0, as 20000".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| (0.0..=86_400.0).contains(value));
    value.map(Duration::from_secs_f64).ok_or_else(|| "write seconds up to a day, as 2.5".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.duration.is_zero() && !arguments.idle {
        return Err(Failure::usage("--duration must be above 0"));
    }
    let shape = arguments.shape.read()?;
    let subscribes = !shape.subscriptions.is_empty();
    for threshold in &arguments.shape.slo {
        let load = if arguments.idle { "--idle" } else { "--subscribe" };
        let has_no_latency = threshold.is_about_latency() && (arguments.idle || subscribes);
        if has_no_latency || threshold.is_about_rate() && arguments.idle {
            return Err(Failure::usage(format!("--slo {threshold}: a load with {load} has no such figure")));
        }
    }
    let _pinned = arguments.cpu.map(cpu::Pinned::to).transpose()?;
    let mut server = arguments.target.server(arguments.server_pid)?;
    server.http2 = arguments.http2.then_some(arguments.streams);
    // An error before anything is shown.
    server.composed(&server.target, &server.tls)?;
    let protocol = if server.target.is_secure() { Protocol::Wss } else { Protocol::Ws };
    let setup = server.http2.map(|streams| format!("http2, streams={streams}"));
    let case =
        Case { protocol: Some(protocol), connections: Some(arguments.connections as u64), setup, ..Case::default() };
    let has_messages = !(arguments.idle || arguments.handshakes);
    let live = LoadDashboard::start(&arguments.dashboard, &server, has_messages.then_some(arguments.size))?;
    let load = Load { arguments, url: server.target.uri.to_string(), case, live };
    let report = if arguments.idle {
        load.idle(server)?
    } else if arguments.handshakes {
        load.handshakes(&server)?
    } else if arguments.broadcast {
        load.broadcast(server)?
    } else if shape.subscriptions.is_empty() {
        load.traffic(shape, server)?
    } else {
        load.listeners(shape, server)?
    };
    report.print(arguments.json)?;
    report.verdict.map_or(Ok(()), Err)
}

/// The connections of HTTP/2 on which those of a load are streams, for its report.
fn on_carriers(arguments: &Arguments) -> String {
    if !arguments.http2 {
        return String::new();
    }
    format!(" as streams of {} over HTTP/2", arguments.connections.div_ceil(arguments.streams))
}

/// A run of a load.
struct Load<'a> {
    arguments: &'a Arguments,
    url: String,
    case: Case,
    live: LoadDashboard,
}

/// The output: text for people, lines for programs.
#[derive(Default)]
struct Report {
    text: String,
    lines: Vec<Line>,
    warnings: Vec<String>,
    /// The failure after the figures.
    verdict: Option<Failure>,
}

impl Report {
    fn add(&mut self, case: &Case, metrics: &[(Metric, f64)]) {
        self.lines.extend(metrics.iter().filter_map(|&(metric, value)| Line::new("load", case, metric, &[value])));
    }

    fn add_errors(&mut self, case: &Case, errors: &Errors) {
        for (kind, count, first) in errors.kinds() {
            self.text += &format!("  errors      {count} {kind}: {}\n", one_line(first));
            let case = Case { setup: Some(kind.to_owned()), ..case.clone() };
            self.add(&case, &[(Metric::Errors, count as f64)]);
        }
    }

    /// Adds the percentiles of the latency that were asked for.
    fn add_percentiles(&mut self, arguments: &Arguments, case: &Case, measured: &Measured) {
        let percentiles = &arguments.shape.percentiles;
        for percentile in percentiles.iter().filter(|_| measured.count > 0) {
            let setup = and(case.setup.as_deref(), Some(format!("p{percentile}")));
            let case = Case { setup, ..case.clone() };
            self.add(&case, &[(Metric::Latency, measured.latencies.quantile_us(percentile / 100.0))]);
        }
    }

    /// Adds the errors by kind. They and missed thresholds make the run a failure.
    fn judge(&mut self, arguments: &Arguments, case: &Case, measured: &Measured, errors: &Errors) {
        self.add_errors(case, errors);
        let quantile_us = |share| measured.latencies.quantile_us(share);
        let (count, rate, errors_in_all) = (measured.count, measured.rate(), errors.total());
        let figures = Figures { count, rate, errors: errors_in_all, quantile_us: &quantile_us };
        self.compare(arguments, &figures, errors);
    }

    /// Compares figures with the thresholds. The first part of a run that misses one decides the verdict.
    fn compare(&mut self, arguments: &Arguments, figures: &Figures<'_>, errors: &Errors) {
        let slo = &arguments.shape.slo;
        let missed: Vec<String> = slo.iter().filter_map(|slo| slo.missed(figures)).collect();
        let verdict = if !missed.is_empty() {
            Some(format!("missed {}", missed.join("; ")))
        } else if errors.total() > 0 && !slo.iter().any(Threshold::is_about_errors) {
            let (kind, _, first) = errors.kinds().max_by_key(|(_, count, _)| *count).unwrap_or_default();
            Some(format!("{} errors, most of them {kind}: {}", errors.total(), one_line(first)))
        } else {
            None
        };
        self.verdict = self.verdict.take().or_else(|| verdict.map(Failure::failed));
    }

    /// Adds the time in which connections that are held were opened, and the server's memory for each.
    fn add_memory(&mut self, case: &Case, memory: &IdleMemory) {
        let (seconds, each) = (memory.opening.as_secs_f64(), memory.rss_per_connection());
        let rate = memory.connections as f64 / seconds;
        self.add(case, &[(Metric::Opened, rate)]);
        self.add(case, &each.map(|each| (Metric::RssPerConnection, each)).into_iter().collect::<Vec<_>>());
        self.text += &format!("  opened in   {seconds:.1} s, {} /s\n", number(rate));
        match (memory.resident, each) {
            (Some((before, after)), Some(each)) => {
                self.text += &format!("  server RSS  {} before, {} with them\n", bytes(before), bytes(after));
                self.text += &format!("  that is     {} B per connection\n", number(each));
            }
            _ => self.text += "  server RSS  not measured: pass --server-pid\n",
        }
    }

    /// Adds the errors of connections that were held, which have neither messages nor latencies.
    fn judge_idle(&mut self, arguments: &Arguments, case: &Case, held: usize, errors: &Errors) {
        self.add_errors(case, errors);
        let figures = Figures { count: held as u64, rate: 0.0, errors: errors.total(), quantile_us: &|_| 0.0 };
        self.compare(arguments, &figures, errors);
    }

    fn print(&self, json: bool) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let written = if json {
            write_json(&mut out, &Machine::here(), &self.lines)
        } else {
            out.write_all(self.text.as_bytes())
        };
        for warning in &self.warnings {
            output::note(format_args!("taut: {warning}"));
        }
        written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }

    /// Adds the CPU use of both sides, and a warning if the load was the bottleneck.
    fn add_cpu(&mut self, measured: &Measured, each: &str) {
        if let (Some(us), Some(share)) = (measured.server_cpu_each_us(), measured.server_share()) {
            self.text += &format!("  server CPU  {} us/{each}, {:.0} % of a CPU\n", number(us), share * 100.0);
        }
        self.text += &format!("  load CPU    {:.0} % of a CPU\n", measured.own_share() * 100.0);
        self.warnings.extend(measured.warning());
    }
}

impl Load<'_> {
    /// Runs a load while its progress is shown.
    fn watched<T>(&self, run: impl FnOnce(Watch<'_>) -> T) -> T {
        let progress = Progress::new();
        run(&mut |stage| {
            self.live.show(stage);
            match stage {
                Stage::Connecting(open, count) => progress.show(0.0, &format!("connecting: {open} of {count}")),
                Stage::Running(share) => progress.show(share, "running"),
                Stage::Interval(_) => {}
            }
        })
    }

    fn traffic(&self, shape: Shape, server: Server) -> Result<Report, Failure> {
        let Self { arguments, url, case, .. } = self;
        let Arguments { connections, pipeline, rate, warmup, duration, .. } = **arguments;
        let size = shape.template.as_ref().map_or(arguments.size, Template::typical_len);
        let span = Span { warmup, duration };
        let loops = match (rate, &*shape.stages) {
            (_, stages @ [_, ..]) => format!("{} stages", stages.len()),
            (Some(rate), []) => format!("{} msg/s scheduled", number(rate)),
            (None, []) => format!("{pipeline} in flight on each"),
        };
        let is_scheduled = rate.is_some() || !shape.stages.is_empty();
        let setup = if shape.stages.is_empty() { rate.map(|rate| format!("rate={rate}")) } else { Some(loops.clone()) };
        let echo = Echo { server, connections, size, content: Content::Bytes, pipeline, rate, span };
        let Shape { ramp, stages, think, template, takes_any_reply, .. } = shape;
        let traffic = Traffic { echo, ramp, stages, think, template, takes_any_reply };
        let (measured, errors) = self.watched(|watch| traffic.run(watch))?;
        let case = Case {
            size: Some(size as u64),
            pipeline: (!is_scheduled).then_some(pipeline as u64),
            setup: and(case.setup.as_deref(), setup),
            ..case.clone()
        };
        let mut report = Report::default();
        report.add(&case, &measured.message_metrics(size));
        report.add_percentiles(arguments, &case, &measured);
        let over = on_carriers(arguments);
        report.text = format!("{url}: {connections} connections{over}, {}, {loops}\n", bytes(size as u64));
        let transfer = measured.rate() * size as f64 * 2.0 / 1e6;
        report.text +=
            &format!("  throughput  {} msg/s, {} MB/s in and out\n", number(measured.rate()), number(transfer));
        let from = if is_scheduled { "from the scheduled time" } else { "from sending" };
        report.text += &latency(&measured, arguments, from);
        report.add_cpu(&measured, "msg");
        report.judge(arguments, &case, &measured, &errors);
        Ok(report)
    }

    /// Connections that subscribe, and then only receive.
    fn listeners(&self, shape: Shape, server: Server) -> Result<Report, Failure> {
        let Self { arguments, url, case, .. } = self;
        let Arguments { connections, warmup, duration, .. } = **arguments;
        let Shape { ramp, subscriptions, .. } = shape;
        let count = subscriptions.len();
        let listeners = Listeners { server, connections, ramp, subscriptions, span: Span { warmup, duration } };
        let received = self.watched(|watch| listeners.run(watch))?;
        let (measured, payload) = (received.measured, received.payload);
        let setup = and(case.setup.as_deref(), Some(format!("subscriptions={count}")));
        let case = Case { setup, ..case.clone() };
        let mut report = Report::default();
        let transfer = payload as f64 / measured.elapsed.as_secs_f64() / 1e6;
        report.add(&case, &[(Metric::Throughput, measured.rate()), (Metric::Transfer, transfer)]);
        report.text = format!("{url}: {connections} connections, {count} subscriptions on each\n");
        report.text += &format!("  received    {} msg/s, {} MB/s\n", number(measured.rate()), number(transfer));
        report.add_cpu(&measured, "msg");
        report.judge(arguments, &case, &measured, &received.errors);
        Ok(report)
    }

    fn broadcast(&self, server: Server) -> Result<Report, Failure> {
        let Self { arguments, url, case, .. } = self;
        let Arguments { connections: subscribers, size, pipeline, warmup, duration, .. } = **arguments;
        let broadcast = Broadcast { server, subscribers, size, pipeline, span: Span { warmup, duration } };
        let (measured, errors) = self.watched(|watch| broadcast.run_counting(watch))?;
        let case = Case {
            subscribers: Some(subscribers as u64),
            connections: None,
            size: Some(size as u64),
            pipeline: Some(pipeline as u64),
            ..case.clone()
        };
        let mut report = Report::default();
        report.add(&case, &measured.message_metrics(size));
        report.add_percentiles(arguments, &case, &measured);
        report.text = format!("{url}: {subscribers} subscribers, {}, {pipeline} in flight\n", bytes(size as u64));
        report.text += &format!("  deliveries  {} /s\n", number(measured.rate()));
        report.text += &latency(&measured, arguments, "from publishing to each delivery");
        report.add_cpu(&measured, "delivery");
        report.judge(arguments, &case, &measured, &errors);
        Ok(report)
    }

    fn handshakes(&self, server: &Server) -> Result<Report, Failure> {
        let Self { arguments, url, case, .. } = self;
        let Arguments { connections: at_once, warmup, duration, .. } = **arguments;
        let mut report = Report { text: format!("{url}: {at_once} at a time\n"), ..Report::default() };
        // Without TLS there is nothing to resume.
        let kinds: &[bool] = if server.target.is_secure() { &[false, true] } else { &[false] };
        for &resumed in kinds {
            let span = Span { warmup, duration };
            let handshakes =
                Handshakes { server: server.clone(), at_once, resumed, may_refuse: false, rate: None, span };
            let (counts, errors) = match self.watched(|watch| handshakes.run_counting(watch)) {
                // The figures of full handshakes stay, although no resumed one succeeded.
                Err(error) if !report.lines.is_empty() => {
                    report.verdict = report.verdict.or_else(|| Some(error.into()));
                    break;
                }
                run => run?,
            };
            let measured = &counts.measured;
            let name = match (server.target.is_secure(), resumed) {
                (false, _) => "plain",
                (true, false) => "full",
                (true, true) => "resumed",
            };
            report.text += &format!("{name} handshakes\n  rate        {} /s\n", number(measured.rate()));
            report.text += &latency(measured, arguments, "from connecting until open");
            report.add_cpu(measured, "handshake");
            if resumed && counts.resumed < measured.count {
                let (count, full) = (measured.count, measured.count - counts.resumed);
                report.warnings.push(format!("{full} of {count} handshakes were full: the server did not resume them"));
            }
            let case = Case { resumed: server.target.is_secure().then_some(resumed), ..case.clone() };
            report.add(&case, &measured.handshake_metrics());
            report.add_percentiles(arguments, &case, measured);
            report.judge(arguments, &case, measured, &errors);
        }
        Ok(report)
    }

    fn idle(&self, server: Server) -> Result<Report, Failure> {
        let Arguments { connections, duration, .. } = *self.arguments;
        let per_thread = crowd::room()?;
        if connections > per_thread || !self.arguments.source.is_empty() {
            return self.idle_crowd(server, per_thread);
        }
        let idle = Idle { server, connections, duration, echo: false };
        let (memory, errors) = self.watched(|watch| idle.run_counting(watch))?;
        let held = memory.connections;
        let text = format!("{}: {held} idle connections held for {:.1} s\n", self.url, duration.as_secs_f64());
        let mut report = Report { text, ..Report::default() };
        report.add_memory(&self.case, &memory);
        report.judge_idle(self.arguments, &self.case, held, &errors);
        Ok(report)
    }

    /// Idle connections of several threads, each with a table of descriptors and a source address of its own.
    fn idle_crowd(&self, server: Server, per_thread: usize) -> Result<Report, Failure> {
        let Arguments { connections, duration, .. } = *self.arguments;
        let pid = server.pid;
        let resident = || pid.map(cpu::resident_memory).transpose();
        let (sources, own) = (self.arguments.source.clone(), crate::sys::own_descriptors());
        let mut crowd = Crowd { server, connections, per_thread, sources, own }.start()?;
        let first = crowd.threads().min(connections - 1);
        let (memory, errors, open) = self.watched(|watch| -> Result<_, Failure> {
            crowd.open(first, watch)?;
            let before = resident()?;
            crowd.count_errors()?;
            let opening = crowd.open(connections, watch)?;
            crowd.hold(duration, watch)?;
            let after = resident()?;
            let (errors, open) = crowd.errors()?;
            let connections = open.saturating_sub(first);
            Ok((IdleMemory { connections, opening, resident: before.zip(after), echoed: None }, errors, open))
        })?;
        let (url, threads, seconds) = (&self.url, crowd.threads(), duration.as_secs_f64());
        let text = format!("{url}: {open} idle connections of {threads} threads held for {seconds:.1} s\n");
        let mut report = Report { text, ..Report::default() };
        report.add_memory(&self.case, &memory);
        report.judge_idle(self.arguments, &self.case, open, &errors);
        Ok(report)
    }
}

/// The setup of a load: its way to the server, and its own part.
fn and(way: Option<&str>, own: Option<String>) -> Option<String> {
    match (way, own) {
        (Some(way), Some(own)) => Some(format!("{way}, {own}")),
        (way, own) => own.or_else(|| way.map(str::to_owned)),
    }
}

fn latency(measured: &Measured, arguments: &Arguments, what: &str) -> String {
    let percentiles: &[f64] = match &*arguments.shape.percentiles {
        [] => &[50.0, 99.0, 99.9],
        chosen => chosen,
    };
    let shown = percentiles
        .iter()
        .map(|percentile| format!("p{percentile} {} us", number(measured.latencies.quantile_us(percentile / 100.0))));
    format!("  latency     {}, {what}\n", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        for bad in ["-1", "NaN", "1e9", "5s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
