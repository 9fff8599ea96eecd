//! Bounds on the connections of each source: they refuse, and delay nobody.

use crate::live::Live;
use crate::rates::Source;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tautline::{Address, Gate, Place};

/// The connections of all sources. A reload changes their bounds, and ends none.
#[derive(Debug)]
pub struct Sources {
    live: Live,
    open: Arc<Open>,
}

/// A source as the rates count it.
type Key = (Source, (u8, u64));

/// The numbers of open connections, of sources that have any.
#[derive(Debug, Default)]
struct Open(Mutex<HashMap<Key, u32>>);

/// The place of a connection.
struct Entered(Arc<Open>, [Key; 2]);

impl Sources {
    /// Sources with the bounds of the plan of the moment.
    #[must_use]
    pub fn new(live: Live) -> Self {
        Self { live, open: Arc::default() }
    }

    fn place(&self, keys: [Key; 2]) -> Place {
        Place::new(Entered(self.open.clone(), keys))
    }

    /// Lets one more connection in, or a stream, which has no handshake.
    fn let_in(&self, client: &Address, has_handshake: bool) -> Option<Place> {
        // Clients of Unix sockets are all one source, and no stranger is among them.
        let Some(address) = ip(client) else { return Some(Place::new(())) };
        let (plan, keys) = (self.live.plan(), keys(address));
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        for cap in &plan.caps {
            let has = keys.iter().find(|(source, _)| *source == cap.source()).and_then(|key| open.get(key));
            if has.is_some_and(|has| cap.refuses(*has)) {
                return None;
            }
        }
        let now = Instant::now();
        if has_handshake && plan.handshakes.iter().any(|limit| limit.count(address, now).is_err()) {
            return None;
        }
        keys.iter().for_each(|key| *open.entry(*key).or_default() += 1);
        drop(open);
        Some(self.place(keys))
    }
}

impl Gate for Sources {
    fn enter(&self, client: &Address) -> Option<Place> {
        self.let_in(client, true)
    }

    fn enter_stream(&self, client: &Address) -> Option<Place> {
        self.let_in(client, false)
    }

    fn enter_again(&self, client: &Address) -> Place {
        let Some(keys) = ip(client).map(keys) else { return Place::new(()) };
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().for_each(|key| *open.entry(*key).or_default() += 1);
        drop(open);
        self.place(keys)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Self(open, keys) = self;
        let mut open = open.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Some(has) = open.get_mut(key) {
                *has -= 1;
                if *has == 0 {
                    open.remove(key);
                }
            }
        }
        // The memory of a flood is given back.
        if open.capacity() > 1024 && open.len() < open.capacity() / 8 {
            open.shrink_to_fit();
        }
    }
}

fn keys(address: IpAddr) -> [Key; 2] {
    [Source::Host, Source::Network].map(|source| (source, source.of(address)))
}

const fn ip(client: &Address) -> Option<IpAddr> {
    match client {
        Address::Tcp(address) => Some(address.ip()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::tally::Figures;
    use std::path::Path;

    fn live(limits: &str) -> Live {
        let text = format!("[limits]\n{limits}\n[[route]]\nanswer = {{ status = 200 }}\n");
        Live::new(config::parse(Path::new("t"), &text, None, Instant::now()).unwrap())
    }

    fn client(address: &str) -> Address {
        Address::Tcp((address.parse::<IpAddr>().unwrap(), 1).into())
    }

    #[test]
    fn hosts_and_networks_have_as_many_connections_as_they_may() {
        let live = live("connections-of-host = 2\nconnections-of-network = 3");
        let sources = Sources::new(live.clone());
        let enter = |address: &str| sources.enter(&client(address));
        let one = enter("192.0.2.1");
        let two = enter("::ffff:192.0.2.1");
        assert!(one.is_some() && two.is_some() && enter("192.0.2.1").is_none());
        let three = enter("192.0.2.2");
        assert!(three.is_some() && enter("192.0.2.3").is_none(), "the network is full");
        assert!(enter("192.0.3.1").is_some());
        drop(one);
        assert!(enter("192.0.2.3").is_some());
        let again = [(); 9].map(|()| sources.enter_again(&client("192.0.2.9")));
        assert!(enter("192.0.2.9").is_none(), "connections of another process count");
        assert!(sources.enter(&Address::UnixUnnamed).is_some());
        let refused: Vec<u64> =
            Figures::of(&live.plan(), Instant::now()).limits.iter().map(|one| one.refused).collect();
        assert_eq!(refused, [2, 1]);
        drop((two, three, again));
        assert!(sources.open.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_reload_changes_the_bounds_of_those_that_are_there() {
        let text =
            |most: u32| format!("[limits]\nconnections-of-host = {most}\n[[route]]\nanswer = {{ status = 200 }}\n");
        let plan = |most, before: Option<&crate::Plan>| {
            config::parse(Path::new("t"), &text(most), before, Instant::now()).unwrap()
        };
        let live = Live::new(plan(1, None));
        let sources = Sources::new(live.clone());
        let _one = sources.enter(&client("192.0.2.1")).unwrap();
        assert!(sources.enter(&client("192.0.2.1")).is_none());
        live.replace(plan(2, Some(&live.plan())));
        let _two = sources.enter(&client("192.0.2.1")).unwrap();
        assert!(sources.enter(&client("192.0.2.1")).is_none());
        assert_eq!(live.plan().caps[0].refused(), 2);
    }

    #[test]
    fn a_source_opens_as_many_connections_a_second_as_it_may() {
        let live = live("handshakes-of-host = { per-second = 1, burst = 3 }");
        let sources = Sources::new(live.clone());
        let inside = (0..50).filter(|_| sources.enter(&client("192.0.2.1")).is_some()).count();
        assert!((3..6).contains(&inside), "{inside}");
        assert!(sources.enter(&client("192.0.2.2")).is_some());
        assert_eq!(Figures::of(&live.plan(), Instant::now()).limits[0].refused, 50 - inside as u64);
    }
}
