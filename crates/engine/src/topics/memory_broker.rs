//! A broker between the servers of one process.

use crate::topics::broker::{Broker, BrokerError};
use crate::topics::broker_link::{BrokerLink, Inbox, Order};
use crate::topics::interest::Interest;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A broker between servers of one process, for tests and programs that play several hosts. Clones are one broker.
///
/// Each server needs a [`Bridge`](crate::Bridge) of its own.
#[derive(Clone, Default)]
pub struct MemoryBroker(Arc<Mutex<Vec<Member>>>);

/// A host.
struct Member {
    inbox: Inbox,
    number: usize,
    topics: HashSet<Interest>,
    prefixes: Vec<Interest>,
}

impl MemoryBroker {
    /// A broker without hosts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<R>(&self, act: impl FnOnce(&mut Vec<Member>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn obey(&self, number: usize, order: Order) {
        self.with(|members| match order {
            Order::Publish { topic, message } => {
                let interest = Interest::Topic(topic.clone());
                for member in members.iter().filter(|member| member.number != number) {
                    if member.topics.contains(&interest) || member.prefixes.iter().any(|prefix| prefix.includes(&topic))
                    {
                        member.inbox.deliver(&topic, message.kind(), message.payload());
                    }
                }
            }
            Order::Follow(interest) => {
                let Some(member) = members.iter_mut().find(|member| member.number == number) else { return };
                match interest {
                    Interest::Topic(_) => _ = member.topics.insert(interest),
                    Interest::Prefix(_) => member.prefixes.push(interest),
                }
            }
            Order::Unfollow(interest) => {
                let Some(member) = members.iter_mut().find(|member| member.number == number) else { return };
                member.topics.remove(&interest);
                member.prefixes.retain(|prefix| *prefix != interest);
            }
        });
    }
}

impl Broker for MemoryBroker {
    fn name(&self) -> &str {
        "in memory"
    }

    fn run(&mut self, link: &mut BrokerLink) -> Result<(), BrokerError> {
        let number = self.with(|members| {
            let number = members.iter().map(|member| member.number + 1).max().unwrap_or_default();
            let (topics, prefixes) = (HashSet::new(), Vec::new());
            members.push(Member { inbox: link.inbox(), number, topics, prefixes });
            number
        });
        link.connected();
        while !link.is_stopped() {
            while let Some(order) = link.next_order() {
                self.obey(number, order);
            }
            link.wait(Duration::from_secs(3600));
        }
        self.with(|members| members.retain(|member| member.number != number));
        Ok(())
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryBroker")
    }
}
