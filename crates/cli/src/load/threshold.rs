//! `--slo`: thresholds of a load, which decide the exit code.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use tautline_probe::duration;

/// A threshold: `p99=50ms`, `rate=1000`, `errors=0` or `errors=0.1%`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Threshold {
    text: String,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// Greatest latency of this share of the messages.
    Latency(f64, Duration),
    /// Least messages per second.
    Rate(f64),
    /// Most errors.
    Errors(u64),
    /// Most errors for each message, right ones and errors together.
    ErrorShare(f64),
}

const HOW: &str = "write p99=50ms, max=1s, rate=1000, errors=0 or errors=0.1%";

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or(HOW)?;
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| (0.0..=1e12).contains(number)).ok_or(HOW);
        let bound = match name {
            "rate" => Bound::Rate(number(value)?),
            "errors" => match value.strip_suffix('%') {
                Some(percent) => Bound::ErrorShare(number(percent)? / 100.0),
                None => Bound::Errors(value.parse().map_err(|_| HOW)?),
            },
            "max" => Bound::Latency(1.0, duration(value)?),
            name => Bound::Latency(percentile(name.strip_prefix('p').ok_or(HOW)?)? / 100.0, duration(value)?),
        };
        Ok(Self { text: text.to_owned(), bound })
    }
}

/// The figures of a run that thresholds bound.
pub(super) struct Figures<'f> {
    pub(super) count: u64,
    /// Messages per second.
    pub(super) rate: f64,
    pub(super) errors: u64,
    /// The latency of a share of the messages, in us.
    pub(super) quantile_us: &'f dyn Fn(f64) -> f64,
}

/// Understands a percentile above 0, up to 100.
pub(super) fn percentile(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| *value > 0.0 && *value <= 100.0);
    value.ok_or_else(|| format!("{text:?} is no percentile: write 50, 99 or 99.9"))
}

impl Threshold {
    /// Whether it bounds errors. Without such a threshold, no error is permitted.
    pub(super) const fn is_about_errors(&self) -> bool {
        matches!(self.bound, Bound::Errors(_) | Bound::ErrorShare(_))
    }

    pub(super) const fn is_about_latency(&self) -> bool {
        matches!(self.bound, Bound::Latency(..))
    }

    pub(super) const fn is_about_rate(&self) -> bool {
        matches!(self.bound, Bound::Rate(_))
    }

    /// The figure that was measured, if it misses the threshold.
    pub(super) fn missed(&self, figures: &Figures<'_>) -> Option<String> {
        let Figures { count, rate, errors, quantile_us } = figures;
        let (count, rate, errors) = (*count, *rate, *errors);
        let found = match self.bound {
            Bound::Latency(_, most) if count == 0 => format!("no latency below {most:?}"),
            Bound::Latency(share, most) => {
                let micros = quantile_us(share);
                if micros <= most.as_secs_f64() * 1e6 {
                    return None;
                }
                format!("{:.2?}", Duration::from_secs_f64(micros / 1e6))
            }
            Bound::Rate(least) if rate < least => format!("{rate:.0} messages/s"),
            Bound::Errors(most) if errors > most => format!("{errors} errors"),
            Bound::ErrorShare(most) if errors as f64 > most * (count + errors) as f64 => {
                format!("{:.3} %", errors as f64 / (count + errors) as f64 * 100.0)
            }
            _ => return None,
        };
        Some(format!("{self}: {found}"))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, Threshold, percentile};

    /// 1000 messages with latencies of 1 ms to 1 s.
    fn is_missed(text: &str, count: u64, errors: u64) -> bool {
        let quantile_us = |share: f64| share * 1e6;
        let figures = Figures { count, rate: 100.0, errors, quantile_us: &quantile_us };
        text.parse::<Threshold>().unwrap().missed(&figures).is_some()
    }

    #[test]
    fn each_threshold_is_missed_on_its_own_side() {
        for (text, errors, expected) in [
            ("p50=600ms", 0, false),
            ("p50=400ms", 0, true),
            ("p99.9=1s", 0, false),
            ("max=990ms", 0, true),
            ("rate=99", 0, false),
            ("rate=101", 0, true),
            ("errors=1", 1, false),
            ("errors=1", 2, true),
            ("errors=1%", 10, false),
            ("errors=1%", 11, true),
        ] {
            assert_eq!(is_missed(text, 1000, errors), expected, "{text}");
        }
        assert!(is_missed("p99=1s", 0, 0), "no message is no good latency");
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in ["", "p99", "p0=1s", "p101=1s", "p99=50", "rate=-1", "errors=x", "errors=-1%", "q99=1s"] {
            assert!(bad.parse::<Threshold>().is_err(), "{bad}");
        }
        assert!(percentile("99.99").is_ok() && percentile("NaN").is_err());
    }
}
