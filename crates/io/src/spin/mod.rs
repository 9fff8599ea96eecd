mod config;
mod sys;

pub use config::Spin;

use crate::socket::{self, Listening};
use crate::{Address, ListenOptions, Source};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

/// The options that the kernel was asked for, with its answers.
pub(crate) type Answers = Vec<(&'static str, Result<(), Errno>)>;

impl Spin {
    /// Asks the kernel to poll the card of a socket.
    pub(crate) fn socket(&self, socket: impl AsFd) -> Answers {
        let socket = socket.as_fd();
        vec![
            ("SO_BUSY_POLL", sys::busy_poll(socket, self)),
            ("SO_PREFER_BUSY_POLL", sys::prefer_busy_poll(socket, self)),
            ("SO_BUSY_POLL_BUDGET", sys::budget(socket, self)),
        ]
    }

    /// Asks the kernel to poll the cards of an epoll's sockets.
    pub(crate) fn epoll(&self, epoll: impl AsFd) -> Answers {
        vec![("EPIOCSPARAMS", sys::epoll(epoll, self))]
    }

    /// Whole microseconds that the kernel may poll.
    pub(crate) fn busy_poll_micros(&self) -> u32 {
        sys::micros(self.busy_poll)
    }

    /// Logs the kernel's answers.
    pub(crate) fn report(what: &str, answers: &Answers) {
        let text: Vec<String> = answers
            .iter()
            .map(|(name, answer)| match answer {
                Ok(()) => format!("{name} accepted"),
                Err(errno) => format!("{name} refused ({errno})"),
            })
            .collect();
        log::info!("{what} spins: {}", text.join(", "));
    }
}

/// How a driver waits: it sleeps, or it spins.
pub(crate) struct Spinner {
    spin: Option<Spin>,
    /// Start of the time in which nothing happened.
    idle_since: Option<Instant>,
    /// The log has the kernel's answers for outgoing connections.
    reported: bool,
}

impl Spinner {
    /// Makes a listening socket. If the driver spins, the kernel polls the socket's card.
    pub(crate) fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<Listening> {
        socket::listen(address, options).inspect(|socket| self.poll_card(socket))
    }

    /// Takes a listening socket that something else has made, like [`listen`](Self::listen).
    pub(crate) fn listen_on(&self, socket: OwnedFd) -> io::Result<Listening> {
        socket::listen_on(socket).inspect(|socket| self.poll_card(socket))
    }

    fn poll_card(&self, socket: &Listening) {
        if let (Some(spin), Address::Tcp(_)) = (&self.spin, &socket.address) {
            Spin::report(&socket.address.to_string(), &spin.socket(&socket.fd));
        }
    }

    /// Makes a socket that can be connected to `address`, from `source`. If the driver spins, the kernel polls the socket's
    /// card.
    pub(crate) fn stream(&mut self, address: &Address, source: &Source) -> io::Result<OwnedFd> {
        let socket = socket::stream(address, source)?;
        if let (Some(spin), Address::Tcp(_)) = (&self.spin, address) {
            let answers = spin.socket(&socket);
            // Only for the first connection: the kernel answers the same for all.
            if !mem::replace(&mut self.reported, true) {
                Spin::report(&format!("the connection to {address}"), &answers);
            }
        }
        Ok(socket)
    }

    pub(crate) const fn new(spin: Option<Spin>) -> Self {
        Self { spin, idle_since: None, reported: false }
    }

    /// Calls `ask` with the time that it may sleep, until it returns a number of ready events or `timeout` has passed.
    /// Returns that number, or 0.
    pub(crate) fn wait<E>(
        &mut self,
        timeout: Option<Duration>,
        mut ask: impl FnMut(Option<Duration>) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let Some(Spin { idle, .. }) = self.spin else { return ask(timeout) };
        let mut begun = None;
        loop {
            let ready = ask(Some(Duration::ZERO))?;
            if ready > 0 {
                self.idle_since = None;
                return Ok(ready);
            }
            let now = Instant::now();
            let passed = now - *begun.get_or_insert(now);
            if timeout.is_some_and(|timeout| passed >= timeout) {
                return Ok(0);
            }
            if now - *self.idle_since.get_or_insert(now) >= idle {
                let ready = ask(timeout.map(|timeout| timeout - passed))?;
                if ready > 0 {
                    self.idle_since = None;
                }
                return Ok(ready);
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged;
    use std::convert::Infallible;

    const IDLE: Duration = Duration::from_millis(100);

    fn spinner(idle: Duration) -> Spinner {
        Spinner::new(Some(Spin { idle, ..Spin::default() }))
    }

    #[test]
    fn the_kernel_says_what_it_accepts() {
        let spin = Spin::default();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(spin.epoll(&file).iter().chain(&spin.socket(&file)).all(|(_, answer)| answer.is_err()));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for (name, answer) in spin.socket(&socket) {
            // The test may lack the privilege, and the kernel may be built without the option.
            assert!(matches!(answer, Ok(()) | Err(Errno::PERM | Errno::NOPROTOOPT)), "{name}: {answer:?}");
        }
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        for (name, answer) in spin.epoll(&epoll) {
            assert!(
                matches!(answer, Ok(()) | Err(Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP)),
                "{name}: {answer:?}"
            );
        }
    }

    #[test]
    fn what_is_accepted_for_the_first_connection_is_logged() {
        let _ = logged::lines();
        let mut spinner = spinner(IDLE);
        let to = |port: u16| Address::Tcp(([192, 0, 2, 77], port).into());
        for port in 1..4 {
            spinner.stream(&to(port), &Source::default()).unwrap();
        }
        let mut lines = logged::lines();
        lines.retain(|line| line.contains("the connection to 192.0.2.77"));
        assert!(matches!(&lines[..], [line] if line.contains("SO_BUSY_POLL ")), "{lines:?}");
    }

    #[test]
    fn sleeps_only_after_nothing_happened_for_the_time() {
        let mut spinner = spinner(IDLE);
        let mut asked = Vec::new();
        let start = Instant::now();
        let waited = spinner.wait(None, |timeout| {
            asked.push(timeout);
            Ok::<_, Infallible>(usize::from(timeout.is_none()))
        });
        assert_eq!(waited, Ok(1));
        assert!(start.elapsed() >= IDLE);
        assert_eq!(asked.pop(), Some(None));
        assert!(asked.len() > 1 && asked.iter().all(|timeout| *timeout == Some(Duration::ZERO)));
        // Something happened: it spins again.
        let waited = spinner.wait(Some(IDLE / 2), |timeout| {
            assert_eq!(timeout, Some(Duration::ZERO));
            Ok::<_, Infallible>(0)
        });
        assert_eq!(waited, Ok(0));
    }

    #[test]
    fn the_idle_time_spans_waits() {
        let mut spinner = spinner(IDLE);
        let mut slept = false;
        let start = Instant::now();
        while !slept && start.elapsed() < Duration::from_secs(10) {
            let _ = spinner.wait(Some(IDLE / 4), |timeout| {
                slept |= timeout != Some(Duration::ZERO);
                Ok::<_, Infallible>(0)
            });
        }
        assert!(slept && start.elapsed() >= IDLE);
    }

    #[test]
    fn without_spinning_it_asks_once() {
        let waited =
            Spinner::new(None).wait(Some(IDLE), |timeout| Ok::<_, Infallible>(usize::from(timeout == Some(IDLE))));
        assert_eq!(waited, Ok(1));
    }
}
