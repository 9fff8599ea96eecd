//! The program `taut` over AF_XDP, against itself over the kernel's TCP.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::spaces::{Side, Spaces};
use crate::outcome::{Failure, Outcome};
use crate::process::{Running, run_logged};
use crate::stage::Context;
use crate::taut::{self, Certificates, Scheme};
use crate::{autobahn, paths};

const PORT: u16 = 8443;

/// In each direction, this many frames in a million are lost, and as many are delayed.
const HARM: &str = "10000";

/// Loads: connections, and bytes in a message.
const LOADS: [(&str, &str); 3] = [("100", "64"), ("10", "16384"), ("2", "1048576")];

/// The TCP that one end uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stack {
    Kernel,
    Xdp,
    /// AF_XDP, with frames lost and delayed.
    HarmedXdp,
}

impl Stack {
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
    let world = World::new(context)?;
    let pairs = [
        (Stack::HarmedXdp, Stack::Kernel),
        (Stack::Kernel, Stack::HarmedXdp),
        (Stack::Kernel, Stack::Xdp),
        (Stack::Xdp, Stack::Xdp),
    ];
    for (ours, theirs) in pairs {
        let mut server = world.serve(Scheme::Wss, ours)?;
        let start = Instant::now();
        for address in Side::A.addresses() {
            for (connections, size) in LOADS {
                let mut load = world.client("load", address);
                load.args(["-c", connections, "-s", size, "-d", "0.5", "--warmup", "0.1"]);
                load.args(theirs.arguments(Side::B));
                let log = paths::log("xdp-load");
                run_logged(&mut world.spaces.within(Side::B, &load), &log, context.deadline)?;
            }
            world.connect(address, theirs)?;
        }
        eprintln!("server over {ours:?}, clients over {theirs:?}: {:.1} s", start.elapsed().as_secs_f64());
        let status = server.terminate(Duration::from_secs(60))?;
        if !status.is_some_and(|status| status.success()) {
            return Err(Failure::Failed(format!("the server over {ours:?} did not drain: {status:?}")));
        }
    }
    world.kill()
}

/// Every case of groups 1 to 7, against `taut serve` over AF_XDP.
pub(crate) fn autobahn(context: &Context) -> Outcome {
    let world = World::new(context)?;
    let suite = autobahn::install(context)?;
    for scheme in [Scheme::Wss, Scheme::Ws] {
        let _server = world.serve(scheme, Stack::Xdp)?;
        let url = format!("{scheme}://{}:{PORT}", Side::A.addresses()[0]);
        let elsewhere = |command: &Command| world.spaces.within(Side::B, command);
        autobahn::fuzz_elsewhere(&suite, (scheme, &url), context.deadline, &elsewhere)?;
    }
    Ok(())
}

/// The program, certificates for it, and two ends of a wire.
struct World {
    taut: PathBuf,
    certificates: Certificates,
    spaces: Spaces,
}

impl World {
    fn new(context: &Context) -> Result<Self, Failure> {
        super::check_root()?;
        let taut = taut::with_everything(context)?;
        Ok(Self { taut, certificates: taut::certificates(context)?, spaces: Spaces::new()? })
    }

    fn serve(&self, scheme: Scheme, stack: Stack) -> Result<Running, Failure> {
        let mut command = Command::new(&self.taut);
        command.args(["serve", "--app", "echo", "--max-message", "16777216"]);
        for address in Side::A.addresses() {
            command.arg("--listen").arg(socket(address));
        }
        match scheme {
            Scheme::Ws => command.arg("--plain"),
            Scheme::Wss => command.arg("--cert").arg(&self.certificates.chain).arg("--key").arg(&self.certificates.key),
        };
        command.args(stack.arguments(Side::A));
        let log = paths::log(&format!("xdp-serve-{scheme}"));
        let mut running = Running::start_logged(&mut self.spaces.within(Side::A, &command), &log)?;
        let why = format!("the server over {stack:?} does not listen");
        running.wait_for(&log, |text| text.contains("fd99"), &why)?;
        Ok(running)
    }

    fn client(&self, task: &str, address: &str) -> Command {
        let mut command = Command::new(&self.taut);
        command.arg(task).arg(format!("wss://localhost:{PORT}/"));
        command.arg("--address").arg(socket(address)).arg("--ca").arg(&self.certificates.ca);
        command
    }

    /// Sends one message, and expects it back.
    fn connect(&self, address: &str, stack: Stack) -> Outcome {
        let mut command = self.client("connect", address);
        command.args(stack.arguments(Side::B));
        let mut command = self.spaces.within(Side::B, &command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut lines) = child.stdin.take() {
            writeln!(lines, "over AF_XDP")?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() && String::from_utf8_lossy(&output.stdout).contains("over AF_XDP") {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Failed(format!("`taut connect` over {stack:?} got no answer from {address}: {error}")))
    }

    /// Kills a server, which must leave no program on the interface.
    fn kill(&self) -> Outcome {
        let server = self.serve(Scheme::Wss, Stack::Xdp)?;
        if !self.spaces.has_program(Side::A) {
            return Err(Failure::Failed("no XDP program is on the interface of a running server".to_owned()));
        }
        drop(server);
        if self.spaces.has_program(Side::A) {
            return Err(Failure::Failed("the XDP program of a killed server is still on its interface".to_owned()));
        }
        Ok(())
    }
}

fn socket(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:{PORT}") } else { format!("{address}:{PORT}") }
}
