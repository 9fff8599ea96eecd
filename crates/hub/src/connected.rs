//! A connection of the hub on its loop: subscriptions, and messages on their way to the log.

use crate::access::Access;
use crate::account::Account;
use crate::asked::Asking;
use crate::config::Kind;
use crate::log::Append;
use crate::protocol::Request;
use crate::rules::Identity;
use crate::taken::Taken;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tautline::layers::engine::sized::{map_memory, name_memory};

/// A connection of the hub.
#[derive(Default)]
pub(crate) struct Connected {
    pub(crate) subscriptions: HashMap<Arc<str>, Subscription>,
    /// Messages that wait for those before them. The log gets one at a time, so that their order holds over its outages.
    pub(crate) waiting: VecDeque<(Arc<str>, Append)>,
    pub(crate) waiting_bytes: usize,
    /// Bytes of all their texts.
    pub(crate) waiting_texts: usize,
    /// Whether the log has one, and its identifier.
    pub(crate) is_appending: bool,
    pub(crate) appending: Option<Box<str>>,
    /// The identifier of a message that the log did not take. Later ones are refused until the client repeats it.
    pub(crate) blocked_on: Option<Box<str>>,
    /// Messages that the client may repeat without need, once it had to repeat any.
    pub(crate) taken: Option<Box<Taken>>,
    /// Messages that wait for the application's answer.
    pub(crate) asking: Option<Box<Asking>>,
    /// Whether it reads events, and has nothing to say.
    pub(crate) is_stream: bool,
    /// Whether it takes several messages in a frame.
    pub(crate) takes_many: bool,
    /// Its rights; `None` where everybody may do everything.
    pub(crate) access: Option<Box<Access>>,
    /// Its memory as it was counted, and its parts in what counts for all, in bytes.
    pub(crate) told: usize,
    pub(crate) parts: usize,
}

impl Connected {
    /// Counts its memory in that of the loop.
    pub(crate) fn settle(&mut self, account: &mut Account) {
        let waiting = self.waiting.capacity() * size_of::<(Arc<str>, Append)>() + self.waiting_texts;
        let taken = self.taken.as_ref().map_or(0, |taken| taken.memory());
        let access = self.access.as_ref().map_or(0, |access| access.memory());
        let asking = self.asking.as_ref().map_or(0, |asking| asking.memory());
        let now = size_of::<Self>() + map_memory(&self.subscriptions) + waiting + taken + access + asking;
        account.bytes = account.bytes - self.told + now;
        account.is_changed = true;
        self.told = now;
    }

    /// The user that it is, by a token or the application.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.access.as_ref()?.identity.as_deref()
    }

    /// The client has to repeat a message, and repeats others with it.
    pub(crate) fn begin_repeating(&mut self, most: usize) -> &mut Taken {
        let Self { taken, appending, waiting, .. } = self;
        taken.get_or_insert_with(|| {
            let mut taken = Taken::default();
            let waiting = waiting.iter().filter_map(|(_, append)| append.id.as_deref());
            appending.as_deref().into_iter().chain(waiting).for_each(|id| taken.add(id, most));
            Box::new(taken)
        })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    pub(crate) kind: Kind,
    pub(crate) is_member: bool,
    /// Whether it is the user that is the member.
    pub(crate) as_user: bool,
    /// Whether the member is counted and not listed.
    pub(crate) is_counted: bool,
    pub(crate) watches: bool,
    /// Whether the number of members is told.
    pub(crate) counts: bool,
    /// Whether it began with messages that are kept.
    pub(crate) history: bool,
    /// Its part in what counts for all, in bytes.
    pub(crate) part: u32,
}

/// Memory of a topic with offsets that has one subscriber, of a member of a topic, and of a topic that is watched, in bytes.
pub(crate) const FOLLOWED: usize = 700;
const MEMBER: usize = 400;
const WATCHED: usize = 400;

impl Subscription {
    /// `in_log` is the memory of a followed topic in the log.
    pub(crate) fn new(kind: Kind, topic: &str, request: &Request<'_>, in_log: usize) -> Self {
        let (is_member, watches, counts) = (request.member.is_some(), request.presence, request.count);
        let followed = if kind == Kind::Plain { 0 } else { FOLLOWED + topic.len() + in_log };
        let member = request.member.as_ref().map_or(0, |name| MEMBER + name.len());
        let part = followed + member + if watches { WATCHED } else { 0 } + if counts { WATCHED } else { 0 };
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        Self { kind, is_member, as_user: false, is_counted: false, watches, counts, history: false, part }
    }
}

/// Bytes of the texts of a message that waits. The topic's name may be its own.
pub(crate) fn texts(topic: &str, append: &Append) -> usize {
    let optional = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    name_memory(topic) + append.data.len() + optional(&append.key) + optional(&append.id)
}
