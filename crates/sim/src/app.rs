use crate::ledger::{GOODBYE, Ledger, Way, flow};
use crate::letter::Letter;
use crate::network::Net;
use crate::plan::CALM;
use crate::trace::{SECOND, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tautline_engine::{
    Closed, Conn, ConnHandle, ConnId, Delivery, Handler, Opening, Outgoing, Reply, Request, ShardContext, SlowConsumer,
    Ticket,
};
use tautline_testkit::Random;
use tautline_ws::{CloseCode, Kind, Message};

/// Topics that servers know.
pub(crate) const TOPICS: u8 = 3;
/// The beginning of all their names.
pub(crate) const PREFIX: &str = "t.";
/// Interval of the shard's own timer.
const BEAT: Time = SECOND;
/// Timers count whole milliseconds, so they can be early by less than one.
const EARLY: Time = 1000;
/// Lateness of a timer that nothing explains: every loop turns within this time in the calm.
pub(crate) const LATE: Time = 2 * SECOND;

/// The application of a server or a client.
pub(crate) struct App {
    pub(crate) host: usize,
    pub(crate) is_server: bool,
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) random: Random,
    /// The open connections.
    pub(crate) conns: Vec<ConnId>,
    pub(crate) longest: usize,
    /// One of this number of requests is answered later; 0 for none.
    pub(crate) later: usize,
    /// The requests that wait for their answer, by number.
    pub(crate) tickets: RefCell<Vec<(u32, Ticket<State>)>>,
    /// Handles that other threads have, also of connections that have ended.
    pub(crate) handles: RefCell<Vec<(ConnId, ConnHandle)>>,
    /// When the shard's timer is due.
    pub(crate) beat: Cell<Option<Time>>,
}

/// The state of a connection.
#[derive(Default)]
pub(crate) struct State {
    /// Its talk, once that is known.
    pub(crate) talk: u32,
    /// The number of its request, if that was answered later.
    pub(crate) ticket: u32,
    /// Its timers, and when each is due.
    pub(crate) timers: BTreeMap<u64, Time>,
}

impl App {
    /// Sends a message of random length in this connection's talk. Nothing before the talk is known.
    pub(crate) fn send(&mut self, conn: &mut Conn<'_, State>, verb: u8, argument: u8) {
        let len = self.random.below(self.longest);
        let len = if self.random.below(4) == 0 { len } else { len.min(self.random.below(300)) };
        self.send_len(conn, (verb, argument), len);
    }

    fn send_len(&mut self, conn: &mut Conn<'_, State>, (verb, argument): (u8, u8), len: usize) {
        let talk = conn.state().talk;
        if talk == 0 {
            return;
        }
        let flow = flow(talk, if self.is_server { Way::ToClient } else { Way::ToServer });
        let number = self.ledger.borrow().number(flow);
        let bytes = Letter { verb, argument, flow, number }.write(len);
        let mut message = outgoing(&bytes, self.random.next());
        if self.is_server && self.random.below(8) == 0 {
            // It gives way to others, and nothing else does.
            message = message.with_policy(SlowConsumer::DropNewest(1 << (8 + self.random.below(8))));
        }
        let delivery = conn.send(message);
        self.net.borrow_mut().note(self.host, "message out", flow as usize, bytes.len());
        if matches!(delivery, Delivery::Sent | Delivery::Queued(_)) {
            self.ledger.borrow_mut().sent(flow);
        }
    }

    /// Sends a message that is longer than the server accepts.
    pub(crate) fn send_too_long(&mut self, conn: &mut Conn<'_, State>) {
        self.ledger.borrow_mut().doom(conn.state().talk);
        self.send_len(conn, (b'd', 0), self.longest + 1);
    }

    /// Has the server's handler panic.
    pub(crate) fn send_panic(&mut self, conn: &mut Conn<'_, State>) {
        self.ledger.borrow_mut().doom(conn.state().talk);
        self.send(conn, b'x', 0);
    }

    /// A message to this connection by another thread's handle.
    pub(crate) fn by_handle(&self, conn: &mut Conn<'_, State>) -> Option<(u32, Vec<u8>)> {
        let talk = conn.state().talk;
        let flow = flow(talk, Way::ByHandle);
        let number = self.ledger.borrow().number(flow);
        (talk != 0).then(|| (flow, Letter { verb: b'd', argument: 0, flow, number }.write(100)))
    }

    fn serve(&mut self, conn: &mut Conn<'_, State>, letter: Letter) {
        let (talk, argument) = (conn.state().talk, letter.argument);
        let topic = argument % TOPICS;
        let name = topic_name(topic);
        match letter.verb {
            b'e' => self.send(conn, b'd', 0),
            b'b' => (0..argument).for_each(|_| self.send(conn, b'd', 0)),
            b'c' => conn.close(CloseCode::new(GOODBYE), "bye"),
            b't' => {
                let (id, wait) = (u64::from(topic), self.random.below(4000) as u64);
                conn.set_timer(Duration::from_millis(wait), id);
                conn.state().timers.insert(id, self.now() + wait * 1000);
            }
            b'k' => {
                let id = u64::from(topic);
                let (was_set, known) = (conn.cancel_timer(id), conn.state().timers.remove(&id).is_some());
                if was_set != known {
                    self.find(format!("timer {id} of talk {talk} was set: {known}, and cancelled: {was_set}"));
                }
            }
            b'S' if conn.subscribe_prefix(PREFIX) => self.ledger.borrow_mut().subscribed(talk, Ledger::ALL_TOPICS),
            b'U' => {
                conn.unsubscribe_prefix(PREFIX);
                self.ledger.borrow_mut().unsubscribed(talk, Ledger::ALL_TOPICS);
            }
            b's' if conn.subscribe(name) => self.ledger.borrow_mut().subscribed(talk, topic),
            b'u' => {
                conn.unsubscribe(name);
                self.ledger.borrow_mut().unsubscribed(talk, topic);
            }
            verb @ (b'p' | b'o') => {
                let flow = Ledger::publications(self.host, topic, false);
                let number = self.ledger.borrow().published(flow);
                let len = self.random.below(self.longest);
                let bytes = Letter { verb: b'p', argument: 0, flow, number }.write(len);
                self.ledger.borrow_mut().publish(flow);
                let message = outgoing(&bytes, self.random.next());
                if verb == b'p' {
                    conn.publish(name, message);
                } else {
                    self.ledger.borrow_mut().except(talk, flow, number);
                    conn.publish_to_others(name, message);
                }
            }
            // No hook is called, so nothing is printed.
            b'x' => std::panic::resume_unwind(Box::new(String::from("a panic of the scenario"))),
            _ => {}
        }
    }

    fn now(&self) -> Time {
        self.net.borrow().clock.now()
    }

    fn find(&self, finding: String) {
        self.net.borrow_mut().find(finding);
    }

    /// Checks that a timer rings at its time, and not before.
    fn check_ring(&self, what: &str, due: Option<Time>) {
        let now = self.now();
        match due {
            Some(due) if now + EARLY >= due => {}
            Some(due) => self.find(format!("a timer of {what} rang at {now}, and was due at {due}")),
            None => self.find(format!("a timer of {what} rang that was not set")),
        }
    }
}

pub(crate) const fn topic_name(topic: u8) -> &'static str {
    ["t.a", "t.b", "t.c"][topic as usize]
}

pub(crate) fn outgoing(bytes: &[u8], random: u64) -> Outgoing<'_> {
    match core::str::from_utf8(bytes) {
        Ok(text) if random.is_multiple_of(2) => Outgoing::text(text),
        _ => Outgoing::binary(bytes),
    }
}

impl Handler for App {
    type State = State;

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        shard.set_timer(Duration::from_micros(BEAT), 0);
        self.beat.set(Some(self.now() + BEAT));
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, _: u64) {
        self.check_ring("a shard", self.beat.take());
        self.net.borrow_mut().note(self.host, "beat", 0, 0);
        if self.now() < CALM {
            self.on_start(shard);
        }
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, State>, id: u64) {
        self.check_ring("a connection", conn.state().timers.remove(&id));
        self.net.borrow_mut().note(self.host, "timer", conn.state().talk as usize, 0);
        self.send(conn, b'd', 0);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply<State> {
        if self.later == 0 || self.now() >= CALM || self.random.below(self.later) > 0 {
            return Reply::upgrade();
        }
        let number = self.ledger.borrow_mut().asked();
        self.net.borrow_mut().note(self.host, "answers later", number as usize, 0);
        request.later(|ticket| self.tickets.borrow_mut().push((number, ticket)))
    }

    fn on_open(&mut self, conn: &mut Conn<'_, State>, _: &Opening<'_>) {
        let id = conn.id();
        self.conns.push(id);
        self.ledger.borrow_mut().opened(id);
        self.ledger.borrow_mut().admitted(conn.state().ticket);
        if self.is_server && self.random.below(4) == 0 {
            self.handles.borrow_mut().push((id, conn.handle()));
        }
        if !self.is_server {
            conn.state().talk = self.ledger.borrow_mut().talk();
            self.send(conn, b'h', 0);
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, State>, message: Message<'_>) {
        let bytes = message.data();
        self.net.borrow_mut().note(self.host, "message in", bytes.len(), usize::from(message.kind() == Kind::Text));
        if self.is_server && conn.state().talk == 0 {
            let talk = Letter::read(bytes).filter(|letter| letter.verb == b'h').map_or(0, |letter| letter.flow / 4);
            conn.state().talk = talk;
            self.ledger.borrow_mut().joined(talk, self.host);
        }
        if self.is_server && bytes.len() > self.longest {
            self.ledger.borrow_mut().findings.push(format!("a message of {} bytes passed the limit", bytes.len()));
        }
        let talk = conn.state().talk;
        let letter = self.ledger.borrow_mut().received(conn.id(), talk, self.is_server, bytes);
        if let Some(letter) = letter.filter(|_| self.is_server) {
            self.serve(conn, letter);
        }
    }

    fn on_close(&mut self, conn: &mut Conn<'_, State>, closed: &Closed) {
        let (id, talk) = (conn.id(), conn.state().talk);
        self.net.borrow_mut().note(self.host, "closed", talk as usize, usize::from(closed.code.get()));
        self.conns.retain(|other| *other != id);
        self.ledger.borrow_mut().closed(id, talk, self.is_server, closed);
    }
}
