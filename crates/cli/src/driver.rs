use crate::failure::Failure;
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
    /// Seconds without any event after which those that spin sleep until the next; `inf` never. Default: 1.
    #[arg(long, value_name = "SECONDS", value_parser = idle)]
    spin_idle: Option<Duration>,
    /// With `spin` and `uring-spin`: for how long the kernel may poll the network card's queue in one call. Default: 50.
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    spin_busy_poll: Option<u32>,
    /// With `spin` and `uring-spin`: most packets that it takes from the card in one such poll. Default: 64.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..))]
    spin_budget: Option<u16>,
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
        let default = Spin::default();
        Spin {
            idle: self.spin_idle.unwrap_or(default.idle),
            busy_poll: self.spin_busy_poll.map_or(default.busy_poll, |micros| Duration::from_micros(micros.into())),
            budget: self.spin_budget.unwrap_or(default.budget),
        }
    }

    /// Whether the kernel is to seal or to open records.
    pub(crate) fn leaves_records(&self) -> bool {
        self.ktls != KernelTls::Off
    }

    /// # Errors
    /// An option is for other drivers: who gives it believes in something that does not happen.
    pub(crate) fn way(&self) -> Result<Way, Failure> {
        if let Some((option, drivers)) = self.useless() {
            return Err(Failure::usage(format!("{option} needs --driver {drivers}, or leave it out")));
        }
        let way = match &self.driver {
            Choice::Io(io) => Way::new(*io, self.spin()),
            #[cfg(feature = "xdp")]
            Choice::Xdp { interface, spin } => Way::xdp(self.xdp(interface, *spin)),
        };
        let way = way.with_kernel_tls(self.ktls);
        Ok(match self.zero_copy {
            Some(bytes) => way.zero_copy(bytes as usize),
            None => way,
        })
    }

    /// An option that the driver does not have, and those that do.
    fn useless(&self) -> Option<(&'static str, &'static str)> {
        let is_uring = matches!(self.driver, Choice::Io(Io::Uring | Io::UringSpin));
        let kernel_spins = matches!(self.driver, Choice::Io(io) if io.spins());
        let (uring, spin) = ("uring or uring-spin", "spin or uring-spin");
        #[cfg(not(feature = "xdp"))]
        let (spins, any_spin) = (kernel_spins, spin);
        #[cfg(feature = "xdp")]
        let spins = kernel_spins || matches!(self.driver, Choice::Xdp { spin: true, .. });
        #[cfg(feature = "xdp")]
        let any_spin = "spin, uring-spin or xdp-spin:INTERFACE";
        let wrong = [
            ("--zero-copy", self.zero_copy.is_some() && !is_uring, uring),
            ("--spin-idle", self.spin_idle.is_some() && !spins, any_spin),
            ("--spin-busy-poll", self.spin_busy_poll.is_some() && !kernel_spins, spin),
            ("--spin-budget", self.spin_budget.is_some() && !kernel_spins, spin),
        ];
        let wrong = wrong.into_iter().find(|(_, wrong, _)| *wrong).map(|(option, _, drivers)| (option, drivers));
        #[cfg(feature = "xdp")]
        let wrong = wrong.or_else(|| {
            let xdp = "xdp:INTERFACE or xdp-spin:INTERFACE";
            let is_kernel = matches!(self.driver, Choice::Io(_));
            let option = match (self.xdp_mtu, self.xdp_busy_poll) {
                (Some(_), _) => "--xdp-mtu",
                (None, Some(_)) => "--xdp-busy-poll",
                (None, None) => return None,
            };
            is_kernel.then_some((option, xdp))
        });
        wrong
    }

    #[cfg(feature = "xdp")]
    fn xdp(&self, interface: &str, spin: bool) -> tautline::layers::xdp::Config {
        use tautline::layers::xdp::{Config, Faults};

        let spin = if spin { self.spin().idle } else { Duration::ZERO };
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
            return name.parse().map(Self::Io).map_err(|why: String| {
                if cfg!(feature = "xdp") { format!("{why}, xdp:INTERFACE, xdp-spin:INTERFACE") } else { why }
            });
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
        let why = "xdp".parse::<Choice>().unwrap_err();
        assert!(why.contains("is no driver") && why.contains("xdp:INTERFACE") == cfg!(feature = "xdp"), "{why}");
        assert!("xdp:".parse::<Choice>().unwrap_err().contains("needs an interface"));
        for name in ["xdp:eth1", "xdp-spin:eth1"] {
            match name.parse::<Choice>() {
                Ok(choice) => assert_eq!(choice.to_string(), name),
                Err(error) => assert!(!cfg!(feature = "xdp") && error.contains("--features xdp"), "{error}"),
            }
        }
    }

    #[test]
    fn an_option_for_other_drivers_is_refused() {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            driver: DriverArguments,
        }

        let way = |arguments: &str| {
            let arguments = ["taut"].into_iter().chain(arguments.split_whitespace());
            let parsed = <Program as clap::Parser>::try_parse_from(arguments).map_err(|error| error.to_string())?;
            parsed.driver.way().map(drop).map_err(|failure| failure.to_string())
        };
        let mut wrong = vec![
            "--zero-copy 1000",
            "--driver spin --zero-copy 1000",
            "--spin-idle 1",
            "--driver uring --spin-idle 1",
            "--spin-budget 8",
            "--driver epoll --spin-busy-poll 10",
        ];
        let mut right = vec!["--driver uring-spin --spin-idle inf --zero-copy 9 --spin-budget 8 --spin-busy-poll 5"];
        if cfg!(feature = "xdp") {
            wrong.extend(["--xdp-mtu 1400", "--driver spin --xdp-busy-poll 9", "--driver xdp-spin:e --spin-budget 8"]);
            right.extend(["--driver xdp-spin:e --spin-idle 2 --xdp-mtu 1400", "--driver xdp:e --xdp-busy-poll 5"]);
        }
        for arguments in wrong {
            let why = way(arguments).unwrap_err();
            assert!(why.contains(" needs --driver "), "{arguments}: {why}");
        }
        for arguments in right {
            assert_eq!(way(arguments), Ok(()), "{arguments}");
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
