//! The service manager that started this program: systemd, or another with its protocol (`sd_notify(3)`).

use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Tells the service manager how the program is; tells nobody where there is none. Clones tell the same one.
///
/// Its socket is opened once, before the program gives up its privileges.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    socket: Option<Arc<UnixDatagram>>,
    /// Time within which the manager expects a sign of life.
    watchdog: Option<Duration>,
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
        let variable = |name| env::var_os(name).filter(|_| socket.is_some());
        let watchdog = interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        Self { socket: socket.map(Arc::new), watchdog }
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

    /// This process is the main one from now on: a successor, or this one after a successor has failed.
    pub(crate) fn main_process(&self, number: u32) {
        self.tell(&format!("MAINPID={number}"));
    }

    /// The program ends within this time, and is not to be killed before.
    pub(crate) fn stopping(&self, within: Duration) {
        // Beyond it, some time for the end of the process.
        let micros = within.saturating_add(Duration::from_secs(10)).as_micros();
        self.tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}"));
    }

    /// Gives the manager signs of life, if it expects them, as long as `check` holds. It has to return within the given time.
    pub(crate) fn watch(&self, check: impl Fn(Duration) -> Result<(), tautline::Error> + Send + 'static) {
        let Some(within) = self.watchdog else { return };
        let own = self.clone();
        let watching = thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            loop {
                match check(within / 4) {
                    Ok(()) => own.tell("WATCHDOG=1"),
                    Err(error) => log::warn!("no sign of life to the service manager: {error:#}"),
                }
                thread::sleep(within / 4);
            }
        });
        if let Err(error) = watching {
            log::error!("cannot start the thread for the service manager's watchdog: {error}");
        }
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(state.as_bytes()) {
            log::warn!("cannot tell the service manager {state:?}: {error}");
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
    use super::{connect, interval};
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
