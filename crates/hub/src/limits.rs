//! Bounds for users, topics and addresses over all connections of a host, and the number of those who met them.

use crate::rules::Limits;
use crate::sessions::Rates;
use crate::streams;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline::Address;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A bound, and the number of events that exceeded it.
#[derive(Default)]
struct Bound {
    rates: Rates,
    met: AtomicU64,
}

impl Bound {
    fn take(&self, name: &str, most: Option<u32>, time: Duration, now: Instant) -> bool {
        let Some(most) = most else { return true };
        let fits = self.rates.take(name, most, time, now);
        if !fits {
            self.met.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }
}

/// The bounds of a host. They cost something only where the rules set them.
#[derive(Default)]
pub(crate) struct Bounds {
    keys: Bound,
    bad_keys: Bound,
    publishes_of_user: Bound,
    publishes_of_topic: Bound,
    publishes_of_address: Bound,
    subscriptions_of_user: Bound,
    subscriptions_of_address: Bound,
}

/// The reasons that clients are told.
const OF_USER: &str = "the user's connections send more of these in a second than this hub takes";
const OF_TOPIC: &str = "more messages in a second than this topic takes of all clients";
const OF_ADDRESS: &str = "this address sends more of these in a second than this hub takes";

impl Bounds {
    /// Counts a request of a key.
    pub(crate) fn request(&self, key: &str, most: u32) -> bool {
        self.keys.take(key, Some(most), SECOND, Instant::now())
    }

    /// Counts a request without a key that is known. False if its address has sent too many in a minute.
    pub(crate) fn bad_key(&self, peer: &Address, limits: &Limits) -> bool {
        self.bad_keys.take(&source(peer), Some(limits.bad_keys), MINUTE, Instant::now())
    }

    /// Counts a message of a client.
    pub(crate) fn publish(
        &self,
        limits: &Limits,
        (user, topic, peer): (Option<&str>, &str, &Address),
    ) -> Result<(), &'static str> {
        let now = Instant::now();
        if let Some(user) = user
            && !self.publishes_of_user.take(user, limits.publishes_per_user, SECOND, now)
        {
            return Err(OF_USER);
        }
        if limits.publishes_per_address.is_some()
            && !self.publishes_of_address.take(&source(peer), limits.publishes_per_address, SECOND, now)
        {
            return Err(OF_ADDRESS);
        }
        self.publish_to(limits, topic)
    }

    /// Counts a message to a topic, of a client or of a server of the Pusher protocol.
    pub(crate) fn publish_to(&self, limits: &Limits, topic: &str) -> Result<(), &'static str> {
        let fits = self.publishes_of_topic.take(topic, limits.publishes_per_topic, SECOND, Instant::now());
        if fits { Ok(()) } else { Err(OF_TOPIC) }
    }

    /// Counts a request for a subscription.
    pub(crate) fn subscribe(&self, limits: &Limits, user: Option<&str>, peer: &Address) -> Result<(), &'static str> {
        let now = Instant::now();
        if let Some(user) = user
            && !self.subscriptions_of_user.take(user, limits.subscriptions_per_user, SECOND, now)
        {
            return Err(OF_USER);
        }
        let most = limits.subscriptions_per_address;
        if most.is_some() && !self.subscriptions_of_address.take(&source(peer), most, SECOND, now) {
            return Err(OF_ADDRESS);
        }
        Ok(())
    }

    /// The bounds by their names in the file of rules, each with the number of events that exceeded it.
    pub(crate) fn met(&self) -> Vec<(&'static str, u64)> {
        self.all().into_iter().map(|(name, bound)| (name, bound.met.load(Ordering::Relaxed))).collect()
    }

    /// Their memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.all().into_iter().map(|(_, bound)| bound.rates.memory()).sum()
    }

    const fn all(&self) -> [(&'static str, &Bound); 7] {
        [
            ("rate", &self.keys),
            ("bad-keys", &self.bad_keys),
            ("publishes-per-user", &self.publishes_of_user),
            ("publishes-per-topic", &self.publishes_of_topic),
            ("publishes-per-address", &self.publishes_of_address),
            ("subscriptions-per-user", &self.subscriptions_of_user),
            ("subscriptions-per-address", &self.subscriptions_of_address),
        ]
    }
}

/// The name of the source of an address. A network of IPv6 is one: its owner has all of its addresses.
fn source(peer: &Address) -> String {
    streams::source(peer).map_or_else(|| "unix".to_owned(), |ip| ip.to_string())
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn a_source_is_an_address_or_a_network_of_version_6() {
        let of = |text: &str| source(&text.parse().unwrap());
        assert_eq!((of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:2")), ("192.0.2.1".to_owned(), "192.0.2.1".to_owned()));
        assert_eq!(of("[2001:db8:1:2:3::4]:1"), of("[2001:db8:1:2::]:9"));
        assert_ne!(of("[2001:db8:1:2::]:1"), of("[2001:db8:1:3::]:1"));
    }
}
