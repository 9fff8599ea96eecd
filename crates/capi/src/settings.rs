use crate::codes::*;
use crate::config::flag;
use crate::failure::Failure;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tautline::{Config, ForwardedHeader, Origins, Prefixes, SlowConsumer};

/// Limits, deadlines and policies of connections. Servers and clients copy them when they are made.
pub(crate) struct Settings {
    config: Mutex<Config>,
}

impl Settings {
    pub(crate) fn new(preset: u32) -> Result<Self, Failure> {
        let config = match preset {
            TAUT_PRESET_UNTRUSTED_INTERNET => Config::untrusted_internet(),
            TAUT_PRESET_LOW_LATENCY => Config::low_latency(),
            TAUT_PRESET_MANY_CONNECTIONS => Config::many_connections(),
            _ => return Err(Failure::new(TAUT_ERR_VALUE, "there is no such preset")),
        };
        Ok(Self { config: Mutex::new(config) })
    }

    /// A copy of the present settings.
    pub(crate) fn copy(&self) -> Config {
        self.lock().clone()
    }

    /// Sets the subprotocols of a server.
    pub(crate) fn subprotocols(&self, names: &[String]) {
        self.lock().upgrade.subprotocols = names.to_vec();
    }

    /// Sets the web pages that may connect to a server.
    pub(crate) fn origins(&self, origins: &[String]) -> Result<(), Failure> {
        let origins = Origins::list(origins);
        self.lock().upgrade.origins = origins.map_err(|error| Failure::with_text(TAUT_ERR_VALUE, error.to_string()))?;
        Ok(())
    }

    /// Sets the proxies whose connections begin with a header of the PROXY protocol.
    pub(crate) fn proxy_protocol_from(&self, prefixes: &[String]) -> Result<(), Failure> {
        self.lock().front.proxy_protocol_from = networks(prefixes)?;
        Ok(())
    }

    /// Sets the proxies whose requests name the client.
    pub(crate) fn forwarded_from(&self, prefixes: &[String]) -> Result<(), Failure> {
        self.lock().front.forwarded_from = networks(prefixes)?;
        Ok(())
    }

    /// Sets a number.
    pub(crate) fn set(&self, setting: u32, value: u64) -> Result<(), Failure> {
        let mut config = self.lock();
        let Config { limits, deadlines, .. } = &mut *config;
        match setting {
            TAUT_SET_MAX_MESSAGE => limits.max_message = number(value)?,
            TAUT_SET_MAX_CONNECTIONS => limits.max_connections = number(value)?,
            TAUT_SET_MAX_HANDSHAKES => limits.max_handshakes = number(value)?,
            TAUT_SET_MEMORY => limits.memory = number(value)?,
            TAUT_SET_MAX_BODY => limits.max_body = number(value)?,
            TAUT_SET_MAX_SUBSCRIPTIONS => limits.max_subscriptions = number(value)?,
            TAUT_SET_CONNECT_MS => deadlines.connect = Duration::from_millis(value),
            TAUT_SET_HANDSHAKE_MS => deadlines.handshake = Duration::from_millis(value),
            TAUT_SET_ANSWER_MS => deadlines.answer = Duration::from_millis(value),
            TAUT_SET_PING_MS => deadlines.ping = unless_zero(value),
            TAUT_SET_IDLE_MS => deadlines.idle = unless_zero(value),
            TAUT_SET_SILENCE_MS => deadlines.silence = unless_zero(value),
            TAUT_SET_CLOSE_MS => deadlines.close = Duration::from_millis(value),
            TAUT_SET_SEND_MS => deadlines.send = Duration::from_millis(value),
            TAUT_SET_SLOW_LIMIT => config.slow_consumer = with_limit(config.slow_consumer, number(value)?),
            TAUT_SET_SLOW_POLICY => config.slow_consumer = policy(value, config.slow_consumer.limit())?,
            TAUT_SET_DEFLATE => config.upgrade.deflate = flag(value)?.then(Default::default),
            TAUT_SET_STREAMING => config.streaming = flag(value)?,
            TAUT_SET_SLOW_TURN_MS => config.slow_turn = unless_zero(value),
            TAUT_SET_HANDSHAKE_THREADS => config.offload.threads = Some(threads(value)?),
            TAUT_SET_REQUIRE_SUBPROTOCOL => config.upgrade.require_subprotocol = flag(value)?,
            TAUT_SET_OTHERS_WITHOUT_HEADER => config.front.others_without_header = flag(value)?,
            TAUT_SET_FORWARDED if flag(value)? => config.front.forwarded_header = ForwardedHeader::Forwarded,
            TAUT_SET_FORWARDED => config.front.forwarded_header = ForwardedHeader::XForwardedFor,
            _ => return Err(Failure::new(TAUT_ERR_VALUE, "there is no such setting")),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn networks(prefixes: &[String]) -> Result<Prefixes, Failure> {
    Prefixes::list(prefixes).map_err(|error| Failure::with_text(TAUT_ERR_VALUE, error))
}

fn number(value: u64) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| Failure::new(TAUT_ERR_VALUE, "the number is too large for this machine"))
}

fn threads(value: u64) -> Result<usize, Failure> {
    usize::try_from(value)
        .ok()
        .filter(|&threads| threads <= 1024)
        .ok_or(Failure::new(TAUT_ERR_VALUE, "at most 1024 threads"))
}

fn unless_zero(value: u64) -> Option<Duration> {
    (value > 0).then(|| Duration::from_millis(value))
}

const fn with_limit(policy: SlowConsumer, limit: usize) -> SlowConsumer {
    match policy {
        SlowConsumer::DropNewest(_) => SlowConsumer::DropNewest(limit),
        SlowConsumer::DropOldest(_) => SlowConsumer::DropOldest(limit),
        SlowConsumer::KeepLatest(_) => SlowConsumer::KeepLatest(limit),
        _ => SlowConsumer::Disconnect(limit),
    }
}

fn policy(value: u64, limit: usize) -> Result<SlowConsumer, Failure> {
    match u32::try_from(value) {
        Ok(TAUT_SLOW_DISCONNECT) => Ok(SlowConsumer::Disconnect(limit)),
        Ok(TAUT_SLOW_DROP_NEWEST) => Ok(SlowConsumer::DropNewest(limit)),
        Ok(TAUT_SLOW_DROP_OLDEST) => Ok(SlowConsumer::DropOldest(limit)),
        Ok(TAUT_SLOW_KEEP_LATEST) => Ok(SlowConsumer::KeepLatest(limit)),
        _ => Err(Failure::new(TAUT_ERR_VALUE, "there is no such policy")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_and_policy_are_set_in_any_order() {
        for order in [[0, 1], [1, 0]] {
            let settings = Settings::new(TAUT_PRESET_UNTRUSTED_INTERNET).unwrap();
            let all = [(TAUT_SET_SLOW_LIMIT, 99), (TAUT_SET_SLOW_POLICY, u64::from(TAUT_SLOW_DROP_OLDEST))];
            for at in order {
                settings.set(all[at].0, all[at].1).unwrap();
            }
            assert_eq!(settings.copy().slow_consumer, SlowConsumer::DropOldest(99));
        }
    }

    #[test]
    fn every_setting_is_known_and_no_other() {
        let settings = Settings::new(TAUT_PRESET_LOW_LATENCY).unwrap();
        for setting in 1..=TAUT_SET_FORWARDED {
            assert!(settings.set(setting, 1).is_ok(), "{setting}");
        }
        for setting in [0, TAUT_SET_FORWARDED + 1] {
            assert_eq!(settings.set(setting, 1).unwrap_err().code, TAUT_ERR_VALUE);
        }
        assert!(settings.set(TAUT_SET_DEFLATE, 2).is_err() && settings.set(TAUT_SET_SLOW_POLICY, 4).is_err());
        assert!(Settings::new(3).is_err());
    }
}
