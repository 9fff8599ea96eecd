use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tautline::{Io, KernelTls, Spin, Way};

/// How bytes reach the wire.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriverArguments {
    /// How bytes reach the wire: auto, epoll, uring, select, or spin and uring-spin, which are epoll and io_uring that ask
    /// the kernel without pause instead of sleeping; xdp:INTERFACE goes past the kernel's TCP/IP stack, and
    /// xdp-spin:INTERFACE does not sleep either.
    #[arg(long, value_name = "DRIVER", default_value_t = Choice::Io(Io::Auto))]
    pub(crate) driver: Choice,
    /// Seconds without any event after which those that spin sleep until the next; `inf` never.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = idle)]
    pub(crate) spin_idle: Duration,
    /// Leave records of established TLS 1.3 connections to the kernel: those that are sent (tx), received (rx), both, or
    /// auto, which receives where the kernel takes new keys. Where it has no TLS, they stay here, and the log says so.
    #[arg(long, value_name = "HALVES", default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    ktls: KernelTls,
    /// With io_uring: send so many bytes or more without copying them, which needs a network card that can.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    zero_copy: Option<u32>,
    /// With `xdp`: most bytes of an IP packet, where a path takes fewer than the interface.
    #[cfg(feature = "xdp")]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    xdp_mtu: Option<u16>,
    /// With `xdp`: the kernel polls the network card for so long within system calls, instead of in interrupts.
    #[cfg(feature = "xdp")]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    xdp_busy_poll: Option<u32>,
    /// For tests: frames in a million that are lost, and as many that are late, each way.
    #[cfg(feature = "xdp")]
    #[arg(long, hide = true, default_value_t = 0, value_name = "N")]
    xdp_harm: u32,
}

/// A driver by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Over the kernel's sockets.
    Io(Io),
    /// Over this interface, without sleeping or not.
    #[cfg(feature = "xdp")]
    Xdp { interface: String, spin: bool },
}

impl DriverArguments {
    pub(crate) fn spin(&self) -> Spin {
        Spin { idle: self.spin_idle, ..Spin::default() }
    }

    pub(crate) fn way(&self) -> Way {
        let way = match &self.driver {
            Choice::Io(io) => Way::new(*io, self.spin()),
            #[cfg(feature = "xdp")]
            Choice::Xdp { interface, spin } => Way::xdp(self.xdp(interface, *spin)),
        };
        let way = way.with_kernel_tls(self.ktls);
        match self.zero_copy {
            Some(bytes) => way.zero_copy(bytes as usize),
            None => way,
        }
    }

    #[cfg(feature = "xdp")]
    fn xdp(&self, interface: &str, spin: bool) -> tautline::layers::xdp::Config {
        use tautline::layers::xdp::{Config, Faults};

        let spin = if spin { self.spin_idle } else { Duration::ZERO };
        let harm = self.xdp_harm;
        let faults = (harm > 0).then_some(Faults { lost: harm, late: harm, seed: 1 });
        let busy_poll = self.xdp_busy_poll.map(|micros| Duration::from_micros(micros.into()));
        Config { spin, mtu: self.xdp_mtu, busy_poll, faults, ..Config::new(interface) }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(io) => io.fmt(f),
            #[cfg(feature = "xdp")]
            Self::Xdp { interface, spin } => write!(f, "xdp{}:{interface}", if *spin { "-spin" } else { "" }),
        }
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let Some((kind @ ("xdp" | "xdp-spin"), interface)) = name.split_once(':') else {
            return name.parse().map(Self::Io);
        };
        if interface.is_empty() {
            return Err(format!("{kind}: needs an interface, as in {kind}:eth1"));
        }
        #[cfg(feature = "xdp")]
        return Ok(Self::Xdp { interface: interface.to_owned(), spin: kind == "xdp-spin" });
        #[cfg(not(feature = "xdp"))]
        Err("this program was built without AF_XDP; build it with `--features xdp`".to_owned())
    }
}

fn idle(text: &str) -> Result<Duration, String> {
    if text == "inf" {
        return Ok(Duration::MAX);
    }
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write seconds, as 0.5, or inf".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_have_names() {
        for name in ["auto", "epoll", "spin", "uring-spin"] {
            assert_eq!(name.parse::<Choice>().unwrap().to_string(), name);
        }
        assert!("xdp".parse::<Choice>().unwrap_err().contains("is no driver"));
        assert!("xdp:".parse::<Choice>().unwrap_err().contains("needs an interface"));
        for name in ["xdp:eth1", "xdp-spin:eth1"] {
            match name.parse::<Choice>() {
                Ok(choice) => assert_eq!(choice.to_string(), name),
                Err(error) => assert!(!cfg!(feature = "xdp") && error.contains("--features xdp"), "{error}"),
            }
        }
    }

    #[test]
    fn idle_times_are_seconds_or_for_ever() {
        assert_eq!(idle("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(idle("inf"), Ok(Duration::MAX));
        for bad in ["-1", "NaN", "soon", "1e9"] {
            assert!(idle(bad).is_err(), "{bad}");
        }
    }
}
