//! News of members on a loop, for the subscribers that want them.

use crate::handler::HubHandler;
use crate::mailbox::{Event, Mailbox};
use crate::protocol::Object;
use crate::pusher::OWN;
use std::sync::Arc;
use tautline::{Conn, Outgoing, ShardContext};

/// News of members that a loop publishes in one turn, counted for each watcher. It delivers more in a turn, so other messages
/// do not wait behind news.
const NEWS: usize = 512;
/// Bytes of a list of members that count for another of its news.
const PAGE: usize = 2 << 10;

impl HubHandler {
    /// Tells a subscriber the number of members, now and after changes.
    pub(crate) fn begin_counting(&mut self, conn: &mut Conn<'_, ()>, topic: &Arc<str>, mailbox: &Arc<Mailbox>) {
        self.counters.add(topic, conn.id(), &mut self.account.bytes);
        conn.text(&number_frame(topic, self.hub.presence.watch_number(topic, mailbox)));
    }

    /// Takes news of members, as many as a turn may publish.
    pub(crate) fn take_some_news(&mut self, shard: &mut ShardContext<'_>, mailbox: &Mailbox) {
        self.told_news = self.told_news.saturating_sub(NEWS);
        while self.told_news < NEWS && !shard.is_full() {
            let Some(news) = mailbox.next_news() else { break };
            self.take_news(shard, news);
        }
    }

    /// Tells the watchers of a topic news of its members.
    pub(crate) fn take_news(&mut self, shard: &mut ShardContext<'_>, news: Event) {
        // Each costs something, also if nobody watches any more.
        self.told_news += 1;
        let (Event::Presence { topic, .. } | Event::Members(topic) | Event::Number { topic, .. }) = &news else {
            return;
        };
        if let Some(topic) = topic.strip_prefix(OWN) {
            self.told_news += self.pushers.tell_members(&self.hub, shard, (topic, &news));
            return;
        }
        if let Event::Number { number, .. } = news {
            let counters = self.counters.of(topic);
            self.told_news += counters.len();
            shard.send_to(counters, Outgoing::text(&number_frame(topic, number)));
            return;
        }
        let watchers = self.watchers.of(topic);
        if watchers.is_empty() {
            return;
        }
        if let Event::Presence { frame, .. } = &news {
            self.told_news += watchers.len();
            shard.send_to(watchers, Outgoing::text(frame));
        } else {
            for page in self.hub.presence.members(topic) {
                self.told_news += watchers.len() * (1 + page.payload().len() / PAGE);
                shard.send_to(watchers, Outgoing::prepared(&page));
            }
        }
    }
}

/// The message with the number of a topic's members.
fn number_frame(topic: &str, number: usize) -> String {
    Object::new("count").text("topic", topic).number("number", number as u64).end()
}
