use crate::cpu;
use crate::{Error, Latencies, Metric};
use std::time::{Duration, Instant};

/// Share of a CPU above which the load generator may limit the result.
const BUSY: f64 = 0.95;

/// Clocks of a measurement in progress.
#[derive(Debug)]
pub(crate) struct Meter {
    server_pid: Option<u32>,
    server: Duration,
    /// The server's ticks in its own code and in the kernel.
    ticks: (u64, u64),
    own: Duration,
    began: Instant,
}

impl Meter {
    /// Begins to measure, including the CPU time of the server if its process id is given.
    pub(crate) fn start(server_pid: Option<u32>) -> Result<Self, Error> {
        let server = server_time(server_pid)?;
        let ticks = server_ticks(server_pid);
        Ok(Self { server_pid, server, ticks, own: cpu::thread_time(), began: Instant::now() })
    }

    /// Beginning of the measurement.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// Ends the measurement of `count` messages or handshakes with these latencies.
    pub(crate) fn stop(self, count: u64, latencies: Latencies) -> Result<Measured, Error> {
        let elapsed = self.began.elapsed();
        let own_cpu = cpu::thread_time().saturating_sub(self.own);
        let server_cpu = server_time(self.server_pid)?.saturating_sub(self.server);
        let (user, system) = server_ticks(self.server_pid);
        let (user, system) = (user.saturating_sub(self.ticks.0), system.saturating_sub(self.ticks.1));
        let kernel_share = (user + system > 0).then(|| system as f64 / (user + system) as f64);
        let server_cpu = self.server_pid.map(|_| server_cpu);
        Ok(Measured { count, elapsed, latencies, own_cpu, server_cpu, kernel_share, received: None })
    }
}

fn server_time(pid: Option<u32>) -> Result<Duration, Error> {
    pid.map_or(Ok(Duration::ZERO), |pid| {
        cpu::process_time(pid).map_err(|error| {
            Error::Failed(format!(
                "cannot read the CPU time of the server, process {pid}: {error}; is it still running?"
            ))
        })
    })
}

/// Ticks of the server; zero if they cannot be read, after which no share is known.
fn server_ticks(pid: Option<u32>) -> (u64, u64) {
    pid.and_then(|pid| cpu::process_ticks(pid).ok()).unwrap_or_default()
}

/// Result of one measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Messages answered, or handshakes completed.
    pub count: u64,
    /// Time measured.
    pub elapsed: Duration,
    /// One latency per message or handshake.
    pub latencies: Latencies,
    /// CPU time of the measuring thread.
    pub own_cpu: Duration,
    /// CPU time of the server's process, if its id was given.
    pub server_cpu: Option<Duration>,
    /// Share of the server's CPU time that the kernel spent, 0 to 1.
    pub kernel_share: Option<f64>,
    /// Bytes that this side received, records and frames included, where they were counted.
    pub received: Option<u64>,
}

impl Measured {
    /// Messages or handshakes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }

    /// CPU time of the server per message or handshake, in us.
    #[must_use]
    pub fn server_cpu_each_us(&self) -> Option<f64> {
        let cpu = self.server_cpu.filter(|_| self.count > 0)?;
        Some(cpu.as_secs_f64() * 1e6 / self.count as f64)
    }

    /// Share of one CPU that the measuring thread used, 0 to 1.
    #[must_use]
    pub fn own_share(&self) -> f64 {
        self.own_cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Whether the load generator may have limited the rate.
    pub(crate) fn is_bounded(&self) -> bool {
        self.own_share() > BUSY
    }

    /// CPUs that the server used: 1.0 is one CPU all the time.
    #[must_use]
    pub fn server_share(&self) -> Option<f64> {
        Some(self.server_cpu?.as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// Throughput, transfer, latency and server CPU of echoed messages of `size` bytes each way.
    #[must_use]
    pub fn message_metrics(&self, size: usize) -> Vec<(Metric, f64)> {
        self.answer_metrics(2 * size)
    }

    /// Throughput, transfer, latency and server CPU of answers of `size` bytes to empty messages.
    pub(crate) fn answer_metrics(&self, size: usize) -> Vec<(Metric, f64)> {
        let mut metrics = vec![(Metric::Throughput, self.rate()), (Metric::Transfer, self.rate() * size as f64 / 1e6)];
        metrics.extend(self.latencies.metrics());
        if let Some(us) = self.server_cpu_each_us() {
            metrics.push((Metric::ServerCpuPerMsg, us));
            if let Some(kernel) = self.kernel_share {
                metrics.push((Metric::ServerUserPerMsg, us * (1.0 - kernel)));
                metrics.push((Metric::ServerKernelPerMsg, us * kernel));
            }
        }
        metrics
    }

    /// Rate, latency and CPU of handshakes: of each end, and of both together.
    #[must_use]
    pub fn handshake_metrics(&self) -> Vec<(Metric, f64)> {
        let mut metrics = vec![(Metric::Handshakes, self.rate())];
        metrics.extend(self.latencies.metrics());
        if self.count > 0 {
            let client = self.own_cpu.as_secs_f64() * 1e6 / self.count as f64;
            metrics.push((Metric::ClientCpuPerHandshake, client));
            if let Some(server) = self.server_cpu_each_us() {
                metrics.extend([(Metric::ServerCpuPerHandshake, server), (Metric::CpuPerHandshake, server + client)]);
            }
        }
        metrics
    }

    /// Warns if the load generator may have limited the rate.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.is_bounded().then(|| {
            format!(
                "the load generator used {:.0} % of its CPU, so the server could do more than this rate; \
                 its CPU time per message holds",
                self.own_share() * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(own_ms: u64, server_ms: Option<u64>) -> Measured {
        Measured {
            count: 50_000,
            elapsed: Duration::from_secs(1),
            latencies: Latencies::new(),
            own_cpu: Duration::from_millis(own_ms),
            server_cpu: server_ms.map(Duration::from_millis),
            kernel_share: None,
            received: None,
        }
    }

    #[test]
    fn metrics_have_their_units() {
        let metrics = measured(500, Some(200)).message_metrics(1000);
        assert_eq!(
            metrics,
            [(Metric::Throughput, 50_000.0), (Metric::Transfer, 100.0), (Metric::ServerCpuPerMsg, 4.0)]
        );
        let mut split = measured(500, Some(200));
        split.kernel_share = Some(0.75);
        let split = split.message_metrics(1000);
        assert_eq!(split[3..], [(Metric::ServerUserPerMsg, 1.0), (Metric::ServerKernelPerMsg, 3.0)]);
        let client = [(Metric::Handshakes, 50_000.0), (Metric::ClientCpuPerHandshake, 10.0)];
        assert_eq!(measured(500, None).handshake_metrics(), client);
        let server = [(Metric::ServerCpuPerHandshake, 4.0), (Metric::CpuPerHandshake, 14.0)];
        assert_eq!(measured(500, Some(200)).handshake_metrics(), [client, server].concat());
    }

    #[test]
    fn warns_of_a_busy_generator() {
        assert!(measured(960, None).warning().is_some());
        assert_eq!(measured(900, None).warning(), None);
    }

    #[test]
    fn refuses_a_process_that_does_not_exist() {
        assert!(Meter::start(Some(u32::MAX)).is_err());
    }
}
