//! The service manager that started this program: systemd, or another with its protocol (`sd_notify(3)`).

use crate::keeper::{Request, Worker};
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tautline::{Address, activation};

/// Tells the service manager how the program is; tells nobody where there is none. Clones tell the same one.
///
/// Its socket is opened once, before the program gives up its privileges.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    way: Option<Way>,
    /// Time within which the manager expects a sign of life.
    watchdog: Option<Duration>,
    /// Whether another process is the main one. The manager refuses the words of this one then, and logs each.
    is_former: Arc<AtomicBool>,
}

/// The way to the service manager.
#[derive(Clone, Debug)]
enum Way {
    Socket(Arc<UnixDatagram>),
    /// The manager believes the keeper alone.
    Keeper(Worker),
}

/// Variables by which a service manager tells a process, by its number, what is meant for it.
const FOR_ONE_PROCESS: [&str; 5] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// Names a variable that tells a successor the TCP addresses of the sockets that a service manager has passed to the first
/// process. Each process of the row inherits it.
const ACTIVATED: &str = "TAUT_ACTIVATED";

/// The value of that variable, in the process that was passed the sockets.
static ADDRESSES: OnceLock<String> = OnceLock::new();

/// Takes the sockets that a service manager has passed to this process. To be called once, on the first thread.
pub(crate) fn take_sockets() -> io::Result<Vec<OwnedFd>> {
    let sockets: Vec<OwnedFd> = activation::take()?.into_iter().map(|passed| passed.socket).collect();
    if !sockets.is_empty() {
        let addresses = sockets.iter().map(activation::address).collect::<io::Result<Vec<_>>>()?;
        let tcp = addresses.iter().filter(|address| matches!(address, Address::Tcp(_)));
        let _ = ADDRESSES.set(tcp.map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }
    Ok(sockets)
}

/// The TCP addresses of the sockets that a service manager has passed to the first process of this row. `None` if it has passed
/// none.
pub(crate) fn passed_to_first() -> Option<Vec<Address>> {
    Some(addresses(env::var_os(ACTIVATED)?.to_str().unwrap_or("?")))
}

/// Understands the value of the variable. An address that is none stands for all interfaces: nothing is known of it.
fn addresses(text: &str) -> Vec<Address> {
    let unknown = || (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
    text.split_whitespace().map(|address| Address::Tcp(address.parse().unwrap_or_else(|_| unknown()))).collect()
}

impl Supervisor {
    /// The manager that the environment names.
    pub(crate) fn find() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|path| {
            let connected = connect(&path);
            connected
                .map_err(|error| log::warn!("cannot reach the service manager at {}: {error}", path.display()))
                .ok()
        });
        Self::with(socket.map(|socket| Way::Socket(Arc::new(socket))))
    }

    /// The manager of the keeper.
    pub(crate) fn behind(worker: &Worker) -> Self {
        Self::with(Some(Way::Keeper(worker.clone())))
    }

    fn with(way: Option<Way>) -> Self {
        let variable = |name| env::var_os(name).filter(|_| way.is_some());
        let watchdog = interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        Self { way, watchdog, is_former: Arc::default() }
    }

    /// Gives a new process the variables of this one that hold for it as well.
    ///
    /// The manager does not know it yet, so those that name a process are left out. Its watchdog is the same.
    pub(crate) fn pass_on(&self, to: &mut Command) {
        FOR_ONE_PROCESS.iter().for_each(|name| _ = to.env_remove(name));
        if let Some(addresses) = ADDRESSES.get() {
            to.env(ACTIVATED, addresses);
        }
        if let Some(within) = self.watchdog {
            to.env("WATCHDOG_USEC", within.as_micros().to_string());
        }
    }

    /// The program serves.
    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The program reads its configuration again. [`ready`](Self::ready) follows.
    pub(crate) fn reloading(&self) {
        // The manager sets reloads apart by this time.
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// A successor serves, and is the main process from now on.
    ///
    /// A manager that believes the main process alone (systemd's `NotifyAccess=main`) would refuse to hear from this one that it is
    /// the main one again. So nothing is told before the successor serves.
    pub(crate) fn main_process(&self, number: u32) {
        // The keeper stays the main one.
        if !matches!(self.way, Some(Way::Keeper(_))) {
            // Signs of life of the successor count from now on.
            self.tell(&format!("MAINPID={number}\nWATCHDOG=1"));
        }
        self.is_former.store(true, Ordering::Release);
    }

    /// Passes on what a worker tells about the service. Which process is the main one is not its choice.
    pub(crate) fn pass(&self, state: &str) {
        const PASSED: [&str; 7] =
            ["READY=", "RELOADING=", "STOPPING=", "WATCHDOG=1", "STATUS=", "MONOTONIC_USEC=", "EXTEND_TIMEOUT_USEC="];
        let lines = state.lines().filter(|line| PASSED.iter().any(|known| line.starts_with(known)));
        let state = lines.collect::<Vec<_>>().join("\n");
        if !state.is_empty() {
            self.tell(&state);
        }
    }

    /// The program ends within this time, and is not to be killed before.
    pub(crate) fn stopping(&self, within: Duration) {
        // Beyond it, some time for the end of the process.
        let micros = within.saturating_add(Duration::from_secs(10)).as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}"));
    }

    /// Gives the manager signs of life, as long as `check` holds, which has to return within the given time. `None` if the manager
    /// expects none.
    pub(crate) fn watch(
        &self,
        check: impl Fn(Duration) -> Result<(), tautline::Error> + Send + 'static,
    ) -> Option<impl FnOnce() + Send + 'static> {
        let (within, own) = (self.watchdog?, self.clone());
        Some(move || {
            // The time begins when the manager hears that the service is ready. It may hear only then of a new main process.
            loop {
                thread::sleep(within / 4);
                if own.is_former.load(Ordering::Acquire) {
                    return;
                }
                match check(within / 4) {
                    Ok(()) => own.tell("WATCHDOG=1"),
                    Err(error) => log::warn!("no sign of life to the service manager: {error:#}"),
                }
            }
        })
    }

    fn tell(&self, state: &str) {
        if self.is_former.load(Ordering::Acquire) {
            return;
        }
        match &self.way {
            None => {}
            Some(Way::Keeper(worker)) => worker.ask(&Request::Notify(state.to_owned())),
            Some(Way::Socket(socket)) => {
                if let Err(error) = socket.send(state.as_bytes()) {
                    log::warn!("cannot tell the service manager {state:?}: {error}");
                }
            }
        }
    }
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(path)?,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no path and no abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read delays nothing.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The time within which the manager expects a sign of life of the process `own`.
fn interval(micros: Option<OsString>, process: Option<OsString>, own: u32) -> Option<Duration> {
    let number = |text: OsString| text.to_str()?.parse::<u64>().ok();
    let is_meant = process.is_none_or(|process| number(process) == Some(u64::from(own)));
    let micros = micros.and_then(number).filter(|micros| is_meant && *micros > 0)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::{addresses, connect, interval};
    use std::ffi::OsStr;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::time::Duration;

    #[test]
    fn the_watchdog_is_meant_for_one_process() {
        let of = |micros: &str, process: Option<&str>| interval(Some(micros.into()), process.map(Into::into), 42);
        assert_eq!(of("3000000", None), Some(Duration::from_secs(3)));
        assert_eq!(of("3000000", Some("42")), Some(Duration::from_secs(3)));
        assert_eq!([of("3000000", Some("43")), of("0", None), of("soon", None), of("1", Some(""))], [None; 4]);
        assert_eq!(interval(None, None, 42), None);
    }

    #[test]
    fn unknown_addresses_of_passed_sockets_are_not_local() {
        let named = ["127.0.0.1:80", "[::1]:443"].map(|address| address.parse().unwrap());
        assert_eq!(addresses("127.0.0.1:80 [::1]:443"), named);
        let anywhere = || "0.0.0.0:0".parse().unwrap();
        assert_eq!((addresses("1"), addresses("? [::1]:443")), (vec![anywhere()], vec![anywhere(), named[1].clone()]));
        assert_eq!(addresses(""), []);
    }

    #[test]
    fn abstract_sockets_are_reached_and_other_names_refused() {
        let name = format!("taut-supervisor-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        connect(OsStr::new(&format!("@{name}"))).unwrap().send(b"READY=1").unwrap();
        let mut got = [0; 64];
        assert_eq!(manager.recv(&mut got).unwrap(), 7);
        for wrong in ["", "relative", "vsock:2:1234", "/nobody/listens/here"] {
            assert!(connect(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
