use super::Lab;
use super::certificates::Certificates;
use super::peer::Peer;
use crate::baselines::Model;
use crate::cpu::{Pinned, Placement};
use crate::{Error, Protocol, load};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tautline::Roots;
use tautline::layers::io::Io;

/// How long a server gets to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a server gets until it accepts connections.
const START: Duration = Duration::from_secs(20);

/// Kind of the certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    P256,
    Ed25519,
    Rsa2048,
    Rsa4096,
}

impl Key {
    /// Name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Ed25519 => "ed25519",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa4096 => "rsa4096",
        }
    }
}

/// Where a server does expensive handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    /// In the loop.
    Inline,
    /// On threads beside it.
    Offload,
}

/// Who serves whom, and who seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) model: Model,
    pub(super) engine: &'static str,
    pub(super) threads: usize,
    /// Answers with what is asked for, not with what comes.
    pub(super) is_source: bool,
    /// From which size on others help to seal.
    pub(super) shared_from: Option<usize>,
}

/// What a feed sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feed {
    /// Market data in bursts.
    Market,
    /// Messages of so many bytes, so many a second.
    Steady { size: u32, rate: u32 },
}

/// A composition to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bare TCP echo on a driver: the limit.
    Tcp(Io),
    /// WebSocket without TLS.
    Ws(Io),
    /// WebSocket over TLS by an engine, with a key.
    Wss(&'static str, Key, Io),
    /// The same, to shake hands with.
    Shakes(&'static str, Key, Io, Execution),
    /// WebSocket over TLS by an engine; every message goes to everyone, compressed or not.
    Broadcast(&'static str, bool, Io),
    /// WebSocket over TLS by the default engine; a feed goes to everyone: made-up market data, or numbered messages of one
    /// size at a steady rate.
    Feed(Feed, Io),
    /// WebSocket over TLS by the default engine, with the probe of messages' stages or without.
    Probed(bool, Io),
    /// WebSocket over TLS by the default engine, on what `--driver` calls so.
    Wire(&'static str),
    /// Another project's server, with TLS or without.
    Peer(Peer, Protocol),
    /// A server of [`baselines`](crate::baselines), its loops on CPUs of their own and all else where there is room.
    Model(Way),
    /// No server: the AEAD calls that a message costs at least, in this process.
    Aead,
}

impl Kind {
    /// What carries messages; nothing does for the AEAD alone.
    pub(super) const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Tcp(_) => Some(Protocol::Tcp),
            Self::Ws(_) => Some(Protocol::Ws),
            Self::Wss(..)
            | Self::Shakes(..)
            | Self::Broadcast(..)
            | Self::Feed(..)
            | Self::Probed(..)
            | Self::Wire(_)
            | Self::Model(_) => Some(Protocol::Wss),
            Self::Peer(_, protocol) => Some(protocol),
            Self::Aead => None,
        }
    }

    /// TLS engine, of ours and of the peers'.
    pub(super) fn engine(self) -> Option<&'static str> {
        match self {
            Self::Wss(engine, ..) | Self::Shakes(engine, ..) | Self::Broadcast(engine, ..) => Some(engine),
            Self::Model(way) => Some(way.engine),
            Self::Feed(..) | Self::Probed(..) | Self::Wire(_) => Some(super::ENGINES[0]),
            Self::Peer(peer, Protocol::Wss) => Some(peer.tls()),
            _ => None,
        }
    }

    /// Driver, where it is ours.
    pub(super) const fn driver(self) -> Option<Io> {
        match self {
            Self::Tcp(driver)
            | Self::Ws(driver)
            | Self::Wss(_, _, driver)
            | Self::Shakes(_, _, driver, _)
            | Self::Broadcast(_, _, driver)
            | Self::Feed(_, driver)
            | Self::Probed(_, driver) => Some(driver),
            Self::Peer(..) | Self::Wire(_) | Self::Model(_) | Self::Aead => None,
        }
    }

    pub(super) const fn peer(self) -> Option<Peer> {
        match self {
            Self::Peer(peer, _) => Some(peer),
            _ => None,
        }
    }

    /// Key of its certificate, where it has one.
    pub(super) const fn key(self) -> Key {
        match self {
            Self::Wss(_, key, _) | Self::Shakes(_, key, ..) => key,
            _ => Key::P256,
        }
    }

    /// Whether it is ours, by this engine.
    pub(super) fn is_wss_by(self, engine: &str) -> bool {
        matches!(self, Self::Wss(of, ..) if of == engine)
    }

    /// Name in tables, next to the driver's: `wss fused`.
    pub(super) fn name(self) -> String {
        let protocol = self.protocol().map_or("aead", Protocol::name);
        match self {
            Self::Peer(peer, _) => format!("{protocol} {}", peer.name()),
            Self::Wire(driver) => format!("{protocol} {driver}"),
            Self::Wss(engine, ..) => format!("{protocol} {engine}"),
            Self::Shakes(engine, key, _, execution) => format!("{protocol} {engine} {} {execution:?}", key.name()),
            Self::Model(Way { model, engine, threads, shared_from, .. }) => {
                let shared = if shared_from.is_some() { ", shared" } else { "" };
                format!("{model} {engine} {threads}{shared}")
            }
            _ => protocol.to_owned(),
        }
    }

    /// The driver's name in tables; a dash where there is none of ours.
    pub(super) fn driver_name(self) -> &'static str {
        self.driver().map_or("-", Io::name)
    }

    /// Both names: `wss fused uring`.
    pub(super) fn full_name(self) -> String {
        self.driver().map_or_else(|| self.name(), |driver| format!("{} {driver}", self.name()))
    }

    fn arguments(self, certificates: &Certificates, at: IpAddr) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = match self {
            Self::Tcp(_) => vec!["tcp-echo".into()],
            Self::Peer(peer, _) => vec![peer.name().into()],
            Self::Model(_) => vec!["model".into()],
            _ => ["serve", "--shards", "1", "--drain", "1"].map(OsString::from).to_vec(),
        };
        arguments.extend(["--with-parent", "--listen"].map(OsString::from));
        arguments.push(SocketAddr::new(at, 0).to_string().into());
        // Over epoll the limit is a loop written by hand, which costs less than any driver could.
        if let Some(driver) = self.driver().filter(|_| self != Self::Tcp(Io::Epoll)) {
            arguments.extend(["--driver".into(), driver.name().into()]);
        }
        match self {
            Self::Ws(_) => arguments.push("--plain".into()),
            Self::Wss(engine, key, _) => {
                arguments.extend(["--tls".into(), engine.into()]);
                // Where a library signs so slowly that it is done beside the loop, thousands who come at once are refused.
                if key == Key::P256 {
                    arguments.extend(["--handshake-threads", "0"].map(OsString::from));
                }
            }
            Self::Shakes(engine, _, _, execution) => {
                arguments.extend(["--tls".into(), engine.into()]);
                arguments.extend(
                    match execution {
                        Execution::Inline => ["--handshake-threads", "0"],
                        // Its threads get what others leave them: on a busy machine, a refusal would end the measurement.
                        Execution::Offload => ["--handshake-max-wait", "20000"],
                    }
                    .map(OsString::from),
                );
            }
            Self::Probed(probed, _) => arguments.extend(probed.then(|| "--stages".into())),
            Self::Wire(driver) => arguments.extend(["--driver", driver].map(OsString::from)),
            Self::Broadcast(engine, deflate, _) => {
                let broadcast = ["--app", "broadcast", "--handshake-threads", "0", "--tls", engine];
                arguments.extend(broadcast.map(OsString::from));
                arguments.extend(deflate.then(|| "--deflate".into()));
            }
            Self::Feed(Feed::Market, _) => arguments.extend(["--app", "market"].map(OsString::from)),
            Self::Feed(Feed::Steady { size, rate }, _) => {
                arguments.extend(["--app", "feed", "--feed-size"].map(OsString::from));
                arguments.push(size.to_string().into());
                arguments.extend(["--feed-rate".into(), rate.to_string().into()]);
            }
            Self::Model(way) => {
                let Way { model, engine, threads, is_source, shared_from } = way;
                let threads = threads.to_string();
                arguments.extend(["--model", model.name(), "--tls", engine, "--threads", &threads].map(OsString::from));
                arguments.extend(is_source.then(|| "--source".into()));
                let from = shared_from.map(|size| ["--offload-records".into(), size.to_string().into()]);
                arguments.extend(from.into_iter().flatten());
            }
            Self::Tcp(_) | Self::Peer(..) | Self::Aead => {}
        }
        if self.protocol() == Some(Protocol::Wss) {
            let (chain, private) = certificates.paths(self.key());
            arguments.extend(["--cert".into(), chain.into(), "--key".into(), private.into()]);
        }
        arguments
    }
}

/// Where a server runs that is not to run on this machine's own network.
pub(super) struct Site {
    /// What starts a program there.
    pub(super) command: Command,
    /// Where it listens.
    pub(super) address: IpAddr,
}

/// A running server.
pub(super) struct Process {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    /// Of loops with a port each, all; else the one.
    pub(super) addresses: Vec<SocketAddr>,
    child: Child,
    authority: String,
}

impl Process {
    /// Starts it on the server's CPU and waits until it accepts connections.
    pub(super) fn start(lab: &Lab<'_>, kind: Kind, certificates: &Certificates) -> Result<Self, Error> {
        Self::start_at(lab, kind, certificates, None)
    }

    /// The same, where `site` says.
    pub(super) fn start_at(
        lab: &Lab<'_>,
        kind: Kind,
        certificates: &Certificates,
        site: Option<Site>,
    ) -> Result<Self, Error> {
        let failed = |what: String| Error::Failed(format!("cannot start the {} server: {what}", kind.full_name()));
        let program = match kind.peer() {
            None => &lab.program,
            Some(_) => lab.peers.as_ref().ok_or_else(|| failed("there is no program with peers".to_owned()))?,
        };
        let (mut command, at) = match site {
            None => (Command::new(program), IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Some(mut site) => {
                site.command.arg(program);
                (site.command, site.address)
            }
        };
        command.args(kind.arguments(certificates, at)).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Kind::Probed(true, _) = kind {
            // It would tell its stages at the end, which are not what is asked for.
            command.stderr(Stdio::null());
        }
        let Placement { server, load } = lab.placement;
        if let Kind::Model(_) = kind {
            command.args([server, load].map(|cpu| format!("--cpu={cpu}")));
        }
        // What is started here runs where this thread runs.
        let pinned = match kind {
            // It places its loops itself.
            Kind::Model(_) => Pinned::to_any(&[server, load]),
            _ => Pinned::to(server),
        }?;
        let mut child = command.spawn().map_err(|error| failed(format!("{}: {error}", program.display())))?;
        drop(pinned);
        let line = child.stdout.take().and_then(|out| first_line(out, START));
        let addresses = line.as_deref().map(addresses).unwrap_or_default();
        let Some(&address) = addresses.first() else {
            // It has said why on standard error, or is about to.
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("it did not come to accept connections".to_owned()));
        };
        Ok(Self { kind, address, addresses, child, authority: certificates.authority().to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server, for the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        let scheme = self.kind.protocol().map_or("tcp", Protocol::name);
        // The name is one that the certificate has, wherever the server is.
        let host = if self.address.ip().is_loopback() {
            self.address.to_string()
        } else {
            format!("localhost:{}", self.address.port())
        };
        let mut server = load::Server::new(&format!("{scheme}://{host}/"))?;
        server.target.address = Some(self.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.pid());
        Ok(server)
    }
}

/// Where a server says that it listens.
fn addresses(line: &str) -> Vec<SocketAddr> {
    line.split_whitespace().filter_map(|word| word.split_once("://")?.1.parse().ok()).collect()
}

/// What a server says first; nothing where it ends or says nothing in time.
fn first_line(out: ChildStdout, patience: Duration) -> Option<String> {
    let (said, heard) = mpsc::sync_channel(1);
    // A server that never speaks is killed by whoever waits here, which ends this thread too.
    std::thread::spawn(move || {
        let mut line = String::new();
        if let Ok(1..) = BufReader::new(out).read_line(&mut line) {
            // Nobody waits any more: too late.
            let _ = said.send(line.trim().to_owned());
        }
    });
    heard.recv_timeout(patience).ok()
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
