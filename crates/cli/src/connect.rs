use crate::failure::Failure;
use crate::stages;
use crate::target::TargetArguments;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::io::{BufRead, IsTerminal, Write};
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use tautline::{
    Cause, Client, CloseCode, Closed, Config, Conn, ConnId, ConnectError, DialId, Facts, Handler, Message, Opening,
    Outgoing, Reconnect, Remote, RemoteError, Running, SlowConsumer,
};

/// Talk to a WebSocket server: each line typed is sent, each message received is printed.
///
/// With -v it says what TLS and HTTP agreed on. The end of the input closes the connection once nothing has come for
/// --wait seconds. Binary messages are printed as hexadecimal digits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut connect wss://localhost:8443/              talk to `taut serve`
  taut connect -v wss://example.org/feed          with what TLS agreed on
  echo hello | taut connect --ca ca.pem wss://127.0.0.1:8443/
  taut connect --reconnect wss://example.org/feed >> feed.log
  taut connect --stages wss://example.org/feed > feed.log
  taut connect --address unix:/run/taut.sock ws://localhost/")]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Connect again after a loss, with growing waits.
    #[arg(long)]
    reconnect: bool,
    /// Seconds of silence after the end of the input until the connection is closed.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    wait: f64,
    /// Longest message accepted, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max_message: usize,
    /// Take the time of each message received, from the network card to the application, or with N of the messages of one
    /// read in N, which costs less. Told on SIGUSR1 and in the end, which SIGINT brings about.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    stages: Option<NonZeroU32>,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value| (0.0..=1e6).contains(value)).ok_or_else(|| "write seconds, as 0.5".to_owned())
}

/// What the main thread hears from the loop and from the keyboard.
enum News {
    Line(String),
    EndOfInput,
    Open(ConnId),
    Heard,
    Closed(Closed),
    Failed(ConnectError, Option<Duration>),
    OutputGone,
    Interrupted,
}

pub(crate) fn run(arguments: &Arguments, verbose: bool) -> Result<(), Failure> {
    let mut server = arguments.target.server(None)?;
    server.target.reconnect = arguments.reconnect.then(Reconnect::default);
    let mut config = Config::untrusted_internet();
    config.limits.max_message = arguments.max_message;
    // What is piped in waits, and stays in the pipe.
    config.slow_consumer = SlowConsumer::Disconnect(usize::MAX);
    let (sender, news) = channel();
    let handler_news = sender.clone();
    let client = Client::new(server.engine.client(server.tls)).way(server.way);
    let client = client.target(server.target).config(config);
    let printer = move |_| Printer { news: handler_news.clone(), verbose };
    let running = if let Some(every) = arguments.stages {
        let running = client.stages_of_one_read_in(every).start_with_stages(printer)?;
        obey_signals(running.remotes().to_vec(), sender.clone())?;
        running
    } else {
        client.start(printer)?
    };
    let (ahead, credit) = sync_channel(LINES);
    read_lines(sender, ahead);
    let pace = Pace { credit, owed: 0, sent: 0, gone: 0, base: 0, blind: arguments.target.deflate };
    let result = talk(&running, &news, arguments, pace);
    stages::tell_all(match result {
        Ok(()) => running.join_with_stages()?,
        // What came before it was lost counts too, if anything did.
        Err(_) => running.stages().filter(|stages| stages.messages() > 0),
    });
    result
}

/// SIGUSR1 tells stages, SIGINT and SIGTERM close the connection.
fn obey_signals(remotes: Vec<Remote>, news: Sender<News>) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])
        .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGUSR1 {
                stages::tell(&remotes);
            } else if news.send(News::Interrupted).is_err() {
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

/// Reads the input on a thread of its own, which may wait for ever: for the input, and where it is [`LINES`] ahead.
fn read_lines(news: Sender<News>, ahead: SyncSender<()>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    eprintln!("taut: cannot read the input: {error}");
                    break;
                }
            };
            if ahead.send(()).is_err() || news.send(News::Line(line)).is_err() {
                return;
            }
        }
        let _ = news.send(News::EndOfInput);
    });
}

/// Lines that are read ahead of those that were sent.
const LINES: usize = 16;

/// Bytes of lines that may be on their way.
const WINDOW: u64 = 1 << 20;

/// How often is looked whether there is room again.
const LOOK: Duration = Duration::from_millis(1);

/// Keeps the input from running ahead of the connection.
struct Pace {
    /// Every line that is taken from here lets another be read.
    credit: Receiver<()>,
    /// Lines that were sent and let none be read yet.
    owed: usize,
    /// Bytes of lines on this connection, and how many at least were with the kernel when that was last asked.
    sent: u64,
    gone: u64,
    /// What the loop had sent before.
    base: u64,
    /// Bytes sent say nothing of lines, which are compressed.
    blind: bool,
}

impl Pace {
    fn begin(&mut self, running: &Running) {
        (self.sent, self.gone, self.base) = (0, 0, bytes_out(running).unwrap_or(0));
    }

    fn count(&mut self, line: &str) {
        self.owed += 1;
        self.sent += line.len() as u64;
    }

    /// Lets lines be read for those that were sent, once there is room. Says whether it has.
    fn settle(&mut self, running: &Running) -> bool {
        if self.sent - self.gone > WINDOW && !self.blind {
            // Headers and records come on top, so lines are gone a little earlier than this says.
            let gone = bytes_out(running).map_or(self.sent, |bytes| bytes.saturating_sub(self.base));
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

/// `None` where the loop has stopped.
fn bytes_out(running: &Running) -> Option<u64> {
    running.remotes().first()?.counters().ok().map(|counters| counters.bytes_out)
}

/// Until the connection has ended for good.
fn talk(running: &Running, news: &Receiver<News>, arguments: &Arguments, mut pace: Pace) -> Result<(), Failure> {
    let mut conn = None;
    let mut early: Vec<String> = Vec::new();
    let mut input_ended = false;
    loop {
        let next = if conn.is_some() && !pace.settle(running) {
            match news.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => continue,
                next => next,
            }
        } else if input_ended && conn.is_some() {
            news.recv_timeout(Duration::from_secs_f64(arguments.wait))
        } else {
            news.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match next {
            Ok(News::Line(line)) => match conn {
                Some(conn) => {
                    pace.count(&line);
                    send(running, conn, &line)?;
                }
                None => early.push(line),
            },
            Ok(News::EndOfInput) => input_ended = true,
            Ok(News::Open(id)) => {
                conn = Some(id);
                pace.begin(running);
                for line in early.drain(..) {
                    pace.count(&line);
                    send(running, id, &line)?;
                }
            }
            Ok(News::Heard) => {}
            Ok(News::Closed(closed)) => {
                conn = None;
                if !arguments.reconnect || matches!(closed.cause, Cause::Local) {
                    return ended(&closed);
                }
                eprintln!("connection lost: {}", closed.cause);
            }
            Ok(News::Failed(error, Some(wait))) => {
                eprintln!("{}; again in {:.1} s", tautline_lab::load::explain(&error), wait.as_secs_f64());
            }
            Ok(News::Failed(error, None)) => return Err(Failure::from(&error)),
            Ok(News::OutputGone | News::Interrupted) => {
                running.drain(CloseCode::NORMAL, "", Duration::from_secs(1));
                return Ok(());
            }
            Err(RecvTimeoutError::Timeout) => {
                running.drain(CloseCode::NORMAL, "", Duration::from_secs(5));
                input_ended = false;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn send(running: &Running, conn: ConnId, line: &str) -> Result<(), Failure> {
    loop {
        match running.send(conn, Outgoing::text(line)) {
            Err(RemoteError::Full) => std::thread::sleep(LOOK),
            // Why it stopped is among the news.
            Ok(()) | Err(RemoteError::Stopped) => return Ok(()),
            Err(error) => return Err(Failure::failed(error.to_string())),
        }
    }
}

fn ended(closed: &Closed) -> Result<(), Failure> {
    match closed.cause {
        Cause::Local => Ok(()),
        Cause::Peer if matches!(closed.code.get(), 1000 | 1001 | 1005) => {
            eprintln!("closed by the server ({}{})", closed.code.get(), reason(closed));
            Ok(())
        }
        _ => Err(Failure::network(format!(
            "connection ended ({}{}): {}",
            closed.code.get(),
            reason(closed),
            closed.cause
        ))),
    }
}

fn reason(closed: &Closed) -> String {
    if closed.reason.is_empty() { String::new() } else { format!(" {:?}", closed.reason) }
}

/// The application on the loop's thread: prints.
struct Printer {
    news: Sender<News>,
    verbose: bool,
}

impl Printer {
    /// The main thread has gone only when the program ends.
    fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }
}

impl Handler for Printer {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        if self.verbose {
            eprint!("{}", describe(conn.peer(), opening));
        } else if std::io::stdin().is_terminal() {
            eprintln!("connected to {}", conn.peer());
        }
        self.tell(News::Open(conn.id()));
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let mut out = std::io::stdout().lock();
        let written = match message.text() {
            Some(text) => writeln!(out, "{text}"),
            None => writeln!(out, "{}", hex(message.data())),
        };
        self.tell(if written.is_ok() { News::Heard } else { News::OutputGone });
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.tell(News::Closed(closed.clone()));
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, retry: Option<Duration>) {
        self.tell(News::Failed(error.clone(), retry));
    }
}

/// What the layers agreed on, a line each.
fn describe(peer: &tautline::Address, opening: &Opening<'_>) -> String {
    let mut lines = vec![format!("peer         {peer}")];
    let Facts { version, suite, group, alpn, resumed, peer_certificates, .. } = opening.tls;
    if !version.is_empty() {
        lines.push(format!("TLS          {version}, {suite}, {group}"));
        let alpn = alpn.as_deref().map_or_else(|| "none".into(), String::from_utf8_lossy);
        lines.push(format!("ALPN         {alpn}"));
        lines.push(format!("session      {}", if *resumed { "resumed" } else { "new" }));
        let sizes: Vec<String> = peer_certificates.iter().map(|der| format!("{} B", der.len())).collect();
        lines.push(format!("certificates {} ({})", sizes.len(), sizes.join(", ")));
    }
    if let Some(response) = opening.response {
        lines.push(format!("HTTP         {:?} {}", response.version(), response.status()));
        for (name, value) in response.headers() {
            lines.push(format!("             {name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
    }
    lines.push(format!("subprotocol  {}", opening.subprotocol.unwrap_or("none")));
    lines.push(format!("compression  {}", if opening.deflate { "permessage-deflate" } else { "none" }));
    lines.iter().map(|line| format!("* {line}\n")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
    fn facts_of_plain_connections_have_no_tls() {
        let tls = Facts::default();
        let opening = Opening { request: None, response: None, subprotocol: Some("chat"), deflate: false, tls: &tls };
        let text = describe(&"127.0.0.1:1".parse().unwrap(), &opening);
        assert_eq!(text, "* peer         127.0.0.1:1\n* subprotocol  chat\n* compression  none\n");
    }

    #[test]
    fn closing_codes_decide_the_exit() {
        let closed = |code, cause| Closed { code: CloseCode::new(code), reason: String::new(), cause };
        assert!(ended(&closed(1000, Cause::Peer)).is_ok());
        assert!(ended(&closed(1011, Cause::Peer)).is_err());
        assert!(ended(&closed(1000, Cause::Truncated)).is_err());
    }
}
