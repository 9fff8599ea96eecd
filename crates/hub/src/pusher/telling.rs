//! Messages of a loop for the subscribers of channels: events, and news of members.

use super::connection::Pushers;
use super::delivery::{Delivery, What};
use super::name::{OF_USER, room_topic};
use super::room::News;
use super::wire::{self, code};
use crate::mailbox::Event;
use crate::protocol::Answer;
use crate::rules::Rules;
use crate::shared::Shared;
use serde_json::json;
use tautline::{CloseCode, ConnId, Outgoing, ShardContext};

impl Pushers {
    /// Sends a message for all connections of a user to those that have signed in, as an event of theirs.
    pub(crate) fn send_to_user(&self, shard: &mut ShardContext<'_>, conns: &[ConnId], (user, frame): (&str, &str)) {
        let has_signed_in =
            |conn: &ConnId| self.conns.get(conn).is_some_and(|pusher| pusher.user.as_deref() == Some(user));
        let conns: Vec<ConnId> = conns.iter().copied().filter(has_signed_in).collect();
        let Some(data) = serde_json::from_str::<Answer<'_>>(frame).ok().and_then(|direct| direct.data) else { return };
        let frame = wire::event("message", &format!("{OF_USER}{user}"), data.get(), None);
        shard.send_to(&conns, Outgoing::text(&frame));
    }

    /// Passes an event to the subscribers of this loop.
    pub(crate) fn deliver(&mut self, rules: &Rules, shard: &mut ShardContext<'_>, delivery: &Delivery) {
        let Some(channel) = self.channels.get_mut(&delivery.topic) else { return };
        let frame = match &delivery.what {
            What::Event(frame) => {
                let slow = rules.grant(None, &delivery.topic).terms.slow;
                let frame = Outgoing::prepared(frame);
                slow.map_or(frame, |policy| frame.with_policy(policy))
            }
            What::End => {
                for conn in channel.subscribers.list() {
                    // They are of this loop, which takes that at any time.
                    let _ = shard.close(*conn, CloseCode::new(code::UNAUTHORIZED), "the application has ended it");
                }
                return;
            }
        };
        match delivery.except.as_ref().and_then(|socket| self.sockets.get(&**socket)) {
            Some(except) => {
                let others: Vec<ConnId> =
                    channel.subscribers.list().iter().copied().filter(|conn| conn != except).collect();
                channel.subscribers.deliver(others.len());
                shard.send_to(&others, frame);
            }
            None => {
                channel.subscribers.deliver(channel.subscribers.list().len());
                shard.send_to_list(channel.subscribers.shared(), frame);
            }
        }
    }

    /// Has channels counted in the figures of their namespaces by these rules.
    pub(crate) fn count_anew(&mut self, rules: &Rules) {
        for (topic, channel) in &mut self.channels {
            channel.subscribers.count_in(rules.counts_of(topic));
        }
    }

    /// Tells subscribers of a channel news of its members, or their number. Returns the number of subscribers that are told.
    pub(crate) fn tell_members(
        &mut self,
        hub: &Shared,
        shard: &mut ShardContext<'_>,
        (topic, news): (&str, &Event),
    ) -> usize {
        let Some(channel) = self.channels.get_mut(topic) else { return 0 };
        if let Event::Number { number, .. } = news {
            let frame = wire::subscription_count(&channel.name, *number);
            shard.send_to_list(channel.subscribers.shared(), Outgoing::text(&frame));
            return channel.subscribers.list().len();
        }
        let Some(room) = &mut channel.room else { return 0 };
        let news = match news {
            Event::Presence { frame, .. } => match serde_json::from_str::<Answer<'_>>(frame) {
                Ok(Answer { action, member: Some(member), name, .. }) => {
                    let joins = action == "join";
                    if joins { room.join(&member, &name.unwrap_or_default()) } else { room.leave(&member) }
                }
                _ => None,
            }
            .into_iter()
            .collect(),
            _ => room.replace(&hub.presence.list(&room_topic(topic))),
        };
        for news in &news {
            let (event, user, data) = match news {
                News::Added(user, info) => {
                    ("pusher_internal:member_added", user, json!({ "user_id": &**user, "user_info": info }))
                }
                News::Removed(user) => ("pusher_internal:member_removed", user, json!({ "user_id": &**user })),
            };
            let is_own = |conn: &ConnId| {
                let of = self.conns.get(conn).and_then(|pusher| pusher.channels.get(topic));
                of.is_some_and(|of| of.as_ref() == Some(user))
            };
            let others: Vec<ConnId> = channel.subscribers.list().iter().copied().filter(|conn| !is_own(conn)).collect();
            shard.send_to(&others, Outgoing::text(&wire::told(event, Some(&channel.name), &data)));
        }
        news.len() * channel.subscribers.list().len()
    }
}
