use crate::Latencies;
use std::time::{Duration, Instant};

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Number of open connections, and of wanted ones.
    Connecting(usize, usize),
    /// Share of the time that has passed, warm-up included.
    Running(f64),
    /// Results of the last second. Warm-up has none.
    Interval(Interval),
}

/// Receives the progress of a run several times a second.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);

/// Results of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Length in seconds.
    pub seconds: f64,
    /// Messages answered, or handshakes completed.
    pub count: u64,
    /// Median, p99, p99.9 and longest latency in us, or 0 if nothing was counted.
    pub latency: [f64; 4],
}

/// Cuts the latencies of a run into intervals of one second.
pub(super) struct Intervals {
    began: Instant,
    earlier: Latencies,
}

impl Intervals {
    const LENGTH: Duration = Duration::from_secs(1);

    /// Begins with a run that has no latencies yet.
    pub(super) fn begin(now: Instant) -> Self {
        Self { began: now, earlier: Latencies::new() }
    }

    /// The interval that has ended, if one has. `all` are the latencies since [`begin`](Self::begin).
    pub(super) fn next(&mut self, now: Instant, all: &Latencies) -> Option<Interval> {
        let length = now.saturating_duration_since(self.began);
        if length < Self::LENGTH {
            return None;
        }
        let latencies = all.since(&self.earlier);
        (self.began, self.earlier) = (now, all.clone());
        Some(Interval {
            seconds: length.as_secs_f64(),
            count: latencies.count(),
            latency: [0.5, 0.99, 0.999, 1.0].map(|quantile| latencies.quantile_us(quantile)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_latencies_of_their_second() {
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        let mut intervals = Intervals::begin(began);
        let mut all = Latencies::new();
        all.record(Duration::from_micros(10));
        assert_eq!(intervals.next(after(999), &all), None);
        let first = intervals.next(after(1000), &all).unwrap();
        assert_eq!((first.seconds, first.count), (1.0, 1));
        all.record(Duration::from_micros(500));
        all.record(Duration::from_micros(500));
        let second = intervals.next(after(2500), &all).unwrap();
        assert_eq!((second.seconds, second.count), (1.5, 2));
        assert!(second.latency.iter().all(|us| (us / 500.0 - 1.0).abs() < 2e-3), "{second:?}");
        let quiet = intervals.next(after(3500), &all).unwrap();
        assert_eq!((quiet.count, quiet.latency), (0, [0.0; 4]));
    }
}
