//! Honest connections: they send at a steady rate while others attack, and measure how long the echoes take.
//!
//! They are a process of their own. A thread of the attackers' process waits for every lock that an attacker has, and an attacker
//! may wait for a CPU behind a thousand others.

use crate::cpus::Cpus;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::server::Server;
use crate::wire::{self, TEXT};
use rustix::process::setpriority_process;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The number of honest connections.
const CONNECTIONS: usize = 100;
const THREADS: usize = 4;
/// Time between two messages of one thread: 500 messages a second in total.
const PACE: Duration = Duration::from_millis(8);
/// The word of an answer that is a reason.
const FAILED: &str = "failed ";

/// Arguments of the process of honest connections.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    address: SocketAddr,
    /// Certificate of the authority that the server must have; without it there is no TLS.
    #[arg(long)]
    roots: Option<PathBuf>,
    /// Open the WebSockets on streams of HTTP/2.
    #[arg(long)]
    http2: bool,
    /// Run on the server's CPU, before everything else there.
    #[arg(long)]
    beside_server: bool,
}

/// A process with honest connections. Dropping it ends them.
pub(crate) struct Honest {
    child: Child,
    questions: ChildStdin,
    answers: RefCell<BufReader<ChildStdout>>,
}

impl Honest {
    /// Opens all connections and begins.
    pub(crate) fn begin(server: &Server, beside_server: bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--taut", "none", "--folder", "none", "honest", &server.address.to_string()]);
        if server.target.tls.is_some() {
            command.arg("--roots").arg(&server.roots_file);
        }
        if server.target.http2 {
            command.arg("--http2");
        }
        if beside_server {
            command.arg("--beside-server");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the honest connections have no pipe".into());
        };
        let honest = Self { child, questions, answers: RefCell::new(BufReader::new(answers)) };
        honest.p99(0)?;
        Ok(honest)
    }

    /// The 99th percentile of the latencies since the last call, in milliseconds, once there are this many.
    pub(crate) fn p99(&self, least: usize) -> Result<f64> {
        writeln!(&self.questions, "{least}")?;
        let mut answer = String::new();
        self.answers.borrow_mut().read_line(&mut answer)?;
        let answer = answer.trim();
        match answer.strip_prefix(FAILED) {
            Some(reason) => Err(reason.into()),
            None => Ok(answer.parse().map_err(|_| format!("the honest connections ended: {answer:?}"))?),
        }
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Latencies so far, or the reason why a connection failed.
type Samples = Mutex<std::result::Result<Vec<Duration>, String>>;

/// The process of honest connections: answers each line of standard input by a line, until its end.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.beside_server {
        Cpus::divide()?.join_server()?;
        // Needs a privilege. Without it a latency includes some of the client's own waits for the CPU.
        let _ = setpriority_process(None, -20);
    }
    let samples = Arc::new(Samples::new(Ok(Vec::new())));
    if let Err(error) = begin(arguments, &samples) {
        *samples.lock().unwrap_or_else(PoisonError::into_inner) = Err(error.to_string());
    }
    for line in std::io::stdin().lines() {
        println!("{}", answer(&samples, line?.parse()?));
    }
    Ok(())
}

/// Opens all connections, and begins to send.
fn begin(arguments: &Arguments, samples: &Arc<Samples>) -> Result<()> {
    let roots = arguments.roots.as_ref().map(std::fs::read_to_string).transpose()?;
    for number in 0..THREADS {
        let open = |_| match &roots {
            Some(roots) if arguments.http2 => Peer::stream(arguments.address, roots),
            _ => Peer::websocket(arguments.address, roots.as_deref()),
        };
        let peers = (0..CONNECTIONS / THREADS).map(open).collect::<Result<Vec<_>>>()?;
        let samples = samples.clone();
        thread::spawn(move || {
            if let Err(error) = converse(peers, &samples, number) {
                *samples.lock().unwrap_or_else(PoisonError::into_inner) = Err(error.to_string());
            }
        });
    }
    Ok(())
}

/// The 99th percentile in milliseconds once there are this many latencies, which are forgotten then.
fn answer(samples: &Samples, least: usize) -> String {
    loop {
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *samples {
            Err(reason) => return format!("{FAILED}{reason}"),
            Ok(times) if times.len() >= least => {
                let mut times = std::mem::take(times);
                times.sort_unstable();
                let last = times.len().saturating_sub(1);
                let p99 = times.get((times.len() * 99 / 100).min(last)).map_or(0.0, Duration::as_secs_f64);
                return (p99 * 1e3).to_string();
            }
            Ok(_) => {}
        }
        drop(samples);
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends on each connection in turn. A latency counts from the time at which the message was due, so that a stall counts for
/// every message that it delays.
fn converse(mut peers: Vec<Peer>, samples: &Samples, number: usize) -> Result<()> {
    let mut due = Instant::now();
    for turn in 0.. {
        due += PACE;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let which = turn % peers.len();
        let peer = &mut peers[which];
        let text = format!("honest {number} {turn}");
        peer.send_message(&wire::masked(TEXT, text.as_bytes()))?;
        let frame = loop {
            let frame = peer.frame().map_err(|error| format!("an honest connection waits in vain: {error}"))?;
            match frame.first {
                // The server pings connections that say nothing; these do not answer, but send soon.
                wire::PING => {}
                _ => break frame,
            }
        };
        if frame.first != TEXT || frame.payload != text.as_bytes() {
            return Err(format!("an honest connection got {frame:?} for {text:?}").into());
        }
        let time = due.elapsed();
        if let Ok(samples) = &mut *samples.lock().unwrap_or_else(PoisonError::into_inner) {
            samples.push(time);
        }
    }
    Ok(())
}
