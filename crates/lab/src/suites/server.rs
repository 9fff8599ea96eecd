use super::Lab;
use super::certificates::Certificates;
use crate::cpu::Pinned;
use crate::{Error, Protocol, load};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tautline::Roots;

/// How long a server gets to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Kind of the certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    P256,
    Rsa2048,
}

impl Key {
    /// Name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Rsa2048 => "rsa2048",
        }
    }
}

/// A composition to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bare TCP echo: the limit.
    Tcp,
    /// WebSocket without TLS.
    Ws,
    /// WebSocket over TLS by an engine, with a key.
    Wss(&'static str, Key),
}

impl Kind {
    pub(super) const fn protocol(self) -> Protocol {
        match self {
            Self::Tcp => Protocol::Tcp,
            Self::Ws => Protocol::Ws,
            Self::Wss(..) => Protocol::Wss,
        }
    }

    pub(super) const fn engine(self) -> Option<&'static str> {
        match self {
            Self::Wss(engine, _) => Some(engine),
            _ => None,
        }
    }

    /// Name in tables: `wss fused`.
    pub(super) fn name(self) -> String {
        self.engine().map_or_else(|| self.protocol().name().to_owned(), |engine| format!("wss {engine}"))
    }

    fn arguments(self, certificates: &Certificates) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = match self {
            Self::Tcp => vec!["tcp-echo".into()],
            _ => ["serve", "--shards", "1", "--drain", "1"].map(OsString::from).to_vec(),
        };
        arguments.extend(["--with-parent", "--listen", "127.0.0.1:0"].map(OsString::from));
        match self {
            Self::Tcp => {}
            Self::Ws => arguments.push("--plain".into()),
            Self::Wss(engine, key) => {
                let (chain, private) = certificates.paths(key);
                arguments.extend(["--tls".into(), engine.into()]);
                arguments.extend(["--cert".into(), chain.into(), "--key".into(), private.into()]);
            }
        }
        arguments
    }
}

/// A running server.
pub(super) struct Process {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    child: Child,
    authority: String,
}

impl Process {
    /// Starts it on the server's CPU and waits until it accepts connections.
    pub(super) fn start(lab: &Lab<'_>, kind: Kind, certificates: &Certificates) -> Result<Self, Error> {
        let failed = |what: String| Error::Failed(format!("cannot start the {} server: {what}", kind.name()));
        let mut command = Command::new(&lab.program);
        command.args(kind.arguments(certificates)).stdin(Stdio::null()).stdout(Stdio::piped());
        // What is started here runs where this thread runs.
        let pinned = Pinned::to(lab.placement.server)?;
        let mut child = command.spawn().map_err(|error| failed(format!("{}: {error}", lab.program.display())))?;
        drop(pinned);
        let mut line = String::new();
        let read = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let address = line.trim().rsplit_once("://").and_then(|(_, address)| address.parse().ok());
        let (Some(Ok(1..)), Some(address)) = (read, address) else {
            // It has said why on standard error, or is about to.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("it ended before it accepted connections".to_owned()));
        };
        Ok(Self { kind, address, child, authority: certificates.authority().to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server, for the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        let scheme = self.kind.protocol().name();
        let mut server = load::Server::new(&format!("{scheme}://{}/", self.address))?;
        server.target.address = Some(self.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.pid());
        Ok(server)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.pid())
            && let Some(pid) = Pid::from_raw(pid)
        {
            // Fails only where it has ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
