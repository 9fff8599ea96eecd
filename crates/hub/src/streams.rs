//! The number of responses with server-sent events, by process and address.

use crate::lock::lock;
use crate::rules::EventRules;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use tautline::Address;

/// The number of streams, of all loops.
#[derive(Default)]
pub(crate) struct Streams(Mutex<HashMap<Option<IpAddr>, usize>>);

impl Streams {
    /// Counts one more. False if there are too many.
    pub(crate) fn enter(&self, peer: &Address, rules: &EventRules) -> bool {
        let mut streams = lock(&self.0);
        let fits = has_room(&streams, peer, rules);
        if fits {
            *streams.entry(None).or_default() += 1;
            if let Some(source) = source(peer) {
                *streams.entry(Some(source)).or_default() += 1;
            }
        }
        fits
    }

    pub(crate) fn has_room(&self, peer: &Address, rules: &EventRules) -> bool {
        has_room(&lock(&self.0), peer, rules)
    }

    pub(crate) fn leave(&self, peer: &Address) {
        let mut streams = lock(&self.0);
        let mut uncount = |key| {
            if let Some(number) = streams.get_mut(&key) {
                *number -= 1;
                if *number == 0 {
                    streams.remove(&key);
                }
            }
        };
        uncount(None);
        if let Some(source) = source(peer) {
            uncount(Some(source));
        }
    }
}

fn has_room(streams: &HashMap<Option<IpAddr>, usize>, peer: &Address, rules: &EventRules) -> bool {
    let number = |key| streams.get(&key).copied().unwrap_or_default();
    number(None) < rules.most && source(peer).is_none_or(|source| number(Some(source)) < rules.per_address)
}

/// The source that an address counts for: a host of IPv6 has a network of 64 bits.
pub(crate) fn source(peer: &Address) -> Option<IpAddr> {
    let Address::Tcp(address) = peer else { return None };
    Some(match address.ip().to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip => ip,
    })
}

#[cfg(test)]
mod tests {
    use super::Streams;
    use crate::rules::EventRules;

    #[test]
    fn streams_are_counted_by_process_and_address() {
        let (streams, rules) = (Streams::default(), EventRules { most: 3, per_address: 2, ..EventRules::default() });
        let [one, two, other] = ["1.2.3.4:1", "1.2.3.4:2", "[2001:db8::1]:3"].map(|text| text.parse().unwrap());
        assert!(streams.enter(&one, &rules) && streams.enter(&two, &rules) && !streams.enter(&one, &rules));
        assert!(streams.enter(&other, &rules) && !streams.has_room(&"unix:/run/hub.sock".parse().unwrap(), &rules));
        for peer in [&one, &two, &other] {
            streams.leave(peer);
        }
        assert!(streams.0.lock().unwrap().is_empty());
    }
}
