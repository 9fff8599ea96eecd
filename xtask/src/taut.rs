//! The programs under test: built once, started with what the judges ask for.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::process::{Deadline, Running, run, run_logged, show_tail};
use crate::stage::{Context, Failure, Outcome};
use crate::{cargo, paths, process};

/// How messages travel.
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
    /// Another authority, which signed nothing here.
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

/// Builds `taut` and the clients as they are released.
pub(crate) fn build(context: &Context) -> Outcome {
    let mut command = cargo::cargo(&["build", "--release", "--locked", "-p", "tautline-cli", "-p", "tautline"]);
    command.args(["--bin", "taut", "--example", "autobahn_client", "--example", "interop_client"]);
    if cfg!(target_os = "linux") {
        command.args(["--features", "tautline-cli/xdp"]);
    }
    run(&mut command, context.deadline)
}

/// The program.
pub(crate) fn program() -> PathBuf {
    paths::target().join("release/taut")
}

/// An example of the crate `tautline`.
pub(crate) fn example(name: &str) -> PathBuf {
    paths::target().join("release/examples").join(name)
}

/// Makes an authority and a certificate for loopback addresses with `taut cert`.
pub(crate) fn certificates(context: &Context) -> Result<Certificates, Failure> {
    let folder = paths::own("certificates");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for part in [folder.clone(), folder.join("other")] {
        let mut command = Command::new(program());
        command.args(["cert", "--client", "tester", "--dir"]).arg(part).args(["localhost", "127.0.0.1"]);
        run_logged(&mut command, &paths::log("taut-cert"), context.deadline)?;
    }
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

/// Starts `taut serve --app echo` with further arguments on a free port of the loopback interface, and waits for it.
pub(crate) fn serve(
    name: &str,
    scheme: Scheme,
    certificates: &Certificates,
    further: &[&str],
) -> Result<Server, Failure> {
    let port = free_port()?;
    let mut command = Command::new(program());
    command.args(["serve", "--app", "echo", "--listen", &format!("127.0.0.1:{port}")]);
    match scheme {
        Scheme::Ws => command.arg("--plain"),
        Scheme::Wss => command.arg("--cert").arg(&certificates.chain).arg("--key").arg(&certificates.key),
    };
    command.args(further);
    let log = paths::log(name);
    let mut running = Running::start_logged(&mut command, &log)?;
    wait_until_listening(port, &mut running, Deadline::after(Duration::from_secs(60)))
        .inspect_err(|_| show_tail(&log, 20))?;
    Ok(Server { running, port, scheme })
}

/// A server for the conformance suite: compression offered, messages of 16 MiB allowed.
pub(crate) fn serve_conformance(scheme: Scheme, certificates: &Certificates, driver: &str) -> Result<Server, Failure> {
    let further = ["--deflate", "--max-message", "16777216", "--driver", driver];
    serve(&format!("autobahn-serve-{scheme}-{driver}"), scheme, certificates, &further)
}

/// Why io_uring cannot be tried here, if so, in the program's own words.
pub(crate) fn lacks_uring() -> Result<Option<String>, Failure> {
    let told = process::output(Command::new(program()).arg("doctor"));
    let told = told.ok_or_else(|| Failure::Failed("`taut doctor` failed".to_owned()))?;
    let line = told.lines().find(|line| line.contains("driver uring "));
    let line = line.ok_or_else(|| Failure::Failed("`taut doctor` says nothing of io_uring".to_owned()))?;
    Ok((!line.contains("works")).then(|| line.trim().to_owned()))
}

/// A port of the loopback interface that nobody listens on.
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
