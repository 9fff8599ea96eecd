//! Thresholds that the user sets, for `--slo NAME=VALUE`.

use super::facts::{Facts, quantile};
use crate::amount;
use std::str::FromStr;
use std::time::Duration;

/// A threshold for one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    metric: Metric,
    /// Milliseconds, days, bytes or seconds, as the metric says.
    limit: f64,
    text: String,
}

/// The values that have thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Dns,
    Tcp,
    Tls,
    Upgrade,
    First,
    Ping(u8),
    Full,
    Resumed,
    Days,
    Message,
    Idle,
}

/// The names that `--slo` takes.
const NAMES: [(&str, Metric); 14] = [
    ("dns", Metric::Dns),
    ("tcp", Metric::Tcp),
    ("tls", Metric::Tls),
    ("upgrade", Metric::Upgrade),
    ("first", Metric::First),
    ("p50", Metric::Ping(50)),
    ("p90", Metric::Ping(90)),
    ("p99", Metric::Ping(99)),
    ("max", Metric::Ping(100)),
    ("full", Metric::Full),
    ("resumed", Metric::Resumed),
    ("days", Metric::Days),
    ("message", Metric::Message),
    ("idle", Metric::Idle),
];

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as p99=50ms")?;
        let Some((_, metric)) = NAMES.iter().find(|(known, _)| *known == name) else {
            return Err(format!("the names are {}", NAMES.map(|(name, _)| name).join(", ")));
        };
        let limit = match metric {
            Metric::Days => {
                value.parse().ok().filter(|days| (0.0..=36500.0).contains(days)).ok_or("write days, as 14")?
            }
            Metric::Message => amount::some_bytes(value)? as f64,
            Metric::Idle => duration(value)?.as_secs_f64(),
            _ => duration(value)?.as_secs_f64() * 1e3,
        };
        Ok(Self { metric: *metric, limit, text: text.to_owned() })
    }
}

/// A time with its unit.
///
/// # Errors
/// If it has no unit, is not positive, or is longer than a day.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HOW: &str = "write a time with its unit, as 50ms, 1.5s or 2m";
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(HOW)?;
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(HOW.to_owned()),
    };
    let seconds: f64 = number.parse().map_err(|_| HOW)?;
    let seconds = seconds * scale;
    if seconds > 0.0 && seconds <= 86_400.0 { Ok(Duration::from_secs_f64(seconds)) } else { Err(HOW.to_owned()) }
}

/// The result of a comparison: what was found, and what to do about it.
pub(crate) struct Missed {
    pub(crate) title: String,
    pub(crate) remedy: &'static str,
}

impl Slo {
    /// The wait for a first message that this threshold needs.
    pub fn first_message(&self) -> Option<Duration> {
        // Longer than the threshold, so that the report can say by how much it was missed.
        (self.metric == Metric::First).then(|| Duration::from_secs_f64(self.limit * 4.0 / 1e3))
    }

    /// The silence that this threshold needs.
    pub fn idle(&self) -> Option<Duration> {
        (self.metric == Metric::Idle).then(|| Duration::from_secs_f64(self.limit))
    }

    /// The size of a message that must be accepted.
    #[expect(clippy::cast_possible_truncation, reason = "it came from a whole number of bytes")]
    pub fn message(&self) -> Option<u64> {
        (self.metric == Metric::Message).then_some(self.limit as u64)
    }

    /// Whether the facts miss the threshold. Silence has a verdict of its own.
    pub(crate) fn check(&self, facts: &Facts) -> Option<Missed> {
        let (value, unit) = self.value(facts);
        let Some(value) = value else {
            let title = format!("{}: there is no such value", self.text);
            return (self.metric != Metric::Idle).then_some(Missed { title, remedy: self.remedy() });
        };
        let met = match self.metric {
            Metric::Idle => true,
            Metric::Days | Metric::Message => value >= self.limit,
            _ => value <= self.limit,
        };
        let title = || match self.metric {
            Metric::Message => {
                format!("{}: a message of {value:.0} bytes is the largest that is not refused", self.text)
            }
            _ => format!("{}: it is {value:.1} {unit}", self.text),
        };
        (!met).then(|| Missed { title: title(), remedy: self.remedy() })
    }

    fn value(&self, facts: &Facts) -> (Option<f64>, &'static str) {
        let main = facts.addresses.iter().find(|address| address.main);
        let session = facts.session.as_ref();
        let resumption = facts.resumption.as_ref();
        let value = match self.metric {
            Metric::Dns => facts.dns.as_ref().map(|dns| dns.ms),
            Metric::Tcp => main.and_then(|main| main.tcp_ms),
            Metric::Tls => main.and_then(|main| main.tls_ms),
            Metric::Upgrade => facts.http.as_ref().filter(|http| http.status.is_some()).map(|http| http.ms),
            Metric::First => session.and_then(|session| session.first_message_ms),
            Metric::Ping(percent) => {
                session.and_then(|session| quantile(&session.pings_ms, f64::from(percent) / 100.0))
            }
            Metric::Full => resumption.and_then(|one| quantile(&one.full_ms, 0.5)),
            Metric::Resumed => resumption.and_then(|one| quantile(&one.resumed_ms, 0.5)),
            Metric::Days => facts
                .chain
                .as_ref()
                .and_then(|chain| chain.certificates.iter().map(|one| one.days_left as f64).reduce(f64::min)),
            Metric::Message => facts.sizes.as_ref().map(|sizes| sizes.accepted as f64),
            Metric::Idle => facts.idle.as_ref().map(|idle| idle.closed_after_s.unwrap_or(idle.asked_s)),
        };
        let unit = match self.metric {
            Metric::Days => "days",
            Metric::Message => "bytes",
            Metric::Idle => "s",
            _ => "ms",
        };
        (value, unit)
    }

    const fn remedy(&self) -> &'static str {
        match self.metric {
            Metric::Dns => "look at the resolver of this machine, or choose a nearer one",
            Metric::Tcp => "the network is slow or far: choose a nearer address, or look for loss on the way",
            Metric::Tls | Metric::Full => {
                "serve TLS 1.3 with an EC P-256 certificate and a short chain; look at the CPU load of the server"
            }
            Metric::Upgrade => {
                "look at what the server does before it answers: log-ins, look-ups, a proxy's connection"
            }
            Metric::First => "look at what the application does before its first message; send a snapshot at once",
            Metric::Ping(_) => "compare with the time of TCP: what is above it is spent in the server or a proxy",
            Metric::Resumed => "look whether tickets resume at all, and at the CPU load of the server",
            Metric::Days => "renew the certificate, and let a job renew it from now on",
            Metric::Message => "raise the limit of messages at the server, or send smaller messages",
            Metric::Idle => "see the verdict on silence",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Address, Session};
    use super::*;

    #[test]
    fn thresholds_have_names_and_units() {
        for good in ["p99=50ms", "dns=1s", "days=14", "message=1MiB", "idle=1.5m", "max=900us"] {
            assert!(good.parse::<Slo>().is_ok(), "{good}");
        }
        for bad in ["p99", "p99=50", "p95=1ms", "days=-1", "message=0", "idle=0s", "tcp=NaNms", "tcp=1e300s", "tcp=-1s"]
        {
            assert!(bad.parse::<Slo>().is_err(), "{bad}");
        }
        assert_eq!("idle=1.5m".parse::<Slo>().unwrap().idle(), Some(Duration::from_secs(90)));
        assert_eq!("message=64k".parse::<Slo>().unwrap().message(), Some(65536));
        assert_eq!("first=10ms".parse::<Slo>().unwrap().first_message(), Some(Duration::from_millis(40)));
    }

    #[test]
    fn values_are_compared_with_thresholds() {
        let main = Address { tcp_ms: Some(3.0), main: true, ..Address::default() };
        let session = Session { pings_ms: vec![1.0, 2.0, 9.0], ..Session::default() };
        let facts = Facts { addresses: vec![main], session: Some(session), ..Facts::default() };
        let check = |text: &str| text.parse::<Slo>().unwrap().check(&facts).map(|missed| missed.title);
        for met in ["tcp=3ms", "p50=2ms", "max=9ms", "idle=1s"] {
            assert_eq!(check(met), None, "{met}");
        }
        assert_eq!(check("p99=8ms").unwrap(), "p99=8ms: it is 9.0 ms");
        assert!(check("tcp=2.9ms").is_some());
        assert!(check("first=1s").unwrap().contains("no such value"));
    }
}
