use std::time::Duration;
use tautline::{Io, Spin};

/// How bytes reach the wire.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DriverArguments {
    /// How bytes reach the wire: auto, epoll, uring, select, or spin, which asks the kernel without pause instead of
    /// sleeping.
    #[arg(long, value_name = "DRIVER", default_value_t = Io::Auto)]
    pub(crate) driver: Io,
    /// Seconds without any event after which `spin` sleeps until the next; `inf` never.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = idle)]
    pub(crate) spin_idle: Duration,
}

impl DriverArguments {
    pub(crate) fn spin(&self) -> Spin {
        Spin { idle: self.spin_idle, ..Spin::default() }
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
    fn idle_times_are_seconds_or_for_ever() {
        assert_eq!(idle("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(idle("inf"), Ok(Duration::MAX));
        for bad in ["-1", "NaN", "soon", "1e9"] {
            assert!(idle(bad).is_err(), "{bad}");
        }
    }
}
