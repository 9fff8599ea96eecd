use crate::ids::DialId;
use crate::memory::account::Kept;
use crate::sized::{name_memory, shrink_list};
use crate::threads::handle::ConnHandle;
use crate::topics::topic::Scope;
use crate::turn::timers::Timer;
use std::sync::Arc;
use tautline_conn::front::Via;
use tautline_conn::notes::Notes;
use tautline_io::Address;
use tautline_ws::CloseCode;

/// The fixed properties of a connection.
pub(crate) struct Info {
    pub(crate) peer: Address,
    /// `None` on a server.
    pub(crate) dial: Option<DialId>,
}

/// State that few connections need, boxed so that idle connections are small.
#[derive(Default)]
pub(crate) struct Cold {
    /// The subprotocol that both sides speak.
    pub(crate) subprotocol: Option<Box<str>>,
    /// The subscribed topics.
    pub(crate) topics: Option<Box<Names>>,
    /// Code and reason of the peer's close frame, until `on_close` reports them.
    pub(crate) peer_close: Option<Box<(CloseCode, String)>>,
    /// State that still fewer need.
    pub(crate) more: Option<Box<More>>,
}

impl Cold {
    pub(crate) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// The names of the subscribed topics, or of prefixes.
    pub(crate) fn names(&self, scope: Scope) -> Option<&Names> {
        match scope {
            Scope::Exact => self.topics.as_deref(),
            Scope::Prefix => self.more.as_ref()?.prefixes.as_deref(),
        }
    }

    /// The place of these names.
    pub(crate) fn names_mut(&mut self, scope: Scope) -> &mut Option<Box<Names>> {
        match scope {
            Scope::Exact => &mut self.topics,
            Scope::Prefix => &mut self.more().prefixes,
        }
    }

    /// The client's way through the proxies before the server.
    pub(crate) fn via(&self) -> Option<&Via> {
        self.more.as_ref()?.via.as_deref()
    }

    /// The memory that it keeps until the application or the peer gives it up.
    pub(crate) fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        let mut add = |names: &Option<Box<Names>>, base: usize| {
            if let Some(names) = names {
                kept.topics += names.memory() + base;
                kept.parts += names.parts;
            }
        };
        add(&self.topics, size_of::<Self>());
        if let Some(more) = &self.more {
            add(&more.prefixes, size_of::<Self>() + size_of::<More>());
            if more.timers.capacity() > 0 {
                kept.timers = more.timers.capacity() * size_of::<Timer>() + size_of::<More>();
            }
            kept.application = more.application.0;
            kept.parts += more.application.1;
        }
        kept
    }
}

/// Names of topics, each once, in the allocations that all their subscribers share.
#[derive(Default)]
pub(crate) struct Names {
    list: Vec<Arc<str>>,
    /// The connection's parts in the tables of topics, in bytes.
    parts: usize,
}

impl Names {
    pub(crate) fn list(&self) -> &[Arc<str>] {
        &self.list
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.list.iter().any(|other| **other == *name)
    }

    pub(crate) fn push(&mut self, name: Arc<str>) {
        self.parts += part(&name);
        if self.list.is_empty() {
            self.list.reserve_exact(1);
        }
        self.list.push(name);
    }

    /// Removes a name. Returns whether none is left.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        if let Some(at) = self.list.iter().position(|other| **other == *name) {
            self.parts -= part(name);
            self.list.remove(at);
            shrink_list(&mut self.list);
        }
        self.list.is_empty()
    }

    const fn memory(&self) -> usize {
        size_of::<Self>() + self.list.capacity() * size_of::<Arc<str>>()
    }
}

/// A subscription's part in the tables of topics: that of a topic without other subscribers.
const fn part(name: &str) -> usize {
    name_memory(name) + 128
}

/// State of connections that use more than topics.
#[derive(Default)]
pub(crate) struct More {
    /// The subscribed prefixes of topics.
    pub(crate) prefixes: Option<Box<Names>>,
    /// The timers that run, and cancelled ones whose entry in the wheel is not due yet.
    pub(crate) timers: Vec<Timer>,
    /// The application's memory that goes with the connection, and its part in memory that counts elsewhere.
    pub(crate) application: (usize, usize),
    /// The handle that other threads have.
    pub(crate) handle: Option<ConnHandle>,
    /// Whether the application wants to connect again at once.
    pub(crate) reconnects: bool,
    /// Whether the event of another connection has made a WebSocket of it, and the loop has not noted that.
    pub(crate) begins: bool,
    /// The notes of the application about its request, until then.
    pub(crate) notes: Option<Box<Notes>>,
    /// Whether texts that are published together leave as one array.
    pub(crate) joins: bool,
    /// The first bytes that the connection carries which are opened already.
    pub(crate) plain: u32,
    /// The client's way, if it is not the peer of the socket.
    pub(crate) via: Option<Box<Via>>,
}

#[cfg(test)]
mod tests {
    use super::{Cold, More};

    /// A connection with a topic has the one, and a connection with a timer has both.
    #[test]
    fn are_small() {
        assert!(size_of::<Cold>() <= 40, "{}", size_of::<Cold>());
        assert!(size_of::<More>() <= 80, "{}", size_of::<More>());
    }
}
