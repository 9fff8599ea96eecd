//! Active checks: a thread for each server whose backend has them. All loops see what they find.

use crate::balance::Server;
use crate::forward::ProxyProtocol;
use crate::plan::{Backend, Check, Endpoint, Place, Plan};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The checks of a plan. They end when it is dropped.
#[derive(Debug)]
pub struct Checks {
    _running: Vec<Sender<()>>,
}

impl Checks {
    /// Begins to check all servers whose backends have checks.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(plan: &Plan) -> io::Result<Self> {
        let mut running = Vec::new();
        for backend in &plan.backends {
            let Some(check) = &backend.check else {
                // A reload may have taken the checks away that found it unhealthy.
                backend.group.servers().iter().for_each(|server| server.set_healthy(true));
                continue;
            };
            for (server, endpoint) in backend.group.servers().iter().zip(&backend.endpoints) {
                let (end, ended) = channel();
                let watched = Watched::new(backend, (server, endpoint), check);
                thread::Builder::new().name("health".to_owned()).spawn(move || watched.run(&ended))?;
                running.push(end);
            }
        }
        Ok(Self { _running: running })
    }
}

/// One server that is checked.
struct Watched {
    backend: String,
    server: Arc<Server>,
    endpoint: Endpoint,
    /// The bytes with which its connections begin.
    preface: Vec<u8>,
    check: Check,
    streak: Streak,
}

impl Watched {
    fn new(backend: &Backend, (server, endpoint): (&Arc<Server>, &Endpoint), check: &Check) -> Self {
        let streak = Streak { is_healthy: server.is_healthy(), opposite: 0 };
        let (server, endpoint, check) = (server.clone(), endpoint.clone(), check.clone());
        let preface = backend.proxy_protocol.map(ProxyProtocol::of_check).unwrap_or_default();
        Self { backend: backend.name.clone(), server, endpoint, preface, check, streak }
    }

    fn run(mut self, ended: &Receiver<()>) {
        loop {
            let found = try_once(&self.endpoint, &self.preface, &self.check);
            // A plan has come meanwhile whose checks, or whose lack of them, decide.
            if ended.try_recv() == Err(TryRecvError::Disconnected) {
                return;
            }
            if let Some(is_healthy) = self.streak.next(found.is_ok(), &self.check) {
                self.server.set_healthy(is_healthy);
                let (backend, server) = (&self.backend, &self.server.name);
                match found {
                    Ok(()) => log::warn!("backend {backend:?}: the checks of {server} pass again, so it gets requests"),
                    Err(why) => log::warn!("backend {backend:?}: {server} is unhealthy and gets no requests: {why}"),
                }
            }
            if ended.recv_timeout(self.check.every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }
}

/// Results in a row that speak against what is believed.
#[derive(Clone, Copy, Debug)]
struct Streak {
    is_healthy: bool,
    opposite: u32,
}

impl Streak {
    /// Counts a result. Returns what is believed now, if that is new.
    fn next(&mut self, is_well: bool, check: &Check) -> Option<bool> {
        if is_well == self.is_healthy {
            self.opposite = 0;
            return None;
        }
        self.opposite = self.opposite.saturating_add(1);
        if self.opposite < if is_well { check.rise } else { check.fall } {
            return None;
        }
        *self = Self { is_healthy: is_well, opposite: 0 };
        Some(is_well)
    }
}

/// Connects, and asks for the path if there is one.
fn try_once(endpoint: &Endpoint, preface: &[u8], check: &Check) -> Result<(), String> {
    let end = Instant::now() + check.timeout;
    let request = [preface, &request(endpoint, check)].concat();
    match &endpoint.place {
        Place::Unix(path) => {
            let mut stream = connect_unix(path, end).map_err(|error| format!("cannot connect: {error}"))?;
            ask(&mut stream, &request, check, end)
        }
        Place::Tcp { host, port } => {
            let addresses = (host.as_str(), *port).to_socket_addrs();
            let addresses = addresses.map_err(|error| format!("cannot resolve {host}: {error}"))?;
            let mut why = format!("{host} has no address");
            for address in addresses {
                let stream = left(end).and_then(|time| TcpStream::connect_timeout(&address, time));
                match stream {
                    Ok(mut stream) => return ask(&mut stream, &request, check, end),
                    Err(error) => why = format!("cannot connect to {address}: {error}"),
                }
            }
            Err(why)
        }
    }
}

/// Connects to a Unix socket. A server that accepts nothing has a full queue, for which the kernel waits without a limit of its
/// own (unix(7)).
fn connect_unix(path: &Path, end: Instant) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(left(end)?))?;
    match connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket.into()),
        Err(Errno::AGAIN) => Err(io::Error::new(io::ErrorKind::TimedOut, "it accepts no connection")),
        Err(errno) => Err(errno.into()),
    }
}

/// The time that is left.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The request for the path, if there is one.
fn request(endpoint: &Endpoint, check: &Check) -> Vec<u8> {
    let host = endpoint.authority();
    let request = check.path.as_ref().map(|path| {
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: taut-health\r\nConnection: close\r\n\r\n")
    });
    request.unwrap_or_default().into()
}

/// Has reads and writes of a socket end with the check.
fn limit(socket: impl AsFd, end: Instant) -> io::Result<()> {
    let left = Some(left(end)?);
    set_socket_timeout(&socket, Timeout::Recv, left)?;
    Ok(set_socket_timeout(&socket, Timeout::Send, left)?)
}

fn ask(stream: &mut (impl Read + Write + AsFd), request: &[u8], check: &Check, end: Instant) -> Result<(), String> {
    const LINE: usize = "HTTP/1.1 200".len();
    let mut sent = || limit(&*stream, end).and_then(|()| stream.write_all(request));
    let Some(path) = &check.path else {
        return if request.is_empty() { Ok(()) } else { sent().map_err(|error| format!("it takes no bytes: {error}")) };
    };
    let failed = |error: io::Error| format!("no answer to GET {path}: {error}");
    sent().map_err(failed)?;
    let (mut line, mut filled) = ([0; LINE], 0);
    while filled < LINE {
        let read = limit(&*stream, end).and_then(|()| stream.read(&mut line[filled..]));
        match read {
            Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let status = line
        .strip_prefix(b"HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|code| std::str::from_utf8(code).ok().and_then(|code| code.parse::<u16>().ok()));
    match status {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("GET {path} was answered with status {status}")),
        None => Err(format!("GET {path} was not answered with HTTP/1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const fn check(path: Option<String>) -> Check {
        let (every, timeout) = (Duration::from_millis(1), Duration::from_secs(30));
        Check { path, every, timeout, fall: 3, rise: 2 }
    }

    #[test]
    fn only_results_in_a_row_change_what_is_believed() {
        let mut streak = Streak { is_healthy: true, opposite: 0 };
        let results = [false, false, true, false, false, false, true, false, true, true];
        let told: Vec<Option<bool>> = results.iter().map(|well| streak.next(*well, &check(None))).collect();
        let mut expected = [None; 10];
        (expected[5], expected[9]) = (Some(false), Some(true));
        assert_eq!(told, expected);
    }

    /// A server that gives each connection one of these answers.
    fn server(answers: &'static [&'static str]) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 1024];
                let _ = stream.read(&mut head);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Endpoint { tls: false, place: Place::Tcp { host: "127.0.0.1".to_owned(), port } }
    }

    #[test]
    fn a_check_passes_with_a_status_below_400() {
        let endpoint =
            server(&["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 503 No\r\n\r\n", "SSH-2.0-x some more", "HTT"]);
        let check = check(Some("/healthz".to_owned()));
        assert_eq!(try_once(&endpoint, &[], &check), Ok(()));
        for why in ["status 503", "not answered with HTTP/1", "no answer"] {
            let said = try_once(&endpoint, &[], &check).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let endpoint = Endpoint { tls: false, place: Place::Tcp { host: "127.0.0.1".to_owned(), port: closed } };
        assert!(try_once(&endpoint, &[], &self::check(None)).unwrap_err().contains("cannot connect"));
    }

    #[test]
    fn a_check_of_a_unix_socket_whose_queue_is_full_ends() {
        let path = std::env::temp_dir().join(format!("taut-health-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let (listener, address) = (socket(SocketFlags::CLOEXEC), SocketAddrUnix::new(&path).unwrap());
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let endpoint = Endpoint { tls: false, place: Place::Unix(path.clone()) };
        let check = Check { timeout: Duration::from_millis(100), ..check(None) };
        assert_eq!(try_once(&endpoint, &[], &check), Ok(()));
        let mut waiting = Vec::new();
        while {
            waiting.push(socket(SocketFlags::NONBLOCK));
            connect(waiting.last().unwrap(), &address) != Err(Errno::AGAIN)
        } {}
        let said = try_once(&endpoint, &[], &check).unwrap_err();
        assert!(said.contains("it accepts no connection"), "{said}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_check_that_a_reload_has_ended_decides_nothing() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "[[route]]\nto = \"app\"\n[backend.app]\nservers = [\"http://{closed}\"]\ncheck = {{ fall = 1 }}\n"
        );
        let plan = crate::config::parse(Path::new("t"), &text, None, Instant::now()).unwrap();
        let backend = &plan.backends[0];
        let (server, check) = (&backend.group.servers()[0], backend.check.as_ref().unwrap());
        let watched = || Watched::new(backend, (server, &backend.endpoints[0]), check);
        let (end, ended) = channel();
        drop(end);
        watched().run(&ended);
        assert!(server.is_healthy());
        let (end, ended) = channel();
        let watched = watched();
        let running = thread::spawn(move || watched.run(&ended));
        let begun = Instant::now();
        while server.is_healthy() {
            assert!(begun.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(5));
        }
        drop(end);
        running.join().unwrap();
    }
}
