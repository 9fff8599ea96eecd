//! Other implementations against ours, both ways, over wss. `tests/interop/README.md` lists the checks.

pub(crate) mod faults;
pub(crate) mod http2;
mod peer;
pub(crate) mod proxied;
mod venues;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::outcome::{Failure, Outcome, none_of};
use crate::paths;
use crate::process::{Deadline, Running, run_logged, show_tail};
use crate::stage::Context;
use crate::taut::{self, Certificates, Scheme, Server};
use peer::{PEERS, Peer, checks, hold};

/// Fetches the packages for Node, and returns their folder.
pub(crate) fn node_modules(context: &Context) -> Result<PathBuf, Failure> {
    Peer::Node.install(context.deadline)?;
    Ok(Peer::Node.modules())
}

/// Fetches and builds every peer.
pub(crate) fn install(context: &Context) -> Outcome {
    for peer in PEERS {
        context.unless_skipped(&format!("interop: {}", peer.name()), peer.install(context.deadline))?;
    }
    context.unless_skipped("interop: venues", venues::install(context.deadline))?;
    context.unless_skipped("http2: Go", http2::install(context))?;
    Ok(())
}

/// Runs every peer both ways.
pub(crate) fn run(context: &Context) -> Outcome {
    let certificates = taut::certificates(context)?;
    let mut failed = Vec::new();
    for peer in PEERS {
        match context.unless_skipped(&format!("interop: {}", peer.name()), peer.install(context.deadline)) {
            Ok(Some(())) => {}
            Ok(None) => continue,
            Err(failure) => {
                eprintln!("FAILED {}: {}", peer.name(), failure.reason());
                failed.push(format!("{} could not be installed", peer.name()));
                continue;
            }
        }
        let ways = [
            ("client", "client against ours", client as Test),
            ("server", "server against ours", server),
            ("feeds", "feeds against ours", feeds),
            ("metrics", "reads our metrics", metrics),
        ];
        // Python alone has programs for the last two.
        for (way, told, test) in ways.into_iter().take(if *peer == Peer::Python { 4 } else { 2 }) {
            let held = test(*peer, &certificates, context.deadline);
            if !hold(&format!("{} {told}", peer.name()), held) {
                failed.push(format!("{} {way}", peer.name()));
            }
        }
        if let Some(mut tls) = peer.tls()
            && run_logged(&mut tls, &paths::log(&format!("interop-{}-tls", peer.name())), context.deadline).is_err()
        {
            failed.push(format!("{} tls", peer.name()));
        }
    }
    failed.extend(venues::run(context, &certificates)?);
    none_of(&failed, ", ")
}

/// Runs a peer one way, and returns how many checks held.
type Test = fn(Peer, &Certificates, Deadline) -> Result<usize, Failure>;

/// Their client against our server.
fn client(peer: Peer, certificates: &Certificates, deadline: Deadline) -> Result<usize, Failure> {
    let name = peer.name();
    let call = |server: &Server, ca: &Path, case: &str, own: &[&Path]| {
        let log = paths::log(&format!("interop-{name}-client-{case}-{}", own.len()));
        let mut command = peer.call("client");
        command.arg(server.url()).arg(ca).arg(case).args(own);
        run_logged(&mut command, &log, deadline)?;
        Ok::<usize, Failure>(checks(&log))
    };
    let serve = |part: &str, further: &[&str]| {
        let further = [&["--deflate"], further].concat();
        taut::serve(&format!("interop-{name}-serve-{part}"), Scheme::Wss, certificates, &further)
    };
    let mut open = serve("open", &["--subprotocol", "echo.test"])?;
    let mut held = call(&open, &certificates.ca, "echo", &[])?;
    held += call(&open, &certificates.ca, "subprotocol", &[])?;
    held += call(&open, &certificates.other_ca, "refused", &[])?;
    let closed = serve("client-certificates", &["--client-ca", &certificates.ca.to_string_lossy()])?;
    held += call(&closed, &certificates.ca, "refused", &[])?;
    held += call(&closed, &certificates.ca, "echo", &[&certificates.client_chain, &certificates.client_key])?;
    held += drain(peer, &mut open, certificates)?;
    Ok(held)
}

/// Their client is connected when our server is told to end.
fn drain(peer: Peer, server: &mut Server, certificates: &Certificates) -> Result<usize, Failure> {
    let log = paths::log(&format!("interop-{}-client-drain", peer.name()));
    let mut command = peer.call("client");
    command.arg(server.url()).arg(&certificates.ca).arg("drain");
    let mut client = Running::start_logged(&mut command, &log)?;
    ready(&log, &mut client)?;
    let ours = server.running.terminate(Duration::from_secs(60))?;
    let theirs = client.wait(Deadline::after(Duration::from_secs(60)))?;
    if !theirs.is_some_and(|status| status.success()) {
        show_tail(&log, 20);
        return Err(Failure::Failed("the client of a draining server was not told to leave".to_owned()));
    }
    if !ours.is_some_and(|status| status.success()) {
        return Err(Failure::Failed(format!("a server ended by SIGTERM returned {ours:?}")));
    }
    Ok(checks(&log))
}

/// Our client against their server.
fn server(peer: Peer, certificates: &Certificates, deadline: Deadline) -> Result<usize, Failure> {
    let name = peer.name();
    let ours = |port: u16, part: &str, ca: &Path, case: &str, own: &[&Path]| {
        let log = paths::log(&format!("interop-{name}-server-{part}"));
        let mut command = Command::new(taut::example("interop_client"));
        command.arg(Scheme::Wss.url(port)).arg(ca).arg(case).args(own);
        run_logged(&mut command, &log, deadline)?;
        Ok::<usize, Failure>(checks(&log))
    };
    let start = |port: u16, part: &str, client_ca: Option<&Path>| {
        let log = paths::log(&format!("interop-{name}-listen-{part}"));
        let mut command = peer.call("server");
        command.arg(port.to_string()).args([&certificates.chain, &certificates.key]).args(client_ca);
        let mut running = Running::start_logged(&mut command, &log)?;
        ready(&log, &mut running)?;
        Ok::<Running, Failure>(running)
    };
    let (open, closed) = (taut::free_port()?, taut::free_port()?);
    let _open = start(open, "open", None)?;
    let _closed = start(closed, "client-certificates", Some(&certificates.ca))?;
    let mut held = ours(open, "open", &certificates.ca, "all", &[])?;
    held += ours(open, "wrong-authority", &certificates.other_ca, "refused", &[])?;
    held += ours(closed, "no-certificate", &certificates.ca, "refused", &[])?;
    let own: [&Path; 2] = [&certificates.client_chain, &certificates.client_key];
    held += ours(closed, "certificate", &certificates.ca, "all", &own)?;
    Ok(held)
}

/// The example of a feed client against three feeds of theirs, one of which falls silent.
fn feeds(peer: Peer, certificates: &Certificates, deadline: Deadline) -> Result<usize, Failure> {
    let [theirs, ours] = ["server", "client"].map(|end| paths::log(&format!("interop-{}-feed-{end}", peer.name())));
    let port = taut::free_port()?;
    let mut command = peer.call("feed");
    command.arg(port.to_string()).args([&certificates.chain, &certificates.key]);
    let mut server = Running::start_logged(&mut command, &theirs)?;
    ready(&theirs, &mut server)?;
    let mut client = Command::new(taut::example("feed_client"));
    client.arg(&certificates.ca).args(["/a", "/b", "/c"].map(|path| Scheme::Wss.url(port) + path));
    // It ends once it has given up all feeds.
    run_logged(&mut client, &ours, deadline)?;
    if !server.wait(Deadline::after(Duration::from_secs(60)))?.is_some_and(|status| status.success()) {
        show_tail(&theirs, 20);
        return Err(Failure::Failed("the feeds did not see what they expect".to_owned()));
    }
    let text = fs::read_to_string(&ours)?;
    let bounced = text.matches("the peer missed the silence deadline").count();
    let intervals = text.matches(" messages, p99.9 ").count();
    if bounced < 2 || intervals == 0 || text.contains("conflated: 0,") || !text.contains("dropped: 0,") {
        show_tail(&ours, 20);
        return Err(Failure::Failed(format!("{bounced} bounces, {intervals} intervals; see the totals above")));
    }
    Ok(checks(&theirs) + 3)
}

/// Their parser of metrics against the admin listener of our server, after their client.
fn metrics(peer: Peer, certificates: &Certificates, deadline: Deadline) -> Result<usize, Failure> {
    let log = |part: &str| paths::log(&format!("interop-{}-metrics-{part}", peer.name()));
    let admin = format!("127.0.0.1:{}", taut::free_port()?);
    let name = format!("interop-{}-metrics-serve", peer.name());
    let server = taut::serve(&name, Scheme::Wss, certificates, &["--deflate", "--stages", "--admin", &admin])?;
    let (mut client, mut parser) = (peer.call("client"), peer.call("metrics"));
    run_logged(client.arg(server.url()).arg(&certificates.ca).arg("echo"), &log("client"), deadline)?;
    run_logged(parser.arg(format!("http://{admin}/metrics")), &log("parser"), deadline)?;
    Ok(checks(&log("parser")))
}

/// Waits until a peer prints `ready`.
fn ready(log: &Path, by: &mut Running) -> Outcome {
    by.wait_for(log, |text| text.lines().any(|line| line == "ready"), "the peer did not print `ready`")
}
