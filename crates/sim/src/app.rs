use crate::ledger::{GOODBYE, Ledger, Way, flow};
use crate::letter::Letter;
use crate::network::Net;
use std::cell::RefCell;
use std::rc::Rc;
use tautline_engine::{Closed, Conn, ConnId, Delivery, Handler, Opening, Outgoing};
use tautline_testkit::Random;
use tautline_ws::{CloseCode, Kind, Message};

/// Topics that servers know.
pub(crate) const TOPICS: u8 = 3;

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
}

/// The state of a connection: its talk, once that is known.
#[derive(Default)]
pub(crate) struct State {
    talk: u32,
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
        let delivery = conn.send(outgoing(&bytes, self.random.next()));
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
            b's' if conn.subscribe(name) => self.ledger.borrow_mut().subscribed(talk, topic),
            b'u' => {
                conn.unsubscribe(name);
                self.ledger.borrow_mut().unsubscribed(talk, topic);
            }
            b'p' => {
                let flow = Ledger::publications(self.host, topic, false);
                let number = self.ledger.borrow().published(flow);
                let len = self.random.below(self.longest);
                let bytes = Letter { verb: b'p', argument: 0, flow, number }.write(len);
                self.ledger.borrow_mut().publish(flow);
                conn.publish(name, outgoing(&bytes, self.random.next()));
            }
            // No hook is called, so nothing is printed.
            b'x' => std::panic::resume_unwind(Box::new(String::from("a panic of the scenario"))),
            _ => {}
        }
    }
}

pub(crate) const fn topic_name(topic: u8) -> &'static str {
    ["a", "b", "c"][topic as usize]
}

fn outgoing(bytes: &[u8], random: u64) -> Outgoing<'_> {
    match core::str::from_utf8(bytes) {
        Ok(text) if random.is_multiple_of(2) => Outgoing::text(text),
        _ => Outgoing::binary(bytes),
    }
}

impl Handler for App {
    type State = State;

    fn on_open(&mut self, conn: &mut Conn<'_, State>, _: &Opening<'_>) {
        let id = conn.id();
        self.conns.push(id);
        self.ledger.borrow_mut().opened(id);
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
