use crate::failure::Failure;
use std::time::Duration;
use tautline::{DriverConfig, KernelTls, driver_named};
use tautline_probe::amount;

/// The driver, and the options of all drivers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriverArguments {
    /// Driver of the sockets: auto, epoll, uring, select, spin or uring-spin. The last two are epoll and io_uring that poll
    /// without sleeping. xdp:INTERFACE bypasses the kernel's TCP/IP stack, and xdp-spin:INTERFACE does not sleep either.
    #[arg(help_heading = "Driver", long, value_name = "DRIVER", default_value = "auto", value_parser = known)]
    pub(crate) driver: String,
    /// Seconds without an event after which a spinning driver sleeps until the next one; `inf` for never. Default: 1.
    #[arg(help_heading = "Driver", long, value_name = "SECONDS", value_parser = idle)]
    spin_idle: Option<Duration>,
    /// With `spin` and `uring-spin`: longest time that the kernel polls the network card's queue in one call. Default: 50.
    #[arg(help_heading = "Driver", long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    spin_busy_poll: Option<u32>,
    /// With `spin` and `uring-spin`: most packets that the kernel takes from the card in one such poll. Default: 64.
    #[arg(help_heading = "Driver", long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..))]
    spin_budget: Option<u16>,
    /// Leave records of established TLS 1.3 connections to the kernel: sent ones (tx), received ones (rx), or both. `auto`
    /// leaves sent ones, and received ones if the kernel can take new keys. Without TLS in the kernel, all records stay here,
    /// which is logged.
    #[arg(help_heading = "Driver", long, value_name = "HALVES", default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    ktls: KernelTls,
    /// With io_uring: least bytes that are sent without copying them. The network card must support it.
    #[arg(help_heading = "Driver", long, value_name = "BYTES", value_parser = amount::some_bytes)]
    zero_copy: Option<usize>,
    /// With `xdp`: most bytes of an IP packet, if a path takes fewer than the interface.
    #[cfg(feature = "xdp")]
    #[arg(help_heading = "Driver", long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..))]
    xdp_mtu: Option<u16>,
    /// With `xdp`: time that the kernel polls the network card within a system call, instead of using interrupts.
    #[cfg(feature = "xdp")]
    #[arg(help_heading = "Driver", long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    xdp_busy_poll: Option<u32>,
    /// For tests: frames in a million that are lost, and as many that are late, each way.
    #[cfg(feature = "xdp")]
    #[arg(long, hide = true, default_value_t = 0, value_name = "N")]
    xdp_harm: u32,
}

impl DriverArguments {
    /// Whether any records are left to the kernel.
    pub(crate) fn leaves_records(&self) -> bool {
        self.ktls != KernelTls::Off
    }

    /// Whether it has a TCP/IP stack of its own.
    pub(crate) fn bypasses_kernel(&self) -> bool {
        self.driver.starts_with("xdp")
    }

    /// The driver's name.
    pub(crate) fn name(&self) -> &str {
        &self.driver
    }

    /// The driver with its settings.
    ///
    /// # Errors
    /// If an option is for other drivers and would have no effect.
    pub(crate) fn config(&self) -> Result<DriverConfig, Failure> {
        let mut config = driver_named(&self.driver).map_err(Failure::usage)?;
        if let Some((option, drivers)) = self.useless(&mut config) {
            return Err(Failure::usage(format!("{option} needs --driver {drivers}, or leave it out")));
        }
        if let Some(spin) = config.spin_mut() {
            spin.idle = self.spin_idle.unwrap_or(spin.idle);
            spin.busy_poll = self.spin_busy_poll.map_or(spin.busy_poll, |micros| Duration::from_micros(micros.into()));
            spin.budget = self.spin_budget.unwrap_or(spin.budget);
        }
        if let (DriverConfig::Uring(config), Some(bytes)) = (&mut config, self.zero_copy) {
            config.zero_copy = bytes;
        }
        #[cfg(feature = "xdp")]
        if let Some((kind, interface)) = self.driver.split_once(':') {
            config = self.xdp(interface, kind == "xdp-spin").into();
        }
        config.with_kernel_tls(self.ktls).map_err(|error| Failure::usage(format!("--ktls: {error}")))
    }

    /// The first option that this driver does not have, and the drivers that have it.
    fn useless(&self, config: &mut DriverConfig) -> Option<(&'static str, &'static str)> {
        let is_uring = matches!(config, DriverConfig::Uring(_));
        let kernel_spins = config.spin_mut().is_some();
        let spins = kernel_spins || self.driver.starts_with("xdp-spin:");
        #[cfg(feature = "xdp")]
        let (is_xdp, xdp) = (matches!(config, DriverConfig::External(_)), "xdp:INTERFACE or xdp-spin:INTERFACE");
        let (uring, spin) = ("uring or uring-spin", "spin or uring-spin");
        let any_spin = if cfg!(feature = "xdp") { "spin, uring-spin or xdp-spin:INTERFACE" } else { spin };
        let options = [
            ("--zero-copy", self.zero_copy.is_some() && !is_uring, uring),
            ("--spin-idle", self.spin_idle.is_some() && !spins, any_spin),
            ("--spin-busy-poll", self.spin_busy_poll.is_some() && !kernel_spins, spin),
            ("--spin-budget", self.spin_budget.is_some() && !kernel_spins, spin),
            #[cfg(feature = "xdp")]
            ("--xdp-mtu", self.xdp_mtu.is_some() && !is_xdp, xdp),
            #[cfg(feature = "xdp")]
            ("--xdp-busy-poll", self.xdp_busy_poll.is_some() && !is_xdp, xdp),
        ];
        options.into_iter().find(|(_, useless, _)| *useless).map(|(option, _, drivers)| (option, drivers))
    }

    #[cfg(feature = "xdp")]
    fn xdp(&self, interface: &str, spin: bool) -> tautline::layers::xdp::Config {
        use tautline::layers::xdp::{Config, Faults};

        let mut config = Config::new(interface);
        let idle = self.spin_idle.unwrap_or_else(|| tautline::Spin::default().idle);
        config.spin = if spin { idle } else { Duration::ZERO };
        config.mtu = self.xdp_mtu;
        config.busy_poll = self.xdp_busy_poll.map(|micros| Duration::from_micros(micros.into()));
        let harm = self.xdp_harm;
        config.faults = (harm > 0).then_some(Faults { lost: harm, late: harm, seed: 1 });
        config
    }
}

/// The name, if a driver has it.
fn known(name: &str) -> Result<String, String> {
    driver_named(name).map(|_| name.to_owned())
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
    fn an_option_for_other_drivers_is_refused() {
        #[derive(clap::Parser)]
        struct Program {
            #[command(flatten)]
            driver: DriverArguments,
        }

        let config = |arguments: &str| {
            let arguments = ["taut"].into_iter().chain(arguments.split_whitespace());
            let parsed = <Program as clap::Parser>::try_parse_from(arguments).map_err(|error| error.to_string())?;
            parsed.driver.config().map(drop).map_err(|failure| failure.to_string())
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
            let why = config(arguments).unwrap_err();
            assert!(why.contains(" needs --driver "), "{arguments}: {why}");
        }
        for arguments in right {
            assert_eq!(config(arguments), Ok(()), "{arguments}");
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
