//! The simulated network: TCP connections between hosts, with delay, backpressure and faults, all drawn from a seed.
//!
//! ```text
//! send ──► segments on their way (in order, delayed) ──► inbox of the other end ──► received
//! ```
//! A sender's bytes count against its buffer until the other application has received them.

use crate::end_id::{CLIENT, EndId, SERVER};
use crate::host::Host;
use crate::plan::{Plant, Weather};
use crate::trace::{Clock, Time, Trace};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::ErrorKind;
use tautline_buf::Buf;
use tautline_io::Address;
use tautline_testkit::Random;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The first segment on its way reaches this end.
    Arrives(EndId),
    /// This end may have room to send again.
    Room(EndId),
    /// A connection request reaches the server.
    Syn(usize),
    /// The answer reaches the client: established, or refused.
    Answer { tcp: usize, established: bool },
    /// A closed connection waited long enough for its peer.
    LingerEnd(EndId),
    /// This host tries to accept again.
    AcceptAgain(usize),
    /// An action of the scenario.
    Act(u32),
}

#[derive(Debug)]
pub(crate) enum Segment {
    Data(Vec<u8>),
    Fin,
    Reset,
}

/// One end of a connection, as its kernel sees it.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) host: usize,
    /// Its slot, while its application has it.
    pub(crate) slot: Option<u32>,
    pub(crate) connected_owed: bool,
    pub(crate) sent_owed: Option<Buf>,
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) fin: bool,
    pub(crate) fin_told: bool,
    pub(crate) failed: Option<ErrorKind>,
    pub(crate) failed_told: bool,
    pub(crate) paused: bool,
    pub(crate) pending: Option<Buf>,
    /// Our direction ends behind `pending`.
    pub(crate) finishing: bool,
    pub(crate) fin_sent: bool,
    pub(crate) closed: bool,
    /// Bytes that we sent and the other application has not received.
    unacked: usize,
    room_due: bool,
    /// Segments on their way to this end, and when the last of them arrives.
    flight: VecDeque<Segment>,
    last_arrival: Time,
    pub(crate) is_ready: bool,
}

#[derive(Debug)]
pub(crate) struct Tcp {
    pub(crate) ends: [End; 2],
    /// The address that the client connects to.
    to: Address,
    /// Bytes that each end's kernel takes before its peer has received them.
    capacity: usize,
    /// Nothing arrives any more, and nobody is told.
    pub(crate) is_silent: bool,
    pub(crate) syns: u32,
}

pub(crate) struct Net {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) weather: Weather,
    pub(crate) plant: Option<Plant>,
    /// Breaches of a contract. A run without a finding has none.
    pub(crate) findings: Vec<String>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) tcps: Vec<Tcp>,
    agenda: BinaryHeap<Reverse<(Time, u64, Event)>>,
    scheduled: u64,
}

impl Net {
    pub(crate) fn new(clock: Clock, seed: u64, weather: Weather, prints: bool) -> Self {
        Self {
            clock,
            random: Random::new(seed),
            trace: Trace::new(prints),
            weather,
            plant: None,
            findings: Vec::new(),
            hosts: Vec::new(),
            tcps: Vec::new(),
            agenda: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    pub(crate) fn note(&mut self, host: usize, what: &str, a: usize, b: usize) {
        self.trace.note(self.clock.now(), host, what, (a as u64, b as u64));
    }

    pub(crate) fn find(&mut self, finding: String) {
        if self.findings.len() < 20 {
            self.findings.push(format!("{} us: {finding}", self.clock.now()));
        }
    }

    /// Whether something happens that does so once in `rarity` times.
    pub(crate) fn chance(&mut self, rarity: usize) -> bool {
        rarity > 0 && self.random.below(rarity) == 0
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.agenda.push(Reverse((at, self.scheduled, event)));
    }

    pub(crate) fn next_event(&self) -> Option<Time> {
        self.agenda.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event that is due.
    pub(crate) fn pop_due(&mut self) -> Option<Event> {
        let now = self.clock.now();
        self.next_event().filter(|at| *at <= now)?;
        self.agenda.pop().map(|Reverse((_, _, event))| event)
    }

    pub(crate) fn end(&mut self, id: EndId) -> &mut End {
        &mut self.tcps[id.tcp].ends[id.side]
    }

    /// Adds a connection whose request is on its way. The index of the server's host is not known yet.
    pub(crate) fn add_tcp(&mut self, client: usize, to: Address) -> usize {
        let capacity = (self.weather.capacity >> self.random.below(4)).max(self.weather.least_capacity);
        let mut ends = [End::default(), End::default()];
        ends[CLIENT].host = client;
        self.tcps.push(Tcp { ends, to, capacity, is_silent: false, syns: 0 });
        let tcp = self.tcps.len() - 1;
        let at = self.clock.now() + self.delay();
        self.schedule(at, Event::Syn(tcp));
        tcp
    }

    pub(crate) fn delay(&mut self) -> Time {
        let Weather { latency, jitter, .. } = self.weather;
        latency + self.random.next() % (jitter + 1)
    }

    /// Handles an event of the network.
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Arrives(id) => self.arrive(id),
            Event::Room(id) => {
                self.end(id).room_due = false;
                self.transmit(id);
            }
            Event::Syn(tcp) => self.syn(tcp),
            Event::Answer { tcp, established } => self.answer(EndId { tcp, side: CLIENT }, established),
            Event::LingerEnd(id) => {
                if self.end(id).pending.take().is_some() {
                    self.send_segment(id, Segment::Reset);
                }
            }
            Event::AcceptAgain(host) => self.hosts[host].accept_rests = false,
            Event::Act(_) => {}
        }
    }

    /// A connection request reaches the server's address: one of the hosts that listen queues it.
    fn syn(&mut self, tcp: usize) {
        if self.tcps[tcp].is_silent || self.tcps[tcp].ends[CLIENT].closed {
            return;
        }
        let to = Some(&self.tcps[tcp].to);
        let listening = |host: &usize| self.hosts[*host].listens.as_ref() == to;
        let listening: Vec<usize> = (0..self.hosts.len()).filter(listening).collect();
        let at = self.clock.now() + self.delay();
        if listening.is_empty() {
            return self.schedule(at, Event::Answer { tcp, established: false });
        }
        let host = listening[self.random.below(listening.len())];
        if self.hosts[host].backlog.len() >= self.weather.backlog {
            self.tcps[tcp].syns += 1;
            let again = self.clock.now() + (crate::trace::SECOND << self.tcps[tcp].syns.min(2));
            return self.schedule(again, Event::Syn(tcp));
        }
        self.tcps[tcp].ends[SERVER].host = host;
        self.hosts[host].backlog.push_back(tcp);
        self.note(host, "syn", tcp, 0);
        self.schedule(at, Event::Answer { tcp, established: true });
    }

    fn answer(&mut self, id: EndId, established: bool) {
        if self.tcps[id.tcp].is_silent {
            return;
        }
        let end = self.end(id);
        if end.closed {
            return;
        }
        if established {
            end.connected_owed = true;
        } else {
            end.failed = Some(ErrorKind::ConnectionRefused);
        }
        self.mark_ready(id);
    }

    /// Has the host of this end look at it in its next turn.
    pub(crate) fn mark_ready(&mut self, id: EndId) {
        let end = self.end(id);
        if end.slot.is_some() && !std::mem::replace(&mut end.is_ready, true) {
            let host = end.host;
            self.hosts[host].ready.push(id);
        }
    }

    /// Sends a segment to the other end. Segments of a direction arrive in order.
    pub(crate) fn send_segment(&mut self, from: EndId, segment: Segment) {
        let (to, delay, now) = (from.other(), self.delay(), self.clock.now());
        let end = self.end(to);
        let at = (now + delay).max(end.last_arrival);
        end.last_arrival = at;
        end.flight.push_back(segment);
        self.schedule(at, Event::Arrives(to));
    }

    /// Holds up everything that is sent to this end from now on.
    pub(crate) fn stall(&mut self, id: EndId, until: Time) {
        let end = self.end(id);
        end.last_arrival = end.last_arrival.max(until);
    }

    fn arrive(&mut self, id: EndId) {
        let is_silent = self.tcps[id.tcp].is_silent;
        let end = self.end(id);
        let Some(segment) = end.flight.pop_front() else { return };
        if is_silent || end.failed.is_some() {
            return;
        }
        let host = end.host;
        match segment {
            Segment::Reset => {
                end.failed = Some(ErrorKind::ConnectionReset);
                end.pending = None;
                self.note(host, "reset arrives", id.tcp, id.side);
            }
            Segment::Data(_) | Segment::Fin if end.closed => {
                if matches!(segment, Segment::Data(_)) {
                    end.failed = Some(ErrorKind::ConnectionReset);
                    end.pending = None;
                    self.send_segment(id, Segment::Reset);
                }
                return;
            }
            Segment::Fin => end.fin = true,
            Segment::Data(bytes) => {
                end.inbox.extend(&bytes);
                if self.plant == Some(Plant::LostWakeUp) && self.chance(40) {
                    return;
                }
            }
        }
        self.mark_ready(id);
    }

    /// Gives the kernel as many pending bytes as it takes.
    pub(crate) fn transmit(&mut self, id: EndId) {
        let capacity = self.tcps[id.tcp].capacity;
        let end = self.end(id);
        let Some(mut pending) = end.pending.take() else { return self.finish(id) };
        if end.failed.is_some() {
            return;
        }
        let mut room = capacity.saturating_sub(end.unacked).min(pending.len());
        // No memory in the kernel for a moment: the driver tries again.
        let shortage = self.weather.shortage;
        if self.chance(shortage) {
            room = 0;
            self.room_later(id, 10_000);
        }
        self.end(id).unacked += room;
        let mut left = room;
        while left > 0 {
            let most = self.weather.segment;
            let len = left.min(1 + self.random.below(most));
            let bytes = pending.filled()[..len].to_vec();
            pending.take(len);
            left -= len;
            self.send_segment(id, Segment::Data(bytes));
            self.plant_reordering(id);
        }
        if pending.is_empty() {
            pending.clear();
            let end = self.end(id);
            end.sent_owed = Some(pending);
            self.finish(id);
            self.mark_ready(id);
        } else {
            self.end(id).pending = Some(pending);
        }
    }

    fn plant_reordering(&mut self, id: EndId) {
        if self.plant == Some(Plant::ReorderedSend) && self.chance(100) {
            let flight = &mut self.end(id.other()).flight;
            if let [.., a, b] = flight.make_contiguous()
                && matches!((&*a, &*b), (Segment::Data(_), Segment::Data(_)))
            {
                std::mem::swap(a, b);
            }
        }
    }

    /// Ends our direction, if that is due.
    pub(crate) fn finish(&mut self, id: EndId) {
        let end = self.end(id);
        if end.finishing && !end.fin_sent && end.pending.is_none() && end.failed.is_none() {
            end.fin_sent = true;
            self.send_segment(id, Segment::Fin);
        }
    }

    pub(crate) fn room_later(&mut self, id: EndId, wait: Time) {
        let at = self.clock.now() + wait;
        if !std::mem::replace(&mut self.end(id).room_due, true) {
            self.schedule(at, Event::Room(id));
        }
    }

    /// The application of this end has received `len` bytes, so its peer has room again.
    pub(crate) fn acknowledge(&mut self, id: EndId, len: usize) {
        let peer = self.end(id.other());
        peer.unacked -= len;
        if peer.pending.is_some() {
            let wait = self.delay();
            self.room_later(id.other(), wait);
        }
    }

    /// Breaks a connection in the middle: both ends learn it.
    pub(crate) fn reset(&mut self, tcp: usize) {
        for side in [CLIENT, SERVER] {
            let id = EndId { tcp, side };
            let drops_flight = self.random.below(2) == 0;
            if drops_flight {
                self.end(id).flight.clear();
            }
            self.send_segment(id.other(), Segment::Reset);
        }
    }
}
