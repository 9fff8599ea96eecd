use super::{Echo, Handshakes};
use crate::{Error, Measured};
use std::time::Duration;
use tautline::layers::io::machine::run_when_idle;

/// Messages whose p99 is told.
const THOUSAND: usize = 1_000;

/// Messages over connections that stand, while others shake hands in full: what newcomers do to those who are there.
///
/// The messages are an open loop, so a loop that is busy with signatures counts against every message that comes meanwhile. The
/// newcomers are made on a thread of their own that runs only while the messages' thread has nothing to do, and latencies are
/// [those of stamps](Echo::run_stamped), so that their clients' work, which is more than the server's, is not counted as the
/// server's latency. The server may refuse newcomers:
/// that is one way to weather a storm.
#[derive(Clone)]
pub struct Storm {
    /// The messages.
    pub echo: Echo,
    /// Connections being made at a time; 0 is the quiet before.
    pub newcomers: usize,
}

/// What a storm gave.
#[derive(Clone, Debug)]
pub struct Stormed {
    /// The messages.
    pub messages: Measured,
    /// Their typical p99 in us: the median of those of each thousand in a row. One stall of the machine, which on shared hosts
    /// come once or twice a second and last longer than anything that is measured, would be the p99 of all.
    pub p99: f64,
    /// The newcomers' handshakes per second.
    pub handshakes: f64,
    /// Newcomers per second that the server refused.
    pub refused: f64,
}

impl Storm {
    /// Connects, raises the storm, measures.
    ///
    /// # Errors
    /// Those of [`Echo::run`] and of [`Handshakes::run`].
    pub fn run(&self) -> Result<Stormed, Error> {
        if self.newcomers == 0 {
            let (messages, latencies) = self.echo.run_stamped(&mut |_| {})?;
            return Ok(Stormed { messages, p99: typical_p99(latencies), handshakes: 0.0, refused: 0.0 });
        }
        // It begins while the connections of the echo are made and has settled when that measures.
        let settle = self.echo.warmup / 2;
        let newcomers = Handshakes {
            server: self.echo.server.clone(),
            at_once: self.newcomers,
            resumed: false,
            may_refuse: true,
            warmup: settle,
            duration: self.echo.warmup + self.echo.duration - settle + Duration::from_millis(100),
        };
        let storm = std::thread::spawn(move || {
            if let Err(error) = run_when_idle() {
                log::warn!("newcomers run at the priority of messages: {error}");
            }
            newcomers.run(&mut |_| {})
        });
        let messages = self.echo.run_stamped(&mut |_| {});
        let shaken = storm.join().map_err(|_| Error::Failed("the thread of the newcomers panicked".to_owned()))?;
        let ((messages, latencies), shaken) = (messages?, shaken?);
        let (handshakes, refused) = (shaken.measured.rate(), shaken.refused_rate());
        Ok(Stormed { messages, p99: typical_p99(latencies), handshakes, refused })
    }
}

/// In us; of all where there are fewer than a thousand.
fn typical_p99(mut latencies: Vec<Duration>) -> f64 {
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
    fn one_stall_is_not_typical_and_one_in_each_thousand_is() {
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
