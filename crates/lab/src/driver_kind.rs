use std::fmt;
use std::io;
use std::str::FromStr;
use tautline::DriverConfig;
use tautline_measure::named;

named! {
    /// A driver to measure.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum DriverKind {
        /// The default of this machine.
        #[default]
        Auto = "auto",
        /// epoll(7).
        Epoll = "epoll",
        /// io_uring(7).
        Uring = "uring",
        /// select(2).
        Select = "select",
        /// epoll that polls without sleeping.
        Spin = "spin",
        /// io_uring that polls without sleeping.
        UringSpin = "uring-spin",
    }
}

impl DriverKind {
    /// The driver with its defaults.
    #[must_use]
    pub fn config(self) -> DriverConfig {
        // Every name of this type is one of `DriverConfig::NAMES`, which a test holds.
        self.name().parse().unwrap_or_default()
    }

    /// The driver that the name means on this machine: epoll in place of a ring that the kernel refuses.
    #[must_use]
    pub fn here(self) -> Self {
        match (self, self.probe()) {
            (Self::Auto | Self::Spin, _) | (Self::Uring | Self::UringSpin, Err(_)) => Self::Epoll,
            (Self::UringSpin, Ok(())) => Self::Uring,
            (same, _) => same,
        }
    }

    /// Whether this machine runs the driver.
    ///
    /// # Errors
    /// The kernel is too old for the driver, or forbids it.
    pub fn probe(self) -> io::Result<()> {
        self.config().probe()
    }
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DriverKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || format!("{name:?} is no driver; write {}", DriverConfig::NAMES.join(", "));
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_drivers() {
        assert_eq!(DriverKind::ALL.map(DriverKind::name), DriverConfig::NAMES);
        assert!("kqueue".parse::<DriverKind>().is_err());
    }
}
