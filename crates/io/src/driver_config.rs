use crate::{Driver, KernelTls, Spin, epoll, select, uring};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// A driver and its settings.
///
/// [`FromStr`] reads one of the [names](Self::NAMES); the configuration of a driver becomes one by `From`.
/// ```
/// # mod tautline { pub use tautline_io::DriverConfig; pub mod layers { pub mod io { pub use tautline_io::*; } } }
/// use tautline::layers::io::uring;
/// use tautline::DriverConfig;
/// let by_name: DriverConfig = "epoll".parse()?;
/// let mut config = uring::Config::default();
/// config.zero_copy = 65_536;
/// assert_eq!((by_name.name(), DriverConfig::from(config).name()), ("epoll", "uring"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DriverConfig {
    /// Readiness by epoll(7), on every Linux.
    Epoll(epoll::Config),
    /// Completions by io_uring(7), from Linux 6.12 on.
    Uring(uring::Config),
    /// Readiness by select(2): for a few hundred connections, and slower with each.
    Select(select::Config),
    /// A driver of another crate.
    External(Arc<dyn External>),
}

/// Opens the driver of another crate.
pub trait External: fmt::Debug + Send + Sync {
    /// The driver's name in configuration, logs and results: `xdp`.
    fn name(&self) -> &str;

    /// Most loops that can have such a driver at the same time.
    fn max_loops(&self) -> usize {
        usize::MAX
    }

    /// Opens a driver, on the thread that is to use it.
    ///
    /// # Errors
    /// The machine refuses the driver; the error says why.
    fn open(&self) -> io::Result<Box<dyn Driver>>;
}

impl DriverConfig {
    /// Every name, the default first.
    ///
    /// `auto` is the driver that can do everything and never costs much more than another, whatever the load. It is
    /// epoll on every kernel so far: io_uring costs less for many connections with messages of a few kilobytes at
    /// most, and no less for larger messages or few connections (`docs/drivers.md` has the figures). `spin` and
    /// `uring-spin` are epoll and io_uring that poll without sleeping, as [`Spin`] says.
    pub const NAMES: [&str; 6] = ["auto", "epoll", "uring", "select", "spin", "uring-spin"];

    /// The name in configuration, logs and results.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Epoll(config) if config.spin.is_some() => "spin",
            Self::Epoll(_) => "epoll",
            Self::Uring(config) if config.spin.is_some() => "uring-spin",
            Self::Uring(_) => "uring",
            Self::Select(_) => "select",
            Self::External(external) => external.name(),
        }
    }

    /// Whether this machine runs the driver, found by opening it.
    ///
    /// # Errors
    /// The kernel is too old for the driver, or forbids it.
    pub fn probe(&self) -> io::Result<()> {
        match self {
            Self::Uring(config) => try_uring(config),
            _ => self.open().map(drop),
        }
    }

    /// This configuration where the machine runs it, and otherwise the nearest one that it does run: epoll in place of
    /// io_uring. The log says so then.
    #[must_use]
    pub fn available(self) -> Self {
        self.available_after(try_uring)
    }

    fn available_after(self, probe: impl FnOnce(&uring::Config) -> io::Result<()>) -> Self {
        let Self::Uring(config) = self else { return self };
        match probe(&config) {
            Ok(()) => Self::Uring(config),
            Err(error) => {
                log::warn!("io_uring cannot be used, epoll is: {error}");
                Self::Epoll(epoll::Config { spin: config.spin, source: config.source, ..epoll::Config::default() })
            }
        }
    }

    /// Opens a driver, on the thread that is to use it.
    ///
    /// # Errors
    /// No descriptors are left, or the kernel refuses the driver.
    pub fn open(&self) -> io::Result<Box<dyn Driver>> {
        Ok(match self {
            Self::Epoll(config) => Box::new(epoll::Driver::with(config.clone())?),
            Self::Uring(config) => Box::new(uring::Driver::with(config.clone())?),
            Self::Select(config) => Box::new(select::Driver::with(config.clone())?),
            Self::External(external) => external.open()?,
        })
    }

    /// How the driver polls, if it does not sleep; `None` for the drivers of other crates too.
    pub const fn spin_mut(&mut self) -> Option<&mut Spin> {
        match self {
            Self::Epoll(config) | Self::Select(config) => config.spin.as_mut(),
            Self::Uring(config) => config.spin.as_mut(),
            Self::External(_) => None,
        }
    }

    /// Most loops that can have such a driver at the same time.
    #[must_use]
    pub fn max_loops(&self) -> usize {
        match self {
            Self::External(external) => external.max_loops(),
            _ => usize::MAX,
        }
    }

    /// Which TLS records the driver leaves to the kernel.
    #[must_use]
    pub const fn kernel_tls(&self) -> KernelTls {
        match self {
            Self::Epoll(config) | Self::Select(config) => config.kernel_tls,
            Self::Uring(_) | Self::External(_) => KernelTls::Off,
        }
    }

    /// Leaves these TLS records of established connections to the kernel.
    ///
    /// # Errors
    /// This driver cannot. The receives of io_uring bring no types of records.
    pub fn with_kernel_tls(mut self, kernel_tls: KernelTls) -> io::Result<Self> {
        match &mut self {
            Self::Epoll(config) | Self::Select(config) => config.kernel_tls = kernel_tls,
            _ if kernel_tls == KernelTls::Off => {}
            Self::Uring(_) | Self::External(_) => {
                let what = format!("the driver {} cannot leave records to the kernel; ", self.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, what + "epoll, spin and select can"));
            }
        }
        Ok(self)
    }

    /// Opens TCP connections from this address of the machine.
    ///
    /// # Errors
    /// This driver cannot.
    pub fn with_source(mut self, source: IpAddr) -> io::Result<Self> {
        match &mut self {
            Self::Epoll(config) | Self::Select(config) => config.source = Some(source),
            Self::Uring(config) => config.source = Some(source),
            Self::External(_) => {
                let what = format!("the driver {} cannot choose the address of connections", self.name());
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
        }
        Ok(self)
    }
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self::Epoll(epoll::Config::default())
    }
}

impl From<uring::Config> for DriverConfig {
    fn from(config: uring::Config) -> Self {
        Self::Uring(config)
    }
}

impl FromStr for DriverConfig {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let spin = Some(Spin::default());
        Ok(match name {
            "auto" => Self::default(),
            "epoll" => Self::Epoll(epoll::Config::default()),
            "spin" => Self::Epoll(epoll::Config { spin, ..epoll::Config::default() }),
            "uring" => Self::Uring(uring::Config::default()),
            "uring-spin" => Self::Uring(uring::Config { spin, ..uring::Config::default() }),
            "select" => Self::Select(select::Config::default()),
            _ => return Err(format!("{name:?} is no driver; write {}", Self::NAMES.join(", "))),
        })
    }
}

/// Opens a ring on a thread of its own: taking a ring down interrupts the system calls that its thread makes next.
fn try_uring(config: &uring::Config) -> io::Result<()> {
    let config = config.clone();
    let tried = std::thread::spawn(|| uring::Driver::with(config).map(drop)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("opening a ring panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logged;

    #[test]
    fn reads_every_name() {
        for name in &DriverConfig::NAMES[1..] {
            assert_eq!(name.parse::<DriverConfig>().unwrap().name(), *name);
        }
        assert_eq!("auto".parse::<DriverConfig>().unwrap().name(), DriverConfig::default().name());
        let why = "kqueue".parse::<DriverConfig>().unwrap_err();
        assert!(why.contains("auto, epoll, uring, select, spin, uring-spin"), "{why}");
    }

    #[test]
    fn every_available_configuration_opens_its_driver() {
        for name in DriverConfig::NAMES {
            let config = name.parse::<DriverConfig>().unwrap().available();
            let driver = config.open().unwrap();
            let expected = match config.name() {
                "uring" | "uring-spin" => "io_uring",
                "select" => "select",
                _ => "epoll",
            };
            assert_eq!(driver.name(), expected, "{name}");
        }
    }

    #[test]
    fn epoll_replaces_a_ring_that_the_kernel_refuses_and_the_log_says_so_once() {
        let _ = logged::lines();
        let too_old = |_: &uring::Config| Err(io::Error::other("made up for this test"));
        let spin = "uring-spin".parse::<DriverConfig>().unwrap().available_after(too_old);
        assert_eq!(spin.name(), "spin");
        let lines = logged::lines();
        let count =
            lines.iter().filter(|line| *line == "io_uring cannot be used, epoll is: made up for this test").count();
        assert_eq!(count, 1, "{lines:?}");
        let select = DriverConfig::Select(select::Config::default());
        assert_eq!(select.available_after(|_| unreachable!("no ring was asked for")).name(), "select");
    }

    #[test]
    fn a_driver_without_kernel_tls_refuses_it() {
        let uring = DriverConfig::from(uring::Config::default());
        assert!(uring.clone().with_kernel_tls(KernelTls::Off).is_ok());
        let why = uring.with_kernel_tls(KernelTls::Transmit).unwrap_err().to_string();
        assert!(why.contains("epoll, spin and select can"), "{why}");
        let select = DriverConfig::Select(select::Config::default()).with_kernel_tls(KernelTls::Both).unwrap();
        assert_eq!(select.kernel_tls(), KernelTls::Both);
    }
}
