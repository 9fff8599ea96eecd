use super::Lab;
use super::bindings::{echo_in_c, python};
use super::certificates::Certificates;
use super::group;
use super::key::Key;
use super::kind::{Extra, Kind};
use super::peer::{Peer, target};
use crate::cpu::{Pinned, Placement, move_thread};
use crate::load;
use crate::{Error, Protocol};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{File, read_to_string};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tautline::Roots;
use tautline::layers::io::machine::run_thread_when_idle;

/// Time for a server to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time for a server until it accepts connections.
const START: Duration = Duration::from_secs(20);

/// Running servers, one of each kind.
pub(super) struct Servers(Vec<Process>);

impl Servers {
    /// Starts one server of each kind. Their certificates lie on disk only while they start.
    pub(super) fn start(lab: &Lab<'_>, kinds: impl IntoIterator<Item = Kind>) -> Result<Self, Error> {
        Self::start_each(lab, kinds, |_, error| Err(error))
    }

    /// As [`start`](Self::start), but `on_failure` decides what happens if one does not start.
    pub(super) fn start_each(
        lab: &Lab<'_>,
        kinds: impl IntoIterator<Item = Kind>,
        mut on_failure: impl FnMut(Kind, Error) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let kinds = unique(kinds.into_iter().filter(|kind| !matches!(kind, Kind::Aead(_))));
        let keys: Vec<Key> = unique(kinds.iter().map(|kind| kind.key()));
        let certificates = Certificates::new(&keys)?;
        let mut servers = Vec::new();
        for kind in kinds {
            match Process::start(lab, kind, &certificates, None) {
                Ok(server) => servers.push(server),
                Err(error) => on_failure(kind, error)?,
            }
        }
        Ok(Self(servers))
    }

    /// The server of this kind.
    pub(super) fn of(&self, kind: Kind) -> Result<&Process, Error> {
        let server = self.0.iter().find(|server| server.kind == kind);
        server.ok_or_else(|| Error::Failed(format!("no {} server runs", kind.full_name())))
    }
}

/// Every item once, in the order of their first appearance.
pub(crate) fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.fold(Vec::new(), |mut unique, item| {
        if !unique.contains(&item) {
            unique.push(item);
        }
        unique
    })
}

/// Another network than this machine's own, for a server.
pub(super) struct Site {
    /// Command that starts a program there.
    pub(super) command: Command,
    /// Address of the server.
    pub(super) address: IpAddr,
}

/// A running server.
pub(super) struct Process {
    kind: Kind,
    pub(super) address: SocketAddr,
    /// All addresses, if each loop has its own port.
    pub(super) addresses: Vec<SocketAddr>,
    child: Child,
    authority: String,
}

impl Process {
    /// Starts a server on its CPU, at `site` if there is one, and waits until it accepts connections.
    pub(super) fn start(
        lab: &Lab<'_>,
        kind: Kind,
        certificates: &Certificates,
        site: Option<Site>,
    ) -> Result<Self, Error> {
        Self::start_with(lab, kind, certificates, site, &[])
    }

    /// As [`start`](Self::start), with further arguments.
    pub(super) fn start_with(
        lab: &Lab<'_>,
        kind: Kind,
        certificates: &Certificates,
        site: Option<Site>,
        arguments: &[&str],
    ) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start the {} server: {why}", kind.full_name()));
        let mut command = command(lab, kind, certificates, site).map_err(failed)?;
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        // Ctrl-C on the terminal is for this process, which ends its servers itself.
        command.process_group(0);
        if let Kind::Probed(true, _) = kind {
            // Its report of the stages is not needed.
            command.stderr(Stdio::null());
        }
        // It starts as one that serves users, and so has much to say, as its successors do.
        let log = matches!(kind, Kind::Proxy(_)).then(|| certificates.folder().join("proxy.log"));
        if let Some(log) = &log {
            command.stderr(File::create(log).map_err(|error| failed(format!("{}: {error}", log.display())))?);
        }
        let Placement { server, load } = lab.placement;
        if let Kind::Model(_) = kind {
            command.args([server, load].map(|cpu| format!("--cpu={cpu}")));
        }
        // A new process runs on the CPUs of the thread that starts it.
        let pinned = match kind {
            // This server places its loops itself.
            Kind::Model(_) => Pinned::to_any(&[server, load]),
            Kind::Tokio(_, 2..) => Pinned::to_any(&[server, load]),
            _ => Pinned::to(server),
        }?;
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            failed(format!("{program}: {error}"))
        })?;
        drop(pinned);
        let line = child.stdout.take().and_then(|out| first_line(out, START));
        let addresses = line.as_deref().map(addresses).unwrap_or_default();
        let Some(&address) = addresses.first() else {
            // The server reports its reason on standard error, or in its log.
            let _ = child.kill();
            let _ = child.wait();
            let recipe = kind.peer().and_then(Peer::recipe);
            let words = recipe.and_then(|recipe| recipe.last_words(&target()));
            let words = words.or_else(|| Some(read_to_string(log?).ok()?.lines().last()?.to_owned()));
            let why = words.unwrap_or_default();
            return Err(failed(format!("it did not accept connections. {why}").trim_end().to_owned()));
        };
        Ok(Self { kind, address, addresses, child, authority: certificates.authority().to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Moves the server to this CPU, where it lets all others go first: its threads run while the CPU has nothing else to do.
    /// The lowest nice value would not do, since such a thread keeps the CPU for a slice of some milliseconds once it has it.
    pub(super) fn give_way_on(&self, cpu: usize) -> Result<(), Error> {
        self.with_threads(|thread| run_thread_when_idle(thread).and_then(|()| move_thread(thread, cpu)))
    }

    /// Moves the server to this CPU.
    pub(super) fn run_on(&self, cpu: usize) -> Result<(), Error> {
        self.with_threads(|thread| move_thread(thread, cpu))
    }

    fn with_threads(&self, act: impl Fn(u32) -> std::io::Result<()>) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot place a server: {error}"));
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid())).map_err(failed)? {
            let Ok(thread) = thread.map_err(failed)?.file_name().to_string_lossy().parse() else { continue };
            match act(thread) {
                // It has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                set => set.map_err(failed)?,
            }
        }
        Ok(())
    }

    /// Tells the server to stop.
    pub(super) fn stop(&self) {
        group::tell(self.pid(), Signal::TERM);
    }

    /// Ends the server at once.
    pub(super) fn kill(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
    }

    /// Whether the server ends by itself within `time`.
    pub(super) fn ends_within(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// The server as a target of the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        let scheme = self.kind.protocol().map_or("tcp", Protocol::name);
        // The certificate has this name at every site.
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

/// Command that starts the server of this kind, at `site` if there is one. `Err` has the reason why there is none.
fn command(lab: &Lab<'_>, kind: Kind, certificates: &Certificates, site: Option<Site>) -> Result<Command, String> {
    let peer = kind.peer();
    if let Some(recipe) = peer.and_then(Peer::recipe) {
        let mut command = recipe.command(&target()).map_err(|error| error.to_string())?;
        let (chain, private) = certificates.paths(kind.key());
        command.arg(if let Kind::PeerWith(Extra::Broadcast, _) = kind { "broadcast" } else { "echo" });
        command.args([chain, private]);
        return Ok(command);
    }
    let program = match (peer, kind) {
        (Some(peer), _) => &lab.program_of(peer).ok_or("there is no program with it")?,
        (None, Kind::Python(_)) => &python().ok_or("there is no interpreter with it")?,
        (None, Kind::C) => &echo_in_c().ok_or("it is not built")?,
        (None, _) => &lab.program,
    };
    let (mut command, at) = match site {
        None => (Command::new(program), IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Some(mut site) => {
            site.command.arg(program);
            (site.command, site.address)
        }
    };
    command.args(kind.arguments(certificates, at));
    Ok(command)
}

/// Addresses in the first line of a server's output.
fn addresses(line: &str) -> Vec<SocketAddr> {
    line.split_whitespace().filter_map(|word| word.split_once("://")?.1.parse().ok()).collect()
}

/// First line of a server's output; `None` if it ends or prints nothing in time.
fn first_line(out: ChildStdout, patience: Duration) -> Option<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    // The caller kills a silent server, which ends this thread too.
    std::thread::spawn(move || {
        let mut line = String::new();
        if let Ok(1..) = BufReader::new(out).read_line(&mut line) {
            // Fails if the caller no longer waits.
            let _ = sender.send(line.trim().to_owned());
        }
    });
    receiver.recv_timeout(patience).ok()
}

impl Drop for Process {
    fn drop(&mut self) {
        group::end(&mut self.child, PATIENCE);
    }
}
