use crate::{Driver, KernelTls, Spin, epoll, select};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Which driver, by name: `auto`, `epoll`, `uring`, `select`, `spin`, `uring-spin`.
///
/// [`choose`](Self::choose) turns the name into a type, once; behind it everything is static.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Io {
    /// The default: the one that can do everything, and is never much dearer than another, whatever the load. That is epoll
    /// on every kernel so far: io_uring costs less for many connections with messages of a few kilobytes at most, and no less
    /// for larger messages and for few connections (`docs/drivers.md` has the figures).
    #[default]
    Auto,
    /// Readiness by epoll(7), on every Linux.
    Epoll,
    /// Completions by io_uring(7), from Linux 6.12 on; epoll where the kernel has none or refuses it, and a warning in the
    /// log.
    Uring,
    /// Readiness by select(2): anywhere, for a few hundred connections, and slower with each.
    Select,
    /// epoll that asks again and again instead of sleeping, as [`Spin`] says: each time it asks, the kernel can poll the
    /// network card, which io_uring does only before it sleeps.
    Spin,
    /// io_uring that does so; where the kernel has none or refuses it, [`Spin`](Self::Spin), and a warning in the log.
    UringSpin,
}

/// What is done with the driver that was chosen.
pub trait Compose {
    /// What comes of it.
    type Output;

    /// Goes on with this type of driver; `open` opens one, on the thread that is to use it.
    fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> Self::Output;
}

impl Io {
    /// All names, the default first.
    pub const ALL: [Self; 6] = [Self::Auto, Self::Epoll, Self::Uring, Self::Select, Self::Spin, Self::UringSpin];

    /// The name that [`FromStr`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::Uring => "uring",
            Self::Select => "select",
            Self::Spin => "spin",
            Self::UringSpin => "uring-spin",
        }
    }

    /// Whether this driver works here, tried by opening it.
    ///
    /// # Errors
    /// Why it does not: the kernel is too old, or forbids it.
    pub fn probe(self) -> io::Result<()> {
        match self {
            Self::Uring | Self::UringSpin => try_uring(),
            Self::Select => select::Driver::new().map(drop),
            Self::Auto | Self::Epoll | Self::Spin => epoll::Driver::new().map(drop),
        }
    }

    /// Which of [`Epoll`](Self::Epoll), [`Uring`](Self::Uring) and [`Select`](Self::Select) this name means here. Says
    /// in the log where another one has to do than was asked for.
    #[must_use]
    pub fn here(self) -> Self {
        self.where_uring(try_uring)
    }

    /// The same where trying io_uring gives what `tried` does.
    fn where_uring(self, tried: impl FnOnce() -> io::Result<()>) -> Self {
        match self {
            Self::Auto | Self::Epoll | Self::Spin => Self::Epoll,
            Self::Select => Self::Select,
            Self::Uring | Self::UringSpin => match tried() {
                Ok(()) => Self::Uring,
                Err(error) => {
                    log::warn!("io_uring cannot be used, epoll is: {error}");
                    Self::Epoll
                }
            },
        }
    }

    /// Whether this driver can leave these records to the kernel. io_uring's receives bring no types of records.
    #[must_use]
    pub fn has_kernel_tls(self, halves: KernelTls) -> bool {
        match self.here() {
            Self::Uring => halves == KernelTls::Off,
            _ => true,
        }
    }

    /// Whether it asks again and again instead of sleeping.
    #[must_use]
    pub const fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::UringSpin)
    }

    /// Hands `then` the driver of this name. Where it [spins](Self::spins), it does so as `spin` says; `kernel_tls` are the
    /// records that it leaves to the kernel, where it [can](Self::has_kernel_tls).
    pub fn choose<C: Compose>(self, spin: &Spin, kernel_tls: KernelTls, then: C) -> C::Output {
        let spin = self.spins().then(|| spin.clone());
        match self.here() {
            #[cfg(feature = "uring")]
            Self::Uring => {
                let config = crate::uring::Config { spin, ..Default::default() };
                then.with(move || crate::uring::Driver::with(config.clone()))
            }
            Self::Select => {
                let config = select::Config { kernel_tls, ..Default::default() };
                then.with(move || select::Driver::with(config.clone()))
            }
            _ => {
                let config = epoll::Config { spin, kernel_tls, ..Default::default() };
                then.with(move || epoll::Driver::with(config.clone()))
            }
        }
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Io {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|io| io.name() == name);
        found.ok_or_else(|| format!("{name:?} is no driver; write {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Tried on a thread of its own: taking a ring down interrupts the system calls that its thread makes next.
#[cfg(feature = "uring")]
fn try_uring() -> io::Result<()> {
    let tried = std::thread::spawn(|| crate::uring::Driver::new().map(drop)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("trying it panicked")))
}

#[cfg(not(feature = "uring"))]
fn try_uring() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build is without the feature uring"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged;

    struct Name;

    impl Compose for Name {
        type Output = (&'static str, bool);

        fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> Self::Output {
            (D::NAME, open().is_ok())
        }
    }

    #[test]
    fn reads_what_it_prints() {
        for io in Io::ALL {
            assert_eq!(io.to_string().parse(), Ok(io));
        }
        assert!("kqueue".parse::<Io>().unwrap_err().contains("auto, epoll, uring, select, spin, uring-spin"));
    }

    #[test]
    fn every_name_opens_a_driver() {
        for io in Io::ALL {
            let (name, opened) = io.choose(&Spin::default(), KernelTls::Off, Name);
            assert!(opened, "{io}: {name}");
        }
        assert_eq!(Io::Epoll.choose(&Spin::default(), KernelTls::Off, Name).0, "epoll");
        assert_eq!(Io::Spin.choose(&Spin::default(), KernelTls::Off, Name).0, "epoll");
        assert_eq!(Io::Select.choose(&Spin::default(), KernelTls::Off, Name).0, "select");
        let best = if Io::Uring.probe().is_ok() { "io_uring" } else { "epoll" };
        assert_eq!(Io::Uring.choose(&Spin::default(), KernelTls::Off, Name).0, best);
        assert_eq!(Io::UringSpin.choose(&Spin::default(), KernelTls::Off, Name).0, best);
        assert_eq!(Io::Auto.choose(&Spin::default(), KernelTls::Off, Name).0, "epoll");
    }

    #[test]
    fn epoll_takes_over_from_a_ring_that_is_too_old_and_says_so_once() {
        let _ = logged::lines();
        let too_old = || Err(io::Error::other("made up for this test"));
        assert_eq!(Io::Uring.where_uring(too_old), Io::Epoll);
        let lines = logged::lines();
        let count =
            lines.iter().filter(|line| *line == "io_uring cannot be used, epoll is: made up for this test").count();
        assert_eq!(count, 1, "{lines:?}");
        assert_eq!(Io::Select.where_uring(|| unreachable!("nobody asked for it")), Io::Select);
    }
}
