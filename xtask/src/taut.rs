//! The program `taut` and its certificates, for the tests by other implementations.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::outcome::{Failure, Outcome};
use crate::process::{Deadline, Running, run_logged, show_tail};
use crate::stage::Context;
use crate::{cargo, install, paths, process};

/// The scheme of a URL: without TLS or with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Ws,
    Wss,
}

impl Scheme {
    pub(crate) fn url(self, port: u16) -> String {
        format!("{self}://127.0.0.1:{port}")
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Ws { "ws" } else { "wss" })
    }
}

/// A development authority and what it signed, all PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) ca: PathBuf,
    /// An authority that signed none of the other files.
    pub(crate) other_ca: PathBuf,
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_chain: PathBuf,
    pub(crate) client_key: PathBuf,
}

/// A running `taut serve`.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) port: u16,
    scheme: Scheme,
}

impl Server {
    pub(crate) fn url(&self) -> String {
        self.scheme.url(self.port)
    }
}

/// Age up to which certificates are used again. Stages that run side by side have the same ones.
const NEW: Duration = Duration::from_secs(12 * 3600);

/// Builds `taut`, the clients, the attackers and the simulator.
///
/// Our own crates are optimised, as they are when released, but keep their assertions. Their dependencies are those that
/// the tests have compiled already.
pub(crate) fn build(context: &Context) -> Outcome {
    let mut build = cargo::cargo(&["build", "--workspace", "--locked", "--config", "profile.dev.opt-level=3"]);
    build.args(["--features", "tautline/http2,tautline-cli/http2"]);
    build.args(["taut", "hostile", "simulate"].map(|name| ["--bin", name]).as_flattened());
    build.args(CLIENTS.map(|name| ["--example", name]).as_flattened());
    let names = ["taut", "hostile", "simulate", CLIENTS[0], CLIENTS[1], CLIENTS[2], CLIENTS[3], CLIENTS[4]];
    let built = cargo::executables(context, build, names)?;
    names.iter().zip(built).try_for_each(|(name, path)| keep(&path, &example(name)))
}

/// Builds `taut` with every TLS library and driver, and returns its path.
pub(crate) fn with_everything(context: &Context) -> Result<PathBuf, Failure> {
    let build = cargo::everything(&["test", "--no-run", "--test", "program"]);
    let [taut] = cargo::executables(context, build, ["taut"])?;
    let kept = paths::own("programs/everything/taut");
    keep(&taut, &kept)?;
    Ok(kept)
}

/// Builds `taut` as it is released, with OpenSSL too, and returns its path. Latencies of other builds say little.
pub(crate) fn released(context: &Context) -> Result<PathBuf, Failure> {
    let build =
        cargo::cargo(&["build", "--profile", "dist", "--locked", "-p", "tautline-cli", "--features", "http2,openssl"]);
    let [taut] = cargo::executables(context, build, ["taut"])?;
    Ok(taut)
}

/// Copies a program that the next build may replace. The program of a former build may be running.
fn keep(built: &Path, kept: &Path) -> Outcome {
    fs::create_dir_all(kept.parent().unwrap_or(kept))?;
    let new = kept.with_extension("new");
    fs::copy(built, &new)?;
    fs::rename(new, kept)?;
    Ok(())
}

/// Examples that are clients of other servers; `autobahn_tokio` is a server, too, and `http2` is one only.
const CLIENTS: [&str; 5] = ["autobahn_client", "interop_client", "autobahn_tokio", "feed_client", "http2"];

/// The program that [`build`] has built.
pub(crate) fn program() -> PathBuf {
    example("taut")
}

/// Another program that [`build`] has built: a client, or the kit of attackers.
pub(crate) fn example(name: &str) -> PathBuf {
    paths::own("programs").join(name)
}

/// Makes an authority and a certificate for loopback addresses with `taut cert`, unless those of a run that goes on are there.
pub(crate) fn certificates(context: &Context) -> Result<Certificates, Failure> {
    let folder = paths::own("certificates");
    let is_new = |folder: &Path| {
        let made = fs::metadata(folder.join("other/client-key.pem")).and_then(|file| file.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < NEW))
    };
    install::once(&folder, "certificates", is_new, |folder| {
        for part in [folder.to_owned(), folder.join("other")] {
            let mut command = Command::new(program());
            command.args(["cert", "--client", "tester", "--dir"]).arg(part).args(["localhost", "127.0.0.1"]);
            run_logged(&mut command, &paths::log("taut-cert"), context.deadline)?;
        }
        Ok(())
    })?;
    let file = |name: &str| folder.join(name);
    Ok(Certificates {
        ca: file("ca.pem"),
        other_ca: file("other/ca.pem"),
        chain: file("cert.pem"),
        key: file("key.pem"),
        client_chain: file("client.pem"),
        client_key: file("client-key.pem"),
    })
}

/// Starts `taut serve --app echo` with further arguments on a free loopback port, and waits until it listens.
pub(crate) fn serve(
    name: &str,
    scheme: Scheme,
    certificates: &Certificates,
    further: &[&str],
) -> Result<Server, Failure> {
    let port = free_port()?;
    let mut command = Command::new(program());
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
    match scheme {
        Scheme::Ws => command.arg("--plain"),
        Scheme::Wss => command.arg("--cert").arg(&certificates.chain).arg("--key").arg(&certificates.key),
    };
    command.args(further);
    Ok(Server { running: start(&mut command, port, name)?, port, scheme })
}

/// Starts `taut proxy` on a free loopback port, with the routes and backends of a configuration, and waits until it listens.
pub(crate) fn proxy(name: &str, scheme: Scheme, certificates: &Certificates, routes: &str) -> Result<Server, Failure> {
    let port = free_port()?;
    let top = match scheme {
        Scheme::Ws => "plain = true\n".to_owned(),
        Scheme::Wss => {
            format!("certificates = [{{ cert = {:?}, key = {:?} }}]\n", certificates.chain, certificates.key)
        }
    };
    let file = paths::own("proxies").join(name).with_extension("toml");
    fs::create_dir_all(paths::own("proxies"))?;
    fs::write(&file, top + routes)?;
    let mut command = Command::new(program());
    command.args(["proxy", "--listen", &format!("127.0.0.1:{port}"), "--config"]).arg(&file);
    Ok(Server { running: start(&mut command, port, name)?, port, scheme })
}

/// Starts any server, whose output goes to the log of this name, and waits until it listens.
pub(crate) fn start(command: &mut Command, port: u16, log: &str) -> Result<Running, Failure> {
    let log = paths::log(log);
    let mut running = Running::start_logged(command, &log)?;
    let listens = wait_until_listening(port, &mut running, Deadline::after(Duration::from_secs(60)));
    listens.inspect_err(|_| show_tail(&log, 20))?;
    Ok(running)
}

/// A server for the conformance suite: compression offered, messages of 16 MiB allowed.
pub(crate) fn serve_conformance(scheme: Scheme, certificates: &Certificates, driver: &str) -> Result<Server, Failure> {
    let further = ["--deflate", "--max-message", "16777216", "--driver", driver];
    serve(&format!("autobahn-serve-{scheme}-{driver}"), scheme, certificates, &further)
}

/// The reason why io_uring cannot be used here, in the words of `taut doctor`, if there is one.
pub(crate) fn lacks_uring() -> Result<Option<String>, Failure> {
    let told = process::printed(Command::new(program()).arg("doctor"))?;
    let line = told.lines().find(|line| line.contains("driver uring "));
    let line = line.ok_or("`taut doctor` does not report on io_uring")?;
    Ok((!line.contains("works")).then(|| line.trim().to_owned()))
}

/// The drivers over kernel sockets.
pub(crate) struct Drivers {
    /// The drivers that work here.
    pub(crate) working: Vec<&'static str>,
    /// The driver that does not, with the reason.
    pub(crate) lacking: Option<(&'static str, String)>,
}

/// Looks which drivers work here.
pub(crate) fn drivers() -> Result<Drivers, Failure> {
    let lacking = lacks_uring()?.map(|reason| ("uring", reason));
    let working = if lacking.is_none() { vec!["epoll", "uring"] } else { vec!["epoll"] };
    Ok(Drivers { working, lacking })
}

/// A loopback port that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until connections are accepted on a port.
pub(crate) fn wait_until_listening(port: u16, by: &mut Running, deadline: Deadline) -> Outcome {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if by.ended()? {
            return Err(Failure::Failed(format!("the server for port {port} ended before it listened")));
        }
        if deadline.passed() {
            return Err(Failure::Failed(format!("nothing listens on port {port}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
