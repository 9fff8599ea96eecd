use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit};
use std::fs;
use tautline::layers::io::kernel;
use tautline_lab::DriverKind;

/// Whether the kernel offers a feature. If not, the reason or the remedy.
pub(super) type Support = Result<(), String>;

/// The kernel's features. Finding them out changes nothing that lasts.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The drivers, and whether they can be opened.
    pub(super) drivers: Vec<(DriverKind, Support)>,
    /// The features of the kernel's TLS, or the reason why there is none.
    pub(super) ktls: Result<kernel::Support, String>,
    pub(super) xdp: Support,
    pub(super) clocksource: Option<String>,
    /// Soft and hard limit of this process's descriptors.
    pub(super) descriptors: (u64, u64),
    /// Longest queue of connections that wait to be accepted.
    pub(super) backlog: Option<u64>,
    /// Local ports for outgoing connections.
    pub(super) ports: Option<u64>,
}

impl Kernel {
    pub(super) fn probe() -> Self {
        let version = line("/proc/sys/kernel/osrelease").map_or((0, 0), |release| version(&release));
        let limit = getrlimit(Resource::Nofile);
        Self {
            drivers: drivers(version, line("/proc/sys/kernel/io_uring_disabled").as_deref()),
            ktls: kernel::probe().map_err(|_| "module tls is not loaded: modprobe tls".to_owned()),
            xdp: xdp(socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).err()),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            descriptors: (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX)),
            backlog: line("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()),
            ports: line("/proc/sys/net/ipv4/ip_local_port_range").and_then(|text| ports(&text)),
        }
    }

    /// The drivers to measure. A spinning one needs a CPU for each end.
    pub(super) fn measurable(&self, cores: usize) -> Vec<DriverKind> {
        let works = self.drivers.iter().filter(|(_, support)| support.is_ok()).map(|(driver, _)| *driver);
        works.filter(|driver| cores > 1 || !matches!(driver, DriverKind::Spin | DriverKind::UringSpin)).collect()
    }
}

fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Major and minor number of a release such as `6.18.44-generic`.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Opens each driver for a moment.
fn drivers(version: (u32, u32), disabled: Option<&str>) -> Vec<(DriverKind, Support)> {
    let drivers =
        [DriverKind::Epoll, DriverKind::Uring, DriverKind::Select, DriverKind::Spin, DriverKind::UringSpin].into_iter();
    let why = |io, error: String| match io {
        DriverKind::Uring | DriverKind::UringSpin => io_uring(version, disabled, &error),
        _ => error,
    };
    drivers.map(|io| (io, io.probe().map_err(|error| why(io, error.to_string())))).collect()
}

/// The reason why io_uring does not work, with the remedy. Linux 6.12 has incrementally consumed buffers, which it needs.
fn io_uring(version: (u32, u32), disabled: Option<&str>, error: &str) -> String {
    match disabled {
        _ if version < (6, 12) => format!("Linux 6.12 or newer is needed, this is {}.{}", version.0, version.1),
        Some("2") => "disabled: sysctl kernel.io_uring_disabled=0".into(),
        Some("1") => "only for one group: sysctl kernel.io_uring_disabled=0".into(),
        _ => error.into(),
    }
}

fn xdp(error: Option<Errno>) -> Support {
    match error {
        None => Ok(()),
        Some(Errno::PERM | Errno::ACCESS) => Err("needs the capability CAP_NET_RAW".into()),
        Some(Errno::AFNOSUPPORT) => Err("the kernel is built without AF_XDP".into()),
        Some(error) => Err(error.to_string()),
    }
}

fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_ascii_whitespace().map(str::parse::<u64>);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some(high.checked_sub(low)? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_releases() {
        assert_eq!(version("6.18.44-generic"), (6, 18));
        assert_eq!(version("5.4-rc1"), (5, 4));
        assert_eq!(version("new"), (0, 0));
    }

    #[test]
    fn io_uring_needs_a_new_kernel_that_allows_it() {
        assert!(io_uring((6, 11), Some("2"), "error").contains("6.12"));
        assert!(io_uring((6, 18), Some("2"), "error").contains("io_uring_disabled"));
        assert!(io_uring((6, 18), Some("1"), "error").contains("group"));
        assert_eq!(io_uring((6, 18), Some("0"), "refused by a filter"), "refused by a filter");
    }

    #[test]
    fn epoll_and_select_always_work() {
        let drivers = drivers((6, 18), None);
        assert!(drivers.contains(&(DriverKind::Epoll, Ok(()))) && drivers.contains(&(DriverKind::Select, Ok(()))));
    }

    #[test]
    fn reports_af_xdp_and_local_ports() {
        assert_eq!(xdp(None), Ok(()));
        assert_ne!(xdp(Some(Errno::PERM)), xdp(Some(Errno::AFNOSUPPORT)));
        assert_eq!(ports("32768\t60999"), Some(28_232));
        assert_eq!(ports("9"), None);
    }
}
