//! The topics and prefixes that a host follows at a broker whose subscriptions overlap.

use std::collections::HashSet;
use tautline::Interest;

/// The topics and prefixes that a host follows. It says which of several subscriptions delivers a message that came by each.
#[derive(Debug, Default)]
pub struct Followed {
    topics: HashSet<String>,
    prefixes: Vec<String>,
}

impl Followed {
    /// Whether a message that came by `interest` is to be delivered. Others that include it bring it, too.
    #[must_use]
    pub fn delivers(&self, interest: &Interest, topic: &str) -> bool {
        let Interest::Prefix(prefix) = interest else { return true };
        let is_shorter = |other: &String| other.len() < prefix.len() && topic.starts_with(&**other);
        topic.starts_with(&**prefix) && !self.topics.contains(topic) && !self.prefixes.iter().any(is_shorter)
    }

    /// Whether this topic is followed by its own name.
    #[must_use]
    pub fn has_topic(&self, topic: &str) -> bool {
        self.topics.contains(topic)
    }

    /// The prefixes that are followed.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(String::as_str)
    }

    /// Adds or removes an interest.
    pub fn set(&mut self, interest: &Interest, on: bool) {
        match interest {
            Interest::Topic(topic) if on => _ = self.topics.insert(topic.to_string()),
            Interest::Topic(topic) => _ = self.topics.remove(&**topic),
            Interest::Prefix(prefix) if on => self.prefixes.push(prefix.to_string()),
            Interest::Prefix(prefix) => self.prefixes.retain(|other| **other != **prefix),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Followed;
    use tautline::Interest;

    #[test]
    fn one_of_several_interests_delivers_a_message() {
        let all = [
            Interest::Topic("prices.EUR".into()),
            Interest::Prefix("".into()),
            Interest::Prefix("prices.".into()),
            Interest::Prefix("prices.E".into()),
            Interest::Prefix("other".into()),
        ];
        for set in 0..32_u32 {
            let mut followed = Followed::default();
            let own: Vec<_> = (0..).zip(&all).filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, one)| one).collect();
            own.iter().for_each(|interest| followed.set(interest, true));
            for topic in ["prices.EUR", "prices.USD", "prices", "news"] {
                // The broker brings it by the topic's own subscription, and by each pattern that includes it.
                let comes = |interest: &&&Interest| match interest {
                    Interest::Topic(name) => **name == *topic,
                    _ => true,
                };
                let delivered = own.iter().filter(comes).filter(|one| followed.delivers(one, topic)).count();
                let expected = usize::from(own.iter().any(|one| one.includes(topic)));
                assert_eq!(delivered, expected, "{topic} of {own:?}");
            }
        }
    }
}
