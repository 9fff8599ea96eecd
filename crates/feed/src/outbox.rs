//! Messages that wait for the budget of their connection.

use crate::Time;
use crate::plain_error::plain_error;
use crate::rate::Bucket;
use std::collections::VecDeque;
use std::fmt;

/// The purpose of a message to a venue. Messages of an earlier class are sent first.
///
/// ```
/// use tautline_feed::Class;
///
/// assert!(Class::KeepAlive < Class::Order && Class::Order < Class::Subscription);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Keeps the connection: pings, answers to pings, and the greeting of a venue.
    KeepAlive,
    /// A message of the application, such as an order.
    Order,
    /// Subscribes or unsubscribes.
    Subscription,
}

impl Class {
    /// All classes, in the order in which they are sent.
    pub const ALL: [Self; 3] = [Self::KeepAlive, Self::Order, Self::Subscription];
}

/// Too many messages of the class wait already: the venue's budget is used up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// The class.
    pub class: Class,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MOST} messages of the class {:?} wait for the venue's budget; send fewer, or later", self.class)
    }
}

plain_error!(Full);

/// Most messages of one class that wait.
const MOST: usize = 1024;

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) text: String,
    /// The number of the request that it is; 0 for none.
    pub(crate) request: u64,
    /// The number of a send that is to be timed.
    pub(crate) timed: Option<u64>,
}

/// The messages of one connection that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    bucket: Bucket,
    waiting: [VecDeque<Letter>; 3],
}

impl Outbox {
    pub(crate) const fn new(bucket: Bucket) -> Self {
        Self { bucket, waiting: [const { VecDeque::new() }; 3] }
    }

    pub(crate) fn push(&mut self, class: Class, letter: Letter) -> Result<(), Full> {
        let waiting = &mut self.waiting[class as usize];
        if waiting.len() == MOST {
            return Err(Full { class });
        }
        waiting.push_back(letter);
        Ok(())
    }

    /// The next message of a class, if the connection and the address have a token each.
    pub(crate) fn pop(&mut self, class: Class, now: Time, address: Option<&mut Bucket>) -> Option<Letter> {
        if self.waiting[class as usize].is_empty() {
            return None;
        }
        if self.bucket.due(now) > now || address.as_ref().is_some_and(|address| address.due(now) > now) {
            return None;
        }
        self.bucket.take(now);
        if let Some(address) = address {
            address.take(now);
        }
        self.waiting[class as usize].pop_front()
    }

    /// The last message of a class is not timed: it has to wait. Returns whether it does.
    pub(crate) fn untime_last(&mut self, class: Class) -> bool {
        let last = self.waiting[class as usize].back_mut();
        last.map(|letter| letter.timed = None).is_some()
    }

    /// When a message can be sent; `None` if none waits.
    pub(crate) fn due(&self, now: Time, address: Option<&Bucket>) -> Option<Time> {
        if self.waiting.iter().all(VecDeque::is_empty) {
            return None;
        }
        Some(self.bucket.due(now).max(address.map_or(now, |address| address.due(now))))
    }

    pub(crate) fn waiting(&self) -> [usize; 3] {
        [0, 1, 2].map(|class| self.waiting[class].len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Full, Letter, MOST, Outbox};
    use crate::rate::{Bucket, Rate};
    use std::time::Duration;

    fn letter(text: &str) -> Letter {
        Letter { text: text.to_owned(), request: 0, timed: None }
    }

    #[test]
    fn earlier_classes_pass_and_both_budgets_hold() {
        let second = Duration::from_secs(1);
        let mut address = Bucket::new(Rate::new(3, second));
        let mut one = Outbox::new(Bucket::new(Rate::new(2, second)));
        let mut two = Outbox::new(Bucket::new(Rate::new(2, second)));
        for (class, text) in [(Class::Subscription, "s"), (Class::Order, "o"), (Class::KeepAlive, "p")] {
            one.push(class, letter(text)).unwrap();
            two.push(class, letter(text)).unwrap();
        }
        let now = Duration::ZERO;
        let mut sent = String::new();
        for class in Class::ALL {
            for outbox in [&mut one, &mut two] {
                while let Some(letter) = outbox.pop(class, now, Some(&mut address)) {
                    sent.push_str(&letter.text);
                }
            }
        }
        assert_eq!(sent, "ppo", "a ping of each connection, then one message is left for the address");
        assert_eq!((one.waiting(), two.waiting()), ([0, 0, 1], [0, 1, 1]));
        assert_eq!(one.due(now, Some(&address)), Some(second));
        assert!(one.pop(Class::Order, second, Some(&mut address)).is_none());
        assert!(one.pop(Class::Subscription, second, Some(&mut address)).is_some());
        assert_eq!(one.due(now, Some(&address)), None);
    }

    #[test]
    fn a_class_that_is_full_refuses_more() {
        let mut outbox = Outbox::new(Bucket::new(Rate::new(1, Duration::from_secs(1))));
        for _ in 0..MOST {
            outbox.push(Class::Order, letter("")).unwrap();
        }
        assert_eq!(outbox.push(Class::Order, letter("")), Err(Full { class: Class::Order }));
        assert_eq!(outbox.push(Class::KeepAlive, letter("")), Ok(()));
    }
}
