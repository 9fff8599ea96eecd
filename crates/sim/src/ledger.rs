//! The verifier: accounts for every message and every connection. It shares no code with the loops that it watches.
//!
//! A *flow* is a direction of a connection, or what one source publishes to one topic. Its messages are numbered, and
//! arrive in order and without a hole, unless the servers may drop messages. A *talk* is one open connection.

use crate::letter::Letter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tautline_engine::{Cause, Closed, ConnId};

/// Flows from here on are publications.
const PUBLISHED: u32 = 1 << 31;
/// Publications that only the subscribers of one server get.
const TO_ONE: u32 = 1 << 16;
/// In place of a topic: messages to lists of connections, and to all of a server.
const LISTED: u8 = 0xfe;
const BROADCAST: u8 = 0xfd;
/// Close codes that follow every message that was sent before them.
pub(crate) const GOODBYE: u16 = 4000;
const RESTART: u16 = 1012;

/// The directions of a talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
    /// To the client, by another thread's handle.
    ByHandle,
}

/// The flow of a talk in this direction.
pub(crate) const fn flow(talk: u32, way: Way) -> u32 {
    talk * 4 + way as u32
}

#[derive(Debug, Default)]
struct Flow {
    sent: u32,
    next: u32,
    holes: u64,
}

/// An open connection, as its two ends see it.
#[derive(Debug, Default)]
struct Talk {
    client_open: bool,
    /// The server that has heard of it.
    server: Option<usize>,
    server_open: bool,
    /// It does something that makes the server close it.
    is_doomed: bool,
    /// For each topic: the publications that were there at the subscription.
    topics: BTreeMap<u8, BTreeMap<u32, u32>>,
    /// For each flow of publications: the next number.
    heard: BTreeMap<u32, u32>,
    /// Publications that it does not get, since it made them for others.
    excepted: BTreeSet<(u32, u32)>,
    /// The numbers of messages to lists that it is in, which have not arrived.
    listed: BTreeMap<u32, VecDeque<u32>>,
}

impl Talk {
    /// The number of publications of this flow that were there at the first of its subscriptions.
    fn from(&self, flow: u32) -> Option<u32> {
        let topic = flow.to_le_bytes()[0];
        let there = [topic, Ledger::ALL_TOPICS];
        let there = there.iter().filter(|_| topic < BROADCAST).filter_map(|topic| self.topics.get(topic));
        there.map(|there| there.get(&flow).copied().unwrap_or(0)).min()
    }

    /// The first publication of this flow from `number` on that it gets.
    fn due(&self, flow: u32, mut number: u32) -> u32 {
        while self.excepted.contains(&(flow, number)) {
            number += 1;
        }
        number
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    flows: BTreeMap<u32, Flow>,
    talks: Vec<Talk>,
    published: BTreeMap<u32, u32>,
    live: BTreeSet<ConnId>,
    /// Number of requests that are answered later, and those that were answered with a WebSocket.
    asked: u32,
    upgraded: BTreeSet<u32>,
    pub(crate) findings: Vec<String>,
    is_lossy: bool,
    pub(crate) opened: u64,
    pub(crate) received: u64,
}

impl Ledger {
    /// In place of a topic: the prefix of all.
    pub(crate) const ALL_TOPICS: u8 = 0xff;

    /// An empty ledger. It expects holes where servers may drop messages.
    pub(crate) fn new(is_lossy: bool) -> Self {
        Self { is_lossy, ..Self::default() }
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < 20 {
            self.findings.push(finding);
        }
    }

    /// A connection has opened at one end.
    pub(crate) fn opened(&mut self, id: ConnId) {
        self.opened += 1;
        if !self.live.insert(id) {
            self.find(format!("connection {id} has opened twice"));
        }
    }

    pub(crate) fn is_live(&self, id: ConnId) -> bool {
        self.live.contains(&id)
    }

    /// A request is answered later. Returns its number, from 1.
    pub(crate) fn asked(&mut self) -> u32 {
        self.asked += 1;
        self.asked
    }

    /// A request is answered with a WebSocket.
    pub(crate) fn upgraded(&mut self, ticket: u32) {
        self.upgraded.insert(ticket);
    }

    /// A connection has opened whose request was answered later, if `ticket` is not 0.
    pub(crate) fn admitted(&mut self, ticket: u32) {
        if ticket != 0 && !self.upgraded.remove(&ticket) {
            self.find(format!("request {ticket} has opened, and was not answered so, or twice"));
        }
    }

    /// The flow of messages to lists of a server's connections, or to all of them.
    pub(crate) fn list(server: usize, is_for_all: bool) -> u32 {
        Self::publications(server, if is_for_all { BROADCAST } else { LISTED }, true)
    }

    /// A message was sent to the connections of these talks.
    pub(crate) fn sent_to(&mut self, flow: u32, talks: &[u32]) {
        let number = self.published(flow);
        for talk in talks {
            if let Some(talk) = self.at(*talk) {
                talk.listed.entry(flow).or_default().push_back(number);
            }
        }
        self.publish(flow);
    }

    /// A client's connection has opened. Returns the talk.
    pub(crate) fn talk(&mut self) -> u32 {
        self.talks.push(Talk { client_open: true, ..Talk::default() });
        u32::try_from(self.talks.len()).unwrap_or(u32::MAX)
    }

    fn at(&mut self, talk: u32) -> Option<&mut Talk> {
        self.talks.get_mut((talk as usize).checked_sub(1)?)
    }

    /// A server has heard which talk its connection belongs to.
    pub(crate) fn joined(&mut self, talk: u32, server: usize) {
        let wrong = match self.at(talk) {
            Some(talk) if talk.server.is_none() => {
                (talk.server, talk.server_open) = (Some(server), true);
                false
            }
            _ => true,
        };
        if wrong {
            self.find(format!("talk {talk} arrived at server {server}, and elsewhere before"));
        }
    }

    /// The talk will be closed by the server, for something that the client does.
    pub(crate) fn doom(&mut self, talk: u32) {
        if let Some(talk) = self.at(talk) {
            talk.is_doomed = true;
        }
    }

    /// The number of the next message of a flow.
    pub(crate) fn number(&self, flow: u32) -> u32 {
        self.flows.get(&flow).map_or(0, |flow| flow.sent)
    }

    pub(crate) fn sent(&mut self, flow: u32) {
        self.flows.entry(flow).or_default().sent += 1;
    }

    /// The flow of publications of a server, or of a handle to it.
    pub(crate) fn publications(server: usize, topic: u8, to_one: bool) -> u32 {
        let server = u32::try_from(server).unwrap_or(0);
        PUBLISHED | if to_one { TO_ONE } else { 0 } | server << 8 | u32::from(topic)
    }

    pub(crate) fn published(&self, flow: u32) -> u32 {
        self.published.get(&flow).copied().unwrap_or(0)
    }

    pub(crate) fn publish(&mut self, flow: u32) {
        *self.published.entry(flow).or_default() += 1;
    }

    /// The next publication of a talk was for others.
    pub(crate) fn except(&mut self, talk: u32, flow: u32, number: u32) {
        if let Some(talk) = self.at(talk) {
            talk.excepted.insert((flow, number));
        }
    }

    pub(crate) fn subscribed(&mut self, talk: u32, topic: u8) {
        let there: BTreeMap<u32, u32> = self.published.clone();
        if let Some(talk) = self.at(talk) {
            talk.topics.entry(topic).or_insert(there);
        }
    }

    pub(crate) fn unsubscribed(&mut self, talk: u32, topic: u8) {
        if let Some(talk) = self.at(talk) {
            talk.topics.remove(&topic);
        }
    }

    /// A message arrived on a connection of this talk. Returns its letter.
    pub(crate) fn received(&mut self, id: ConnId, talk: u32, to_server: bool, bytes: &[u8]) -> Option<Letter> {
        self.received += 1;
        if !self.live.contains(&id) {
            self.find(format!("connection {id} got a message, but is not open"));
        }
        let Some(letter) = Letter::read(bytes) else {
            self.find(format!("talk {talk} got a message of {} bytes whose content is wrong", bytes.len()));
            return None;
        };
        if letter.flow >= PUBLISHED && !to_server {
            self.heard(talk, letter);
            return Some(letter);
        }
        let is_ours = letter.flow / 4 == talk && (letter.flow % 4 == 0) == to_server;
        let is_lossy = self.is_lossy && !to_server;
        let flow = self.flows.entry(letter.flow).or_default();
        let (next, sent) = (flow.next, flow.sent);
        flow.next = letter.number + 1;
        flow.holes += u64::from(letter.number.saturating_sub(next));
        if !is_ours {
            self.find(format!("talk {talk} got a message of another: {letter:?}"));
        } else if letter.number < next || letter.number > next && !is_lossy {
            self.find(format!("talk {talk} got {letter:?} where number {next} was due"));
        } else if letter.number >= sent {
            self.find(format!("talk {talk} got {letter:?}, which was not sent"));
        }
        Some(letter)
    }

    fn heard(&mut self, number: u32, letter: Letter) {
        let published = self.published(letter.flow);
        let is_lossy = self.is_lossy;
        let Some(talk) = self.at(number) else { return };
        let next = talk.heard.insert(letter.flow, letter.number + 1).unwrap_or(0);
        let from = talk.from(letter.flow);
        let mut is_wrong = letter.number < next
            || letter.number >= published
            || talk.excepted.contains(&(letter.flow, letter.number))
            || !is_lossy && from.is_some_and(|from| letter.number > talk.due(letter.flow, from.max(next)));
        if letter.flow.to_le_bytes()[0] == LISTED {
            let listed = talk.listed.entry(letter.flow).or_default();
            while is_lossy && listed.front().is_some_and(|number| *number < letter.number) {
                listed.pop_front();
            }
            is_wrong |= listed.pop_front() != Some(letter.number);
        }
        if is_wrong {
            self.find(format!("talk {number} heard {letter:?} where {next} was due, subscribed from {from:?}"));
        }
    }

    /// A connection has ended at one end.
    pub(crate) fn closed(&mut self, id: ConnId, talk: u32, at_server: bool, closed: &Closed) {
        if !self.live.remove(&id) {
            self.find(format!("connection {id} has closed, but was not open"));
        }
        let is_lossy = self.is_lossy && !at_server;
        let Some(talk_) = self.at(talk) else { return };
        *(if at_server { &mut talk_.server_open } else { &mut talk_.client_open }) = false;
        talk_.topics.clear();
        let is_doomed = talk_.is_doomed;
        let code = closed.code.get();
        match closed.cause {
            Cause::WebSocket(_) | Cause::Panicked if is_doomed && at_server => {}
            Cause::WebSocket(_) | Cause::Tls(_) | Cause::Panicked => {
                self.find(format!("talk {talk} ended by {closed:?}"));
            }
            Cause::Peer if code == GOODBYE || code == RESTART => {
                let way = if at_server { Way::ToServer } else { Way::ToClient };
                let flow = self.flows.entry(flow(talk, way)).or_default();
                let (sent, next) = (flow.sent, flow.next);
                if next != sent && !is_lossy {
                    self.find(format!("talk {talk} closed with {code} after {next} of {sent} messages {way:?}"));
                }
            }
            Cause::Peer if matches!(code, 1009 | 1011) && !is_doomed => {
                self.find(format!("talk {talk} was closed with {code} for nothing"));
            }
            _ => {}
        }
    }

    /// Checks that everything has arrived which was sent on connections that are still open.
    pub(crate) fn check_calm(&mut self) {
        let mut wrong = Vec::new();
        for (talk, number) in self.talks.iter().zip(1..) {
            if talk.client_open != talk.server_open {
                wrong.push(format!("talk {number} is open at one end only: {talk:?}"));
            }
            if !talk.client_open || self.is_lossy {
                continue;
            }
            for way in [Way::ToServer, Way::ToClient, Way::ByHandle] {
                if let Some(Flow { sent, next, .. }) = self.flows.get(&flow(number, way))
                    && sent != next
                {
                    wrong.push(format!("talk {number} got only {next} of {sent} messages {way:?}"));
                }
            }
            for (flow, &count) in self.published.iter().filter(|(flow, _)| flow.to_le_bytes()[0] < BROADCAST) {
                let is_for_it = flow & TO_ONE == 0 || talk.server == Some(usize::from(flow.to_le_bytes()[1]));
                let heard = talk.heard.get(flow).copied().unwrap_or(0);
                if let Some(from) = talk.from(*flow).filter(|_| is_for_it)
                    && talk.due(*flow, heard.max(from)) < count
                {
                    wrong.push(format!("talk {number} heard {heard} of {count} publications of {flow:x}"));
                }
            }
            if let Some((flow, missing)) = talk.listed.iter().find(|(_, missing)| !missing.is_empty()) {
                wrong.push(format!("talk {number} did not get {missing:?} of list {flow:x}"));
            }
        }
        wrong.into_iter().for_each(|finding| self.find(finding));
    }

    /// Messages that did not arrive where later ones did.
    pub(crate) fn holes(&self) -> u64 {
        self.flows.values().map(|flow| flow.holes).sum()
    }

    /// Checks that no connection is open.
    pub(crate) fn check_end(&mut self) {
        if let Some(id) = self.live.first() {
            self.find(format!("connection {id} has not closed; {} have not", self.live.len()));
        }
    }
}
