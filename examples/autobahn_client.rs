//! Runs every case of an Autobahn|Testsuite fuzzing server against Tautline's client.
//!
//! ```text
//! cargo run --release -p tautline --example autobahn_client -- ws://127.0.0.1:9001 [--ca FILE] [--agent NAME]
//! ```
//! The client asks the server for the number of cases. In each case it echoes all messages until the server closes. At
//! the end the server writes its report, which has the results. The exit code only says whether the connections worked.

use std::process::ExitCode;
use std::time::Duration;
use tautline::{Client, ClientConfig, Config, Conn, ConnectError, DeflateConfig, DialId, Handler, Message, Outgoing};
use tautline::{Roots, SlowConsumer, Socket, Target};

type Failure = Box<dyn std::error::Error>;

/// Echoes every message, and keeps the error if the connection failed.
#[derive(Default)]
struct Echo {
    failed: Option<ConnectError>,
}

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.failed = Some(error.clone());
    }
}

/// The arguments of the command line.
struct Run {
    server: String,
    tls: ClientConfig,
    agent: String,
}

impl Run {
    fn from_args() -> Result<Self, Failure> {
        let mut run = Self { server: String::new(), tls: ClientConfig::default(), agent: "tautline".into() };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "--ca" => run.tls.roots = Roots::Pem(std::fs::read(value()?)?),
                "--agent" => run.agent = value()?,
                _ => run.server = arg.trim_end_matches('/').to_owned(),
            }
        }
        if run.server.is_empty() {
            return Err("usage: autobahn_client ws://HOST:PORT [--ca FILE] [--agent NAME]".into());
        }
        Ok(run)
    }

    fn target(&self, path: &str) -> Result<Target, Failure> {
        Ok(Target::new(&format!("{}{path}", self.server))?)
    }

    /// Asks for the number of cases: the server sends it as one text message and closes.
    fn count(&self) -> Result<u32, Failure> {
        let mut socket = Socket::connect(self.target("/getCaseCount")?, self.tls.clone(), config())?;
        let answer = socket.receive()?;
        Ok(str::from_utf8(answer.data())?.parse()?)
    }

    /// Runs one case until the server closes.
    fn case(&self, number: u32) -> Result<(), Failure> {
        let mut target = self.target(&format!("/runCase?case={number}&agent={}", self.agent))?;
        target.deflate = Some(DeflateConfig::default());
        self.run(target)
    }

    /// Connects and echoes until the connection ends.
    fn run(&self, target: Target) -> Result<(), Failure> {
        let echo = Client::new(self.tls.clone()).config(config()).target(target).run(Echo::default())?;
        echo.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Limits for the suite, which sends messages of 16 MiB and may read their echo late.
fn config() -> Config {
    let mut config = Config::default();
    config.limits.max_message = 64 << 20;
    config.slow_consumer = SlowConsumer::Disconnect(256 << 20);
    // The suite counts frames, so the client must not send pings of its own.
    config.deadlines.ping = None;
    config
}

fn run() -> Result<(), Failure> {
    let run = Run::from_args()?;
    let count = run.count()?;
    for number in 1..=count {
        run.case(number).map_err(|error| format!("case {number} of {count}: {error:#}"))?;
    }
    run.run(run.target(&format!("/updateReports?agent={}", run.agent))?)?;
    println!("{count} cases");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
