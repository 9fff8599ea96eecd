mod input;
mod line;
mod record;

use crate::failure::{Failure, printable};
use crate::output;
use crate::stages;
use crate::target::TargetArguments;
use data_encoding::HEXLOWER;
use input::Source;
use line::Line;
use log::Level;
use record::Recorder;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::fmt::Display;
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};
use tautline::{
    Cause, Client, CloseCode, Closed, Config, Conn, ConnId, ConnectError, DialId, DialTimes, Handler, Message, Opening,
    Reconnect, ServerHandle, ShardHandle, ShardHandleError, SlowConsumer, Tls, TlsInfo,
};
use tautline_lab::{CarrierTls, loops};
use tautline_probe::amount;
use tautline_probe::{certificates, duration};

/// Talk to a WebSocket server: send each input line, and print each received message.
///
/// With -v it prints the negotiated TLS and HTTP values. After the end of the input it waits until no message has arrived for
/// --wait seconds, and closes. Binary messages are printed as hexadecimal digits. SIGINT (Ctrl-C) and SIGTERM close the
/// connection, a second one ends the program at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut connect wss://localhost:8443/              talk to `taut serve`
  taut connect -v wss://example.org/feed          with the negotiated TLS and HTTP values
  echo hello | taut connect --ca ca.pem wss://127.0.0.1:8443/
  echo 48692100 | taut connect --binary wss://localhost:8443/
  taut connect --json wss://example.org/feed | jq .data
  taut connect --reconnect wss://example.org/feed >> feed.log
  taut connect --stages wss://example.org/feed > feed.log
  taut connect --address unix:/run/taut.sock ws://localhost/
  taut connect --message '{\"type\":\"subscribe\"}' --wait 60 --timestamps example.org/feed
  taut connect --raw wss://localhost:8443/ < photo.jpg
  taut connect --ping=1s wss://example.org/feed   with the round trip of each ping
  taut connect --record session.jsonl wss://example.org/feed
  taut connect --replay session.jsonl wss://localhost:8443/
  taut connect --http2 -v wss://localhost:8443/   a WebSocket on an HTTP/2 connection")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Connect by HTTP/2: the WebSocket is a stream (RFC 8441).
    #[arg(help_heading = "Connection", long)]
    http2: bool,
    /// Send each input line as a binary message; the line has its bytes as hexadecimal digits.
    #[arg(short, long)]
    binary: bool,
    /// Send the whole input as one binary message.
    #[arg(help_heading = "Input and output", long, conflicts_with = "binary")]
    raw: bool,
    /// Send this message in place of the input. May be repeated.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "raw")]
    message: Vec<String>,
    /// Write sent and received messages with their times to this file, one JSON object per line.
    #[arg(help_heading = "Input and output", long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Send the messages that a recording has sent, at its pace, in place of the input.
    #[arg(help_heading = "Input and output", long, value_name = "FILE", conflicts_with_all = ["binary", "raw", "message"])]
    replay: Option<PathBuf>,
    /// Send a ping each second, or in this interval, and print its round trip.
    #[arg(help_heading = "Measuring", long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", value_parser = duration)]
    ping: Option<Duration>,
    /// Begin each message with the time at which it came.
    #[arg(help_heading = "Input and output", long)]
    timestamps: bool,
    /// Print one JSON object per line for each event: open, message, close, failed.
    #[arg(long)]
    json: bool,
    /// Connect again after a loss, with increasing waits.
    #[arg(long)]
    reconnect: bool,
    /// Seconds without a message, after the end of the input, until the connection is closed.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    wait: f64,
    /// Longest message accepted. A message that goes on beyond it closes the connection with 1009.
    #[arg(help_heading = "Connection", long, value_name = "BYTES", default_value = "16MiB", value_parser = amount::some_bytes)]
    max_message: usize,
    /// Time received messages from the network card to the application, by stages. With N, only the messages of one read in N
    /// are timed, which costs less. Printed on SIGUSR1 and at the end.
    #[arg(help_heading = "Measuring", long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stages: Option<NonZeroU32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value| (0.0..=1e6).contains(value)).ok_or_else(|| "write seconds, as 0.5".to_owned())
}

/// An event for the main thread, from the loop, the input or a signal.
enum Event {
    Line(Line),
    EndOfInput(Result<(), Failure>),
    Open(ConnId),
    Message,
    Closed(Closed),
    Failed(ConnectError, Option<Duration>),
    OutputGone(Failure),
    Interrupted,
}

pub(crate) fn run(arguments: &Arguments, verbose: bool) -> Result<(), Failure> {
    let mut server = arguments.target.server(None)?;
    server.target.reconnect = arguments.reconnect.then(Reconnect::default);
    server.http2 = arguments.http2.then_some(1);
    let carrier_tls = arguments.http2.then(CarrierTls::default);
    server.carrier_tls.clone_from(&carrier_tls);
    let (target, driver, engine) = server.composed(&server.target, &server.tls)?;
    let mut config = Config::untrusted_internet();
    config.limits.max_message = arguments.max_message;
    // The input waits in its pipe, so the queue needs no bound.
    config.slow_consumer = SlowConsumer::Disconnect(usize::MAX);
    let (sender, events) = channel();
    let source = arguments.source()?;
    let recorder = arguments.record.as_deref().map(Recorder::create).transpose()?;
    let printer = Printer {
        events: sender.clone(),
        verbose,
        json: arguments.json,
        timestamps: arguments.timestamps,
        to_terminal: std::io::stdout().is_terminal(),
        recorder: recorder.clone(),
        ping: arguments.ping,
        pings: 0,
        began: Instant::now(),
        opened: None,
        carrier_tls,
    };
    let client = Client::new(Tls { engine, config: server.tls }).driver(driver);
    let client = client.target(target).config(config);
    let printer = move |_| -> loops::App { Box::new(printer.clone()) };
    let client = arguments.stages.into_iter().fold(client, Client::stages_of_one_read_in);
    let handle = loops::start_client(client, arguments.stages.is_some(), Box::new(printer))?;
    handle_signals(handle.shards().to_vec(), sender.clone())?;
    let (ahead, credit) = sync_channel(LINES_AHEAD);
    let lines = sender.clone();
    let take = move |line| lines.send(Event::Line(line)).is_ok();
    source.read(ahead, take, move |read| drop(sender.send(Event::EndOfInput(read))));
    let flow = FlowControl { credit, owed: 0, sent: 0, gone: 0, base: 0, blind: arguments.target.deflate };
    let result = run_session(&handle, &events, (arguments, recorder.as_ref()), flow);
    stages::print(match result {
        Ok(()) => handle.join_with_stages()?,
        // Messages before the failure count too, if there were any.
        Err(_) => handle.stages().filter(|stages| stages.messages() > 0),
    });
    result
}

impl Arguments {
    fn source(&self) -> Result<Source, Failure> {
        let binary = self.binary;
        if let Some(file) = &self.replay {
            return Ok(Source::recording(record::read(file)?));
        }
        Ok(match (self.raw, &*self.message) {
            (true, _) => Source::Raw,
            (false, []) => Source::Lines { binary },
            (false, messages) => Source::Given { messages: messages.to_vec(), binary },
        })
    }
}

/// Prints stages on SIGUSR1, if they are measured. Closes the connection on SIGINT and SIGTERM; the second ends the program.
fn handle_signals(shards: Vec<ShardHandle>, events: Sender<Event>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        let mut interrupted = false;
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                stages::report(&shards);
            } else if interrupted || events.send(Event::Interrupted).is_err() {
                std::process::exit(128 + signal);
            } else {
                interrupted = true;
            }
        }
    });
    Ok(())
}

/// Lines that are read before the lines ahead of them are sent.
const LINES_AHEAD: usize = 16;

/// Bytes of lines that may be on their way to the kernel.
const WINDOW: u64 = 1 << 20;

/// Time between two looks whether there is room again.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Keeps the input from handle ahead of the connection.
struct FlowControl {
    /// Each item taken from here lets one more line be read.
    credit: Receiver<()>,
    /// Lines that were sent and have not released an item of `credit` yet.
    owed: usize,
    /// Bytes of the lines that were sent on this connection.
    sent: u64,
    /// Bytes of `sent` that were with the kernel at the last look.
    gone: u64,
    /// Bytes that the loop had sent before this connection.
    base: u64,
    /// Whether lines are compressed, so that the loop's counter says nothing about them.
    blind: bool,
}

impl FlowControl {
    /// A connection was opened.
    fn begin(&mut self, handle: &ServerHandle) {
        (self.sent, self.gone, self.base) = (0, 0, bytes_out(handle).unwrap_or(0));
    }

    fn count(&mut self, line: &Line) {
        self.owed += 1;
        self.sent += line.len() as u64;
    }

    /// Releases credit for the lines that were sent, if there is room. True if there is.
    fn update(&mut self, handle: &ServerHandle) -> bool {
        if self.sent - self.gone > WINDOW && !self.blind {
            // The counter includes headers and records, so it runs slightly ahead of the lines.
            let gone = bytes_out(handle).map_or(self.sent, |bytes| bytes.saturating_sub(self.base));
            self.gone = gone.min(self.sent);
        }
        if self.sent - self.gone > WINDOW && !self.blind {
            return false;
        }
        self.credit.try_iter().take(self.owed).for_each(drop);
        self.owed = 0;
        true
    }
}

/// Bytes that the loop gave to the driver; `None` if the loop has stopped.
fn bytes_out(handle: &ServerHandle) -> Option<u64> {
    let shard = handle.shards().first().filter(|shard| shard.is_running())?;
    Some(shard.counters().bytes_out)
}

/// Handles events until the connection has ended for good.
fn run_session(
    handle: &ServerHandle,
    events: &Receiver<Event>,
    (arguments, recorder): (&Arguments, Option<&Recorder>),
    mut flow: FlowControl,
) -> Result<(), Failure> {
    let send = |conn, line: &Line| {
        recorder.map_or(Ok(()), |recorder| recorder.sent(line))?;
        send(handle, conn, line)
    };
    let mut conn = None;
    let mut early: Vec<Line> = Vec::new();
    let mut input_ended = false;
    let mut input = Ok(());
    loop {
        let next = if conn.is_some() && !flow.update(handle) {
            match events.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => continue,
                next => next,
            }
        } else if input_ended && conn.is_some() {
            events.recv_timeout(Duration::from_secs_f64(arguments.wait))
        } else {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(Event::Line(line)) => match conn {
                Some(conn) => {
                    flow.count(&line);
                    send(conn, &line)?;
                }
                None => early.push(line),
            },
            Ok(Event::EndOfInput(read)) => (input_ended, input) = (true, read),
            Ok(Event::Open(id)) => {
                conn = Some(id);
                flow.begin(handle);
                for line in early.drain(..) {
                    flow.count(&line);
                    send(id, &line)?;
                }
            }
            Ok(Event::Message) => {}
            Ok(Event::Closed(closed)) => {
                conn = None;
                if !arguments.reconnect || matches!(closed.cause, Cause::Local) {
                    return ended(&closed).and(input);
                }
                output::note(format_args!("connection lost: {:#}", closed.cause));
            }
            Ok(Event::Failed(error, Some(wait))) => {
                let error = tautline_lab::load::explain(&error).to_string();
                output::note(format_args!("{error}; next attempt in {:.1} s", wait.as_secs_f64()));
            }
            Ok(Event::Failed(error, None)) => {
                if let Some(body) = body(&error).filter(|_| !arguments.json) {
                    output::note(format_args!("{}", printable(&body)));
                }
                return Err(Failure::from(&error));
            }
            Ok(Event::OutputGone(failure)) => {
                handle.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
                return Err(failure);
            }
            Ok(Event::Interrupted) => {
                handle.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                handle.drain(CloseCode::NORMAL, "", Duration::from_secs(5));
                input_ended = false;
            }
            Err(RecvTimeoutError::Disconnected) => return input,
        }
    }
}

fn send(handle: &ServerHandle, conn: ConnId, line: &Line) -> Result<(), Failure> {
    loop {
        match handle.send(conn, line.message()) {
            Err(ShardHandleError::Full | ShardHandleError::TooManyBytes) => std::thread::sleep(POLL_INTERVAL),
            // The reason for a stop is among the events.
            Ok(()) | Err(ShardHandleError::Stopped) => return Ok(()),
            Err(error) => return Err(Failure::failed(error.to_string())),
        }
    }
}

/// The text that a server has sent with its refusal of the upgrade.
fn body(error: &ConnectError) -> Option<String> {
    let body = error.refusal()?.body();
    Some(String::from_utf8_lossy(body).trim_end().to_owned()).filter(|body| !body.is_empty())
}

fn ended(closed: &Closed) -> Result<(), Failure> {
    match closed.cause {
        Cause::Local => Ok(()),
        Cause::Peer if matches!(closed.code.get(), 1000 | 1001 | 1005) => {
            output::note(format_args!("closed by the server ({}{})", closed.code.get(), reason(closed)));
            Ok(())
        }
        _ => Err(Failure::network(format!(
            "connection ended ({}{}): {:#}",
            closed.code.get(),
            reason(closed),
            closed.cause
        ))),
    }
}

fn reason(closed: &Closed) -> String {
    if closed.reason.is_empty() { String::new() } else { format!(" {:?}", closed.reason) }
}

/// The application on the loop's thread, which prints messages.
#[derive(Clone)]
struct Printer {
    events: Sender<Event>,
    verbose: bool,
    json: bool,
    timestamps: bool,
    to_terminal: bool,
    recorder: Option<Recorder>,
    /// The interval of pings.
    ping: Option<Duration>,
    /// The number of pings so far.
    pings: u64,
    began: Instant,
    /// Time of the upgrade, until the first message has told how long it took.
    opened: Option<Instant>,
    /// TLS of the connection that carries the WebSocket over HTTP/2.
    carrier_tls: Option<CarrierTls>,
}

impl Printer {
    /// Prints one line. A pipe gets what the peer sent, a terminal no commands of the peer.
    fn print(&self, line: impl Display) -> bool {
        let printed = if self.to_terminal {
            output::print(format_args!("{}\n", printable(&line.to_string())))
        } else {
            output::print(format_args!("{line}\n"))
        };
        printed.map_err(|failure| self.notify(Event::OutputGone(failure))).is_ok()
    }

    fn print_json(&self, mut event: Value) -> bool {
        if !self.json {
            return true;
        }
        if self.timestamps {
            event["time"] = now().into();
        }
        self.print(event)
    }

    /// Prints a message as a line of its own.
    fn print_message(&self, text: &str) -> bool {
        if self.timestamps { self.print(format_args!("{} {text}", now())) } else { self.print(text) }
    }

    /// Sends a ping with its number and the time, and sets the timer of the next one.
    fn send_ping(&mut self, conn: &mut Conn<'_, ()>) {
        let Some(interval) = self.ping else { return };
        self.pings += 1;
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Only a payload that is too long is an error.
        let _ = conn.ping(&[self.pings.to_be_bytes(), micros.to_be_bytes()].concat());
        conn.set_timer(interval, PING);
    }

    /// Sends an event to the main thread, which ends only with the program.
    fn notify(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// The timer of pings.
const PING: u64 = 1;

fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

impl Handler for Printer {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let carrier = self.carrier_tls.as_ref().map(|tls| tls.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let tls = carrier.as_ref().unwrap_or(opening.tls);
        self.print_json(open_event(conn.peer(), opening, tls));
        if self.verbose {
            self.opened = Some(Instant::now());
            output::report(Level::Info, describe(conn.peer(), opening, tls));
        } else if std::io::stdin().is_terminal() {
            output::note(format_args!("connected to {}", conn.peer()));
        }
        self.notify(Event::Open(conn.id()));
        self.send_ping(conn);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, _id: u64) {
        self.send_ping(conn);
    }

    fn on_pong(&mut self, _conn: &mut Conn<'_, ()>, payload: &[u8]) {
        // The loop has pings of its own, for its deadlines.
        let Some((number, micros)) = payload.split_at_checked(8) else { return };
        let (Ok(number), Ok(micros)) = (number.try_into(), micros.try_into()) else { return };
        let (number, sent) = (u64::from_be_bytes(number), Duration::from_micros(u64::from_be_bytes(micros)));
        if self.ping.is_none() || number > self.pings {
            return;
        }
        let took = self.began.elapsed().saturating_sub(sent);
        if self.json {
            self.print_json(json!({"event": "pong", "number": number, "ms": took.as_secs_f64() * 1e3}));
        } else {
            output::note(format_args!("* ping {number:<6} {}", millis(took)));
        }
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, message: Message<'_>) {
        if let Some(opened) = self.opened.take() {
            output::note(format_args!("* first        message after {}", millis(opened.elapsed())));
        }
        let recorded = self.recorder.as_ref().map_or(Ok(()), |to| to.received(message.text(), message.data()));
        if let Err(failure) = recorded {
            return self.notify(Event::OutputGone(failure));
        }
        let written = match message.text() {
            Some(text) if self.json => self.print_json(json!({"event": "message", "type": "text", "data": text})),
            Some(text) => self.print_message(text),
            None => {
                let hex = HEXLOWER.encode(message.data());
                if self.json {
                    self.print_json(json!({"event": "message", "type": "binary", "hex": hex}))
                } else {
                    self.print_message(&hex)
                }
            }
        };
        if written {
            self.notify(Event::Message);
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        let (code, cause) = (closed.code.get(), format!("{:#}", closed.cause));
        self.print_json(json!({"event": "close", "code": code, "reason": &*closed.reason, "cause": cause}));
        self.notify(Event::Closed(closed.clone()));
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        let (text, retry_s) = (tautline_lab::load::explain(error), retry.map(|retry| retry.as_secs_f64()));
        let mut event = json!({"event": "failed", "error": text, "retry_s": retry_s});
        if let Some(response) = error.refusal() {
            event["status"] = response.status().as_u16().into();
            event["body"] = body(error).into();
        }
        self.print_json(event);
        self.notify(Event::Failed(error.clone(), retry));
    }
}

/// The negotiated values of all layers, one per line.
fn describe(peer: &tautline::Address, opening: &Opening<'_>, tls: &TlsInfo) -> String {
    let mut lines = vec![format!("peer         {peer}")];
    let TlsInfo { version, aead, alpn, resumed, peer_certificates, .. } = tls;
    if version.is_some() {
        lines.push(format!("TLS          {tls}"));
        if !aead.is_empty() {
            lines.push(format!("AEAD         {aead}"));
        }
        let alpn = alpn.as_deref().map_or_else(|| "none".into(), String::from_utf8_lossy);
        lines.push(format!("ALPN         {alpn}"));
        lines.push(format!("session      {}", if *resumed { "resumed" } else { "new" }));
        for der in peer_certificates {
            let one = certificates::describe(der, certificates::now());
            lines.push(format!("certificate  {} ({}, {} B)", one.subject, one.key, der.len()));
            if !one.names.is_empty() {
                lines.push(format!("             for {}", one.names.join(" ")));
            }
            lines.push(format!("             by {} ({})", one.issuer, one.signature));
            lines.push(format!("             valid {} ({} days left)", one.valid, one.days_left));
        }
    }
    if let Some(response) = opening.response {
        lines.push(format!("HTTP         {:?} {}", response.version(), response.status()));
        for (name, value) in response.headers() {
            lines.push(format!("             {name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
    }
    lines.push(format!("subprotocol  {}", opening.subprotocol.unwrap_or("none")));
    lines.push(format!("compression  {}", if opening.deflate { "permessage-deflate" } else { "none" }));
    lines.extend(opening.times.as_ref().map(|times| format!("times        {}", steps(times))));
    lines.iter().map(|line| format!("* {}\n", printable(line))).collect()
}

/// The steps of a connection that took time, in order.
fn steps(times: &DialTimes) -> String {
    let DialTimes { resolve, connect, proxy, tls, upgrade, .. } = *times;
    let steps = [("DNS", resolve), ("TCP", connect), ("proxy", proxy), ("TLS", tls), ("upgrade", upgrade)];
    let needed = steps.into_iter().filter(|(_, time)| !time.is_zero());
    needed.map(|(name, time)| format!("{name} {}", millis(time))).collect::<Vec<_>>().join(", ")
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// The negotiated values of all layers, for programs.
fn open_event(peer: &tautline::Address, opening: &Opening<'_>, tls: &TlsInfo) -> Value {
    let TlsInfo { version, suite, group, alpn, resumed, peer_certificates, .. } = tls;
    let tls = json!({
        "version": version.map(|version| version.to_string()),
        "suite": suite.map(|suite| suite.to_string()),
        "group": group.map(|group| group.to_string()),
        "resumed": resumed,
        "alpn": alpn.as_deref().map(String::from_utf8_lossy),
        "certificate_bytes": peer_certificates.iter().map(Vec::len).collect::<Vec<_>>(),
    });
    let headers = |response: &tautline::http::Response<()>| {
        let pair = |(name, value): (&tautline::http::HeaderName, &tautline::http::HeaderValue)| {
            json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])
        };
        response.headers().iter().map(pair).collect::<Vec<_>>()
    };
    json!({
        "event": "open", "peer": peer.to_string(), "tls": version.map(|_| tls),
        "status": opening.response.map(|response| response.status().as_u16()),
        "headers": opening.response.map(headers),
        "subprotocol": opening.subprotocol, "deflate": opening.deflate,
        "times_ms": opening.times.map(|DialTimes { resolve, connect, proxy, tls, upgrade, .. }| {
            let [dns, tcp, proxy, tls, upgrade] =
                [resolve, connect, proxy, tls, upgrade].map(|time| time.as_secs_f64() * 1e3);
            json!({"dns": dns, "tcp": tcp, "proxy": proxy, "tls": tls, "upgrade": upgrade})
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bounded_and_positive() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for bad in ["-1", "NaN", "inf", "soon"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_connections_are_described_without_tls() {
        let tls = TlsInfo::default();
        let mut opening = Opening::new(&tls);
        opening.subprotocol = Some("chat");
        let text = describe(&"127.0.0.1:1".parse().unwrap(), &opening, &tls);
        assert_eq!(text, "* peer         127.0.0.1:1\n* subprotocol  chat\n* compression  none\n");
    }

    #[test]
    fn close_codes_decide_the_exit_code() {
        let closed = |code, cause| Closed::new(CloseCode::new(code), cause);
        assert!(ended(&closed(1000, Cause::Peer)).is_ok());
        assert!(ended(&closed(1011, Cause::Peer)).is_err());
        assert!(ended(&closed(1000, Cause::Truncated)).is_err());
    }
}
