//! HTTP/2 of other software against ours: h2spec, and clients in Python, Go and Node on one connection each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::peer::{Peer, checks, go_build};
use crate::cargo::everything;
use crate::outcome::{Failure, Outcome, none_of};
use crate::process::{self, Deadline, run_logged, show_tail};
use crate::stage::Context;
use crate::taut::{self, Certificates};
use crate::{install, paths};

/// The last line of h2spec, but for its colours. No case is left out: a stream that depends on itself is reset, though
/// priorities are obsolete.
const ALL_PASSED: &str = "146 tests, 146 passed, 0 skipped, 0 failed";

/// The programs in Go, by the packages that they are built from.
const PROGRAMS: [(&str, &str); 3] =
    [("h2spec", "github.com/summerwind/h2spec/cmd/h2spec"), ("client", "./client"), ("carrier", "./carrier")];

/// The texts that require another installation when they change.
const TEXTS: [&str; 5] = ["go.mod", "go.sum", "extended/extended.go", "client/main.go", "carrier/main.go"];

/// Runs h2spec and every client against the example `http2`.
pub(crate) fn run(context: &Context) -> Outcome {
    let certificates = taut::certificates(context)?;
    let port = taut::free_port()?;
    let mut example = Command::new(taut::example("http2"));
    example.args([&certificates.chain, &certificates.key]).arg(format!("127.0.0.1:{port}"));
    let mut server = taut::start(&mut example, port, "http2-example")?;
    let mut failed = Vec::new();
    match install(context) {
        Ok(folder) => {
            failed.extend(conformance(&folder, port, context.deadline).err().map(|why| ("h2spec", why)));
            let theirs = client(go_client(&folder), Peer::Go, port, &certificates, context.deadline);
            failed.extend(theirs.err().map(|why| (Peer::Go.name(), why)));
        }
        Err(Failure::Skipped(why)) => context.skip("http2: Go", &why),
        Err(why) => failed.push((Peer::Go.name(), why)),
    }
    for peer in [Peer::Python, Peer::Node] {
        let mut ran = peer.install(context.deadline);
        if ran.is_ok() && peer == Peer::Python {
            failed.extend(hypercorn(&certificates, context.deadline).err().map(|why| ("hypercorn", why)));
        }
        ran = ran.and_then(|()| client(peer.call("http2"), peer, port, &certificates, context.deadline));
        let ran = context.unless_skipped(&format!("http2: {}", peer.name()), ran);
        failed.extend(ran.err().map(|why| (peer.name(), why)));
    }
    if server.ended()? {
        show_tail(&paths::log("http2-example"), 20);
        return Err(Failure::Failed("the example ended".to_owned()));
    }
    let failed: Vec<String> = failed.into_iter().map(|(name, why)| format!("{name}: {}", why.reason())).collect();
    none_of(&failed, "; ")
}

/// The program that carries WebSockets of HTTP/1.1 over HTTP/2; a port, the server's URL and a file of authorities follow.
pub(crate) fn carrier(context: &Context) -> Result<Command, Failure> {
    let mut carrier = Command::new(install(context)?.join("carrier"));
    with_extended_connect(&mut carrier);
    Ok(carrier)
}

/// All cases of h2spec over TLS, the strict one too.
fn conformance(folder: &Path, port: u16, deadline: Deadline) -> Outcome {
    let log = paths::log("http2-h2spec");
    let mut spec = Command::new(folder.join("h2spec"));
    spec.args(["--host", "127.0.0.1", "--tls", "--insecure", "--strict", "--timeout", "5", "--port"]);
    run_logged(spec.arg(port.to_string()), &log, deadline)?;
    let text = fs::read_to_string(&log)?;
    let total = text.lines().rfind(|line| line.contains(" tests, ")).unwrap_or_default();
    eprintln!("h2spec: {total}");
    if total.contains(ALL_PASSED) {
        return Ok(());
    }
    Err(Failure::Failed(format!("{total:?} instead of {ALL_PASSED:?}; see {}", log.display())))
}

/// A client of theirs, which prints a line for each check.
fn client(mut theirs: Command, peer: Peer, port: u16, certificates: &Certificates, deadline: Deadline) -> Outcome {
    let log = paths::log(&format!("http2-{}", peer.name()));
    theirs.arg(format!("https://127.0.0.1:{port}")).arg(&certificates.ca);
    run_logged(&mut theirs, &log, deadline)?;
    eprintln!("{} client over HTTP/2 against ours: {} checks hold", peer.name(), checks(&log));
    Ok(())
}

/// Our client side, by a test of the workspace, against hypercorn.
fn hypercorn(certificates: &Certificates, deadline: Deadline) -> Outcome {
    let (port, log) = (taut::free_port()?, paths::log("http2-hypercorn"));
    let mut theirs = Peer::Python.call("http2_server");
    theirs.arg(port.to_string()).args([&certificates.chain, &certificates.key]);
    let _server = taut::start(&mut theirs, port, "http2-hypercorn")?;
    let mut test = everything(&["test", "--test", "http2", "others::"]);
    test.env("TAUTLINE_HTTP2_SERVER", format!("127.0.0.1:{port}")).env("TAUTLINE_HTTP2_CA", &certificates.ca);
    run_logged(&mut test, &paths::log("http2-hypercorn-ours"), deadline).inspect_err(|_| show_tail(&log, 20))?;
    eprintln!("our client side over HTTP/2 against hypercorn: its test holds");
    Ok(())
}

fn go_client(folder: &Path) -> Command {
    let mut client = Command::new(folder.join("client"));
    with_extended_connect(&mut client);
    client
}

/// golang.org/x/net/http2 uses extended CONNECT only if it is asked to (golang/go#71128).
fn with_extended_connect(program: &mut Command) {
    program.env("GODEBUG", "http2xconnect=1");
}

/// The folder of the programs in Go, built first unless they are there.
pub(super) fn install(context: &Context) -> Result<PathBuf, Failure> {
    // Its modules and its build cache hold the standard library, which takes longest.
    Peer::Go.install(context.deadline)?;
    let source = paths::root().join("tests/interop/go-http2");
    let version = process::output(Command::new("go").arg("version")).unwrap_or_default();
    let texts: Result<Vec<String>, _> = TEXTS.iter().map(|file| fs::read_to_string(source.join(file))).collect();
    let folder = paths::own("interop/go-http2");
    let works = |folder: &Path| PROGRAMS.iter().all(|(name, _)| folder.join(name).exists());
    install::once(&folder, &format!("{version}{}", texts?.concat()), works, |folder| {
        for (name, package) in PROGRAMS {
            let mut build = go_build(&source, &Peer::Go.folder());
            build.arg("-o").arg(folder.join(name)).arg(package);
            run_logged(&mut build, &paths::log("http2-go-install"), context.deadline)?;
        }
        Ok(())
    })?;
    Ok(folder)
}
