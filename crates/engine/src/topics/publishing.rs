//! Published messages on their way to their subscribers, a bounded batch in each turn.
//!
//! - A connection gets the messages of all topics in the order in which this shard took them.
//! - A message goes to the connections that are subscribed when its delivery begins. A connection that unsubscribes or ends
//!   before its batch is left out.
//! - A message without a topic goes to all connections: a walk over the slots, which needs no subscriptions.
//! - A panic for one connection, as for lack of memory, closes that connection. The others get each message once.
//! - While many messages wait, commands of other threads wait too, so that their bound applies.

use crate::handler::Handler;
use crate::link::state::Link;
use crate::topics::joining::{Array, Joined};
use crate::topics::publications::Publication;
use crate::topics::recipients::Destination;
use crate::topics::topic::Step;
use crate::turn::links::Links;
use crate::turn::reactor::Reactor;
use crate::turn::shared::Shared;
use crate::turn::visit::TIME;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tautline_conn::message::Delivery;
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};

/// Messages that are delivered at a time, counted for each subscriber: about a millisecond of work. Long ones count more.
const BATCH: usize = 512;
/// Bytes of a message that count for another one.
const COST: usize = 2 << 10;

impl<E: Engine, H: Handler> Reactor<E, H> {
    /// Delivers a batch of publications, and flushes every dirty connection.
    #[inline]
    pub(crate) fn deliver(&mut self, driver: &mut dyn Driver) {
        // Twice in each turn, mostly for nothing.
        if self.core.shared.has_messages() || !self.core.shared.dirty.is_empty() || self.commands_left {
            self.deliver_most(driver, BATCH);
        }
    }

    /// Delivers so many messages at least, if so many wait, and flushes every dirty connection.
    pub(crate) fn deliver_most(&mut self, driver: &mut dyn Driver, most: usize) {
        let mut letters = std::mem::take(&mut self.core.shared.letters);
        for (to, message) in letters.iter() {
            self.visit_corked(driver, to, |core, driver, link| {
                link.lend(Some(driver), &mut core.shared, &mut core.links, |conn| _ = conn.send(message));
            });
        }
        if self.core.shared.letters.is_empty() {
            letters.clear();
            self.core.shared.letters = letters;
        }
        if !self.core.shared.closings.is_empty() {
            self.close_named(driver);
        }
        self.core.openings.serve();
        if !self.core.shared.publications.is_empty() {
            self.deliver_publications(driver, most);
        }
        if !self.core.shared.closings.is_empty() {
            self.close_named(driver);
        }
        let mut dirty = std::mem::take(&mut self.core.shared.dirty);
        for token in dirty.drain(..) {
            self.visit(driver, token, |_, _, link| link.dirty = false);
        }
        if self.core.shared.dirty.is_empty() {
            self.core.shared.dirty = dirty;
        }
        if self.commands_left {
            self.handle_commands(driver);
        }
    }

    /// Closes connections that handlers named, once the messages before are delivered.
    #[cold]
    fn close_named(&mut self, driver: &mut dyn Driver) {
        while let Some(closing) = self.core.shared.closings.next(self.core.shared.publications.delivered()) {
            self.visit(driver, closing.conn, |core, driver, link| {
                link.lend(Some(driver), &mut core.shared, &mut core.links, |conn| {
                    conn.close(closing.code, &closing.reason)
                });
            });
        }
    }

    fn deliver_publications(&mut self, driver: &mut dyn Driver, most: usize) {
        let mut budget = most;
        let mut begun = None;
        // Messages that handlers publish meanwhile are delivered in the next turn.
        let mut allowed = self.core.shared.publications.waiting();
        loop {
            if self.core.shared.publications.run.is_empty() {
                self.core.shared.publications.begin_run(allowed);
                let Some(first) = self.core.shared.publications.run.first() else { return };
                allowed -= self.core.shared.publications.run.len();
                match &first.to {
                    Destination::Topic(topic) => self.core.shared.topics.begin_walk(topic),
                    Destination::All => self.unserved = self.core.links.len(),
                    Destination::Conns(_) | Destination::List(..) => {}
                }
            }
            let spent = self.deliver_run(driver, budget, allowed == 0);
            budget = budget.saturating_sub(spent);
            if budget == 0 {
                if !self.core.shared.publications.are_too_many() {
                    return;
                }
                // The turn stays short all the same. The next one does not wait while some are left.
                let now = self.core.shared.clock.elapsed();
                if now.saturating_sub(*begun.get_or_insert(now)) >= TIME {
                    return;
                }
                budget = most;
            }
        }
    }

    /// Sends the current run to its next subscribers, at most `most` messages or to one subscriber. Returns the number of
    /// messages, at least 1.
    ///
    /// If no other run follows in this turn, each connection is flushed at once. The next one then reuses its buffers while
    /// they are in the cache.
    fn deliver_run(&mut self, driver: &mut dyn Driver, most: usize, last: bool) -> usize {
        let mut run = std::mem::take(&mut self.core.shared.publications.run);
        let mut joined = std::mem::take(&mut self.joined);
        let cost = run.iter().map(|publication| 1 + publication.len() / COST).sum::<usize>().max(1);
        let most = (most / cost).max(1);
        let Some(first) = run.first_mut() else { return 1 };
        let mut walk = std::mem::take(&mut self.walk);
        let Step { looked, more } = match &mut first.to {
            Destination::Topic(topic) => self.core.shared.topics.next_subscribers(topic, most, &mut walk),
            Destination::All => next_connections(&self.core.links, &mut self.unserved, most, &mut walk),
            Destination::Conns(conns) => {
                walk.extend(conns.drain(conns.len().saturating_sub(most)..).map(|conn| conn.token));
                Step { looked: walk.len(), more: !conns.is_empty() }
            }
            Destination::List(list, unserved) => {
                let from = unserved.saturating_sub(most);
                let here = list.conns()[from..*unserved].iter().filter(|conn| conn.shard == self.core.shared.shard);
                walk.extend(here.map(|conn| conn.token));
                let looked = *unserved - from;
                *unserved = from;
                Step { looked, more: from > 0 }
            }
        };
        let counts = match run.first().map(|first| &first.to) {
            Some(Destination::Topic(topic)) => self.core.shared.topics.counts_of(topic),
            _ => None,
        };
        let (mut delivered, mut dropped) = (0, 0);
        for &token in &walk {
            let Some(mut link) = self.core.links.take(token) else { continue };
            let sent =
                catch_unwind(AssertUnwindSafe(|| self.core.shared.publish_run(driver, &mut link, (&run, &mut joined))));
            if let Ok((of_delivered, of_dropped)) = sent {
                delivered += of_delivered;
                dropped += of_dropped;
            }
            match sent {
                // Closed where visits expect a panic. The other subscribers get the messages all the same.
                Err(panic) => self.visit_link(driver, link, |_, _, _| resume_unwind(panic)),
                Ok(_) if last || more => self.visit_link(driver, link, |_, _, _| {}),
                Ok(_) => {
                    self.core.access.count_traffic(&link, &self.core.shared);
                    self.core.shared.mark_dirty(&mut link);
                    self.core.links.put(link);
                }
            }
        }
        if let Some(counts) = counts {
            counts.add(delivered, dropped);
        }
        let spent = looked.saturating_mul(cost).max(1);
        walk.clear();
        self.walk = walk;
        if more {
            self.core.shared.publications.run = run;
            self.joined = joined;
        } else {
            run.clear();
            self.core.shared.publications.run = run;
        }
        spent
    }
}

/// Appends the next connections of a walk over all to `batch`, of at most `most` slots of those that are `unserved`.
fn next_connections<S, T>(links: &Links<S, T>, unserved: &mut usize, most: usize, batch: &mut Vec<Token>) -> Step {
    let from = unserved.saturating_sub(most);
    let here = (from..*unserved).filter_map(|index| links.at(index)).filter(|link| link.phase.takes_messages());
    batch.extend(here.map(|link| link.token));
    let looked = *unserved - from;
    *unserved = from;
    Step { looked, more: from > 0 }
}

impl Shared {
    /// Sends the messages of a run to one of their subscribers. Returns the numbers of those that were delivered and dropped.
    fn publish_run<S: Session, T>(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<S, T>,
        (run, joined): (&[Publication], &mut Joined),
    ) -> (u64, u64) {
        let (mut delivered, mut dropped) = (0, 0);
        if run.len() > 1
            && link.joins()
            && let Some(joined) = joined.of(run, &self.published)
        {
            for Array { message, number } in joined {
                match self.publish_to(driver, link, message) {
                    Delivery::Sent | Delivery::Queued(_) => delivered += number,
                    Delivery::Dropped => dropped += number,
                    _ => {}
                }
            }
            return (delivered, dropped);
        }
        for publication in run {
            if publication.except == Some(link.token) {
                continue;
            }
            let delivery = self.publish_to(driver, link, &publication.message);
            if let Some(receipts) = &publication.receipts {
                receipts.count(delivery);
            }
            match delivery {
                Delivery::Sent | Delivery::Queued(_) => delivered += 1,
                Delivery::Dropped => dropped += 1,
                _ => {}
            }
            self.taken(publication.timed, delivery);
        }
        (delivered, dropped)
    }
}
