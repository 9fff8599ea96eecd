use super::echo::Echo;
use super::handshakes::Handshakes;
use crate::{Error, Measured, Span};
use std::time::Duration;
use tautline::layers::io::machine::run_when_idle;

/// Messages in a row that a p99 is taken of.
const THOUSAND: usize = 1_000;

/// Messages over open connections while newcomers do full handshakes: the effect of newcomers on others.
///
/// The messages are an open loop, so a server loop that is busy with signatures delays every message that arrives
/// meanwhile. The clients of the newcomers work more than the server, but their work does not count as its latency. They
/// run on a separate thread, only while the thread of the messages is idle, and latencies are
/// [those of stamps](Echo::run_stamped). The server may refuse newcomers.
#[derive(Clone)]
pub(crate) struct Storm {
    /// The messages.
    pub(crate) echo: Echo,
    /// Newcomers being connected at a time; 0 for a quiet server.
    pub(crate) newcomers: usize,
    /// Newcomers per second, which then resume sessions.
    pub(crate) returning: Option<f64>,
}

/// Result of a [`Storm`].
#[derive(Clone, Debug)]
pub(crate) struct StormLatency {
    /// Rate and latencies of the messages.
    pub(crate) messages: Measured,
    /// Typical p99 in us: the median of the p99 of each thousand messages in a row.
    ///
    /// Shared hosts stall once or twice a second, for longer than any measured latency. One such stall would be the p99
    /// of all messages.
    pub(crate) p99: f64,
    /// Handshakes of newcomers per second.
    pub(crate) handshakes: f64,
    /// Newcomers per second that the server refused.
    pub(crate) refused: f64,
}

impl Storm {
    /// Connects, starts the newcomers and measures.
    pub(crate) fn run(&self) -> Result<StormLatency, Error> {
        if self.newcomers == 0 {
            let (messages, latencies) = self.echo.run_stamped(&mut |_| {})?;
            return Ok(StormLatency { messages, p99: typical_p99(latencies), handshakes: 0.0, refused: 0.0 });
        }
        // The storm begins while the connections of the echo are opened, and has settled when the echo is measured.
        let Span { warmup, duration } = self.echo.span;
        let settle = warmup / 2;
        let newcomers = Handshakes {
            server: self.echo.server.clone(),
            at_once: self.newcomers,
            resumed: self.returning.is_some(),
            may_refuse: true,
            rate: self.returning,
            span: Span { warmup: settle, duration: warmup + duration - settle + Duration::from_millis(100) },
        };
        let storm = std::thread::spawn(move || {
            if let Err(error) = run_when_idle() {
                log::warn!("newcomers run at the priority of messages: {error}");
            }
            newcomers.run(&mut |_| {})
        });
        let messages = self.echo.run_stamped(&mut |_| {});
        let newcomers = storm.join().map_err(|_| Error::Failed("the thread of the newcomers panicked".to_owned()))?;
        let ((messages, latencies), newcomers) = (messages?, newcomers?);
        let (handshakes, refused) = (newcomers.measured.rate(), newcomers.refused_rate());
        Ok(StormLatency { messages, p99: typical_p99(latencies), handshakes, refused })
    }
}

/// Median p99 of each thousand latencies in us, or the p99 of all if there are fewer.
pub(crate) fn typical_p99(mut latencies: Vec<Duration>) -> f64 {
    let len = latencies.len().clamp(1, THOUSAND);
    let p99 = |thousand: &mut [Duration]| {
        thousand.sort_unstable();
        thousand[(thousand.len() * 99).div_ceil(100) - 1].as_secs_f64() * 1e6
    };
    let mut p99s: Vec<_> = latencies.chunks_exact_mut(len).map(p99).collect();
    p99s.sort_unstable_by(f64::total_cmp);
    p99s.get(p99s.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::typical_p99;
    use std::time::Duration;

    #[test]
    fn a_single_stall_is_left_out_and_a_stall_in_each_thousand_counts() {
        let us = Duration::from_micros;
        let calm: Vec<_> = (0..5_000).map(|number| us(number % 100)).collect();
        assert_eq!(typical_p99(calm.clone()), 98.0);
        let mut stalled = calm.clone();
        stalled[1_000..1_100].fill(us(5_000));
        assert_eq!(typical_p99(stalled), 98.0);
        let mut slow = calm;
        slow.chunks_mut(1_000).for_each(|thousand| thousand[..11].fill(us(700)));
        assert_eq!(typical_p99(slow), 700.0);
        assert_eq!(typical_p99((0..100).map(us).collect()), 98.0);
        assert_eq!(typical_p99(Vec::new()), 0.0);
    }
}
