//! The program `taut` over AF_XDP, against itself over the kernel's TCP.

use super::spaces::{Side, Spaces};
use crate::process::{Deadline, Running, run_logged, show_tail};
use crate::stage::{Context, Failure, Outcome};
use crate::taut::{self, Certificates, Scheme};
use crate::{autobahn, paths};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const PORT: u16 = 8443;

/// Frames in a million that are lost, and as many that are late, in each direction.
const HARM: &str = "10000";

/// Loads: connections, bytes in a message.
const LOADS: [(&str, &str); 3] = [("100", "64"), ("10", "16384"), ("2", "1048576")];

/// How an end reaches the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Xdp,
    /// With harm done to frames.
    HarmedXdp,
}

impl Way {
    fn arguments(self, side: Side) -> Vec<String> {
        let driver = || vec!["--driver".to_owned(), format!("xdp:{}", side.interface())];
        match self {
            Self::Kernel => Vec::new(),
            Self::Xdp => driver(),
            Self::HarmedXdp => [driver(), vec!["--xdp-harm".to_owned(), HARM.to_owned()]].concat(),
        }
    }
}

/// `taut serve`, `taut load` and `taut connect`, with one end or both over AF_XDP.
pub(crate) fn program(context: &Context) -> Outcome {
    super::check_root()?;
    let certificates = taut::certificates(context)?;
    let spaces = Spaces::new()?;
    let ways =
        [(Way::HarmedXdp, Way::Kernel), (Way::Kernel, Way::HarmedXdp), (Way::Kernel, Way::Xdp), (Way::Xdp, Way::Xdp)];
    for (ours, theirs) in ways {
        let mut server = serve(&spaces, Scheme::Wss, &certificates, ours)?;
        let start = std::time::Instant::now();
        for address in Side::A.addresses() {
            for (connections, size) in LOADS {
                let mut load = client("load", address, &certificates);
                load.args(["-c", connections, "-s", size, "-d", "0.5", "--warmup", "0.1"]);
                load.args(theirs.arguments(Side::B));
                let log = paths::log("xdp-load");
                run_logged(&mut spaces.within(Side::B, &load), &log, context.deadline)?;
            }
            connect(&spaces, address, &certificates, theirs)?;
        }
        eprintln!("server over {ours:?}, clients over {theirs:?}: {:.1} s", start.elapsed().as_secs_f64());
        let status = server.terminate(Duration::from_secs(60))?;
        if !status.is_some_and(|status| status.success()) {
            return Err(Failure::Failed(format!("the server over {ours:?} did not drain: {status:?}")));
        }
    }
    killed(&spaces, &certificates)
}

/// Every case of groups 1 to 7, against `taut serve` over AF_XDP.
pub(crate) fn autobahn(context: &Context) -> Outcome {
    super::check_root()?;
    let suite = autobahn::install(context)?;
    let certificates = taut::certificates(context)?;
    let spaces = Spaces::new()?;
    for scheme in [Scheme::Wss, Scheme::Ws] {
        let _server = serve(&spaces, scheme, &certificates, Way::Xdp)?;
        let url = format!("{scheme}://{}:{PORT}", Side::A.addresses()[0]);
        autobahn::fuzz_elsewhere(&suite, (scheme, &url), context.deadline, &|command| spaces.within(Side::B, command))?;
    }
    Ok(())
}

/// A program that is killed leaves nothing on the interface.
fn killed(spaces: &Spaces, certificates: &Certificates) -> Outcome {
    let server = serve(spaces, Scheme::Wss, certificates, Way::Xdp)?;
    if !spaces.has_program(Side::A) {
        return Err(Failure::Failed("no XDP program is on the interface of a server that runs".to_owned()));
    }
    drop(server);
    if spaces.has_program(Side::A) {
        return Err(Failure::Failed("the XDP program of a killed server is still there".to_owned()));
    }
    Ok(())
}

fn serve(spaces: &Spaces, scheme: Scheme, certificates: &Certificates, way: Way) -> Result<Running, Failure> {
    let mut command = Command::new(taut::program());
    command.args(["serve", "--app", "echo", "--max-message", "16777216"]);
    for address in Side::A.addresses() {
        command.arg("--listen").arg(socket(address));
    }
    match scheme {
        Scheme::Ws => command.arg("--plain"),
        Scheme::Wss => command.arg("--cert").arg(&certificates.chain).arg("--key").arg(&certificates.key),
    };
    command.args(way.arguments(Side::A));
    let log = paths::log(&format!("xdp-serve-{scheme}"));
    let mut running = Running::start_logged(&mut spaces.within(Side::A, &command), &log)?;
    let deadline = Deadline::after(Duration::from_secs(60));
    while !fs::read_to_string(&log)?.contains("fd99") {
        if deadline.passed() || running.ended()? {
            show_tail(&log, 20);
            return Err(Failure::Failed(format!("the server over {way:?} does not listen")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

/// A message there and back.
fn connect(spaces: &Spaces, address: &str, certificates: &Certificates, way: Way) -> Outcome {
    let mut command = client("connect", address, certificates);
    command.args(way.arguments(Side::B));
    let mut command = spaces.within(Side::B, &command);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut lines) = child.stdin.take() {
        writeln!(lines, "over AF_XDP")?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() && String::from_utf8_lossy(&output.stdout).contains("over AF_XDP") {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(format!("`taut connect` over {way:?} got no answer from {address}: {said}")))
}

fn client(what: &str, address: &str, certificates: &Certificates) -> Command {
    let mut command = Command::new(taut::program());
    command.arg(what).arg(format!("wss://localhost:{PORT}/"));
    command.arg("--address").arg(socket(address)).arg("--ca").arg(&certificates.ca);
    command
}

fn socket(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:{PORT}") } else { format!("{address}:{PORT}") }
}
