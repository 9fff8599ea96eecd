//! The state of the driver in front: carriers, lanes, and what their loop does not know yet.

use super::carrier::{Carrier, News};
use super::lane::{Lane, Lanes};
use super::plan::Plan;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tautline::Address;
use tautline::layers::buf::Buf;
use tautline::layers::io::{Driver, Sent, Token};

/// The place of no carrier.
const NONE: usize = usize::MAX;

pub(super) struct State {
    plan: Plan,
    pub(super) lanes: Lanes,
    /// By the indices of their sockets at the driver behind.
    carriers: Vec<Option<Box<Carrier>>>,
    pub(super) news: VecDeque<News>,
    dirty: Vec<usize>,
    scratch: Buf,
    begun: Instant,
    now: Duration,
}

impl State {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            lanes: Lanes::new(u32::MAX),
            carriers: Vec::new(),
            news: VecDeque::new(),
            dirty: Vec::new(),
            scratch: Buf::new(),
            begun: Instant::now(),
            now: Duration::ZERO,
        }
    }

    pub(super) fn read_clock(&mut self) {
        self.now = self.begun.elapsed();
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.dirty.is_empty()
    }

    pub(super) fn carrier(&self, place: usize) -> Option<&Carrier> {
        self.carriers.get(place)?.as_deref()
    }

    fn place_of(&self, inner: Token) -> Option<usize> {
        let place = inner.index as usize;
        (self.carrier(place)?.inner == inner).then_some(place)
    }

    /// Begins a lane: on a carrier that has room, or on one for which `connect` opens a socket.
    pub(super) fn connect(
        &mut self,
        address: &Address,
        connect: impl FnOnce() -> io::Result<Token>,
    ) -> io::Result<Token> {
        let most = self.plan.streams;
        // The last that was opened is the one with room, if there is one.
        let found = self
            .carriers
            .iter()
            .rposition(|carrier| carrier.as_ref().is_some_and(|carrier| carrier.has_room(address, most)));
        let place = match found {
            Some(place) => place,
            None => self.begin(address, connect)?,
        };
        let lane = self.lanes.put(Box::new(Lane::new(place)));
        if let Some(carrier) = at(&mut self.carriers, place) {
            carrier.add(lane, &mut self.news);
        }
        Ok(lane)
    }

    fn begin(&mut self, address: &Address, connect: impl FnOnce() -> io::Result<Token>) -> io::Result<usize> {
        let session = (self.plan.session)().map_err(|error| io::Error::other(error.to_string()))?;
        let inner = connect()?;
        let place = inner.index as usize;
        if self.carriers.len() <= place {
            self.carriers.resize_with(place + 1, || None);
        }
        let carrier = Carrier::new(inner, address.clone(), (session, self.plan.info.clone()));
        self.carriers[place] = Some(Box::new(carrier));
        Ok(place)
    }

    /// The socket of a carrier is connected.
    pub(super) fn connected(&mut self, inner: Token, behind: &mut dyn Driver) {
        let Some(place) = self.place_of(inner) else { return };
        let Some(carrier) = at(&mut self.carriers, place) else { return };
        match carrier.connected() {
            Ok(()) => self.mark_dirty(place),
            Err(why) => self.fail(place, &why, behind),
        }
    }

    /// Bytes of a carrier have come.
    pub(super) fn received(&mut self, inner: Token, bytes: &mut [u8], behind: &mut dyn Driver) {
        let Some(place) = self.place_of(inner) else { return };
        let Self { carriers, lanes, news, scratch, now, .. } = self;
        let Some(carrier) = at(carriers, place) else { return };
        match carrier.read(bytes, *now, lanes, news, scratch) {
            Ok(()) => self.mark_dirty(place),
            Err(why) => self.fail(place, &why, behind),
        }
    }

    /// The driver takes bytes of a carrier again.
    pub(super) fn sent(&mut self, inner: Token, buf: Buf) {
        let Some(place) = self.place_of(inner) else { return };
        if let Some(carrier) = at(&mut self.carriers, place) {
            carrier.sent(Some(buf));
            carrier.go_on(None, &mut self.lanes, &mut self.news);
        }
        self.mark_dirty(place);
    }

    /// The socket of a carrier has ended.
    pub(super) fn ended(&mut self, inner: Token, why: &str, behind: &mut dyn Driver) {
        if let Some(place) = self.place_of(inner) {
            self.fail(place, why, behind);
        }
    }

    /// Ends a carrier at once, and all its lanes.
    fn fail(&mut self, place: usize, why: &str, behind: &mut dyn Driver) {
        let Some(mut carrier) = self.carriers.get_mut(place).and_then(Option::take) else { return };
        for &token in &carrier.lanes {
            // The place may soon be another carrier's.
            if let Some(lane) = self.lanes.get_mut(token) {
                (lane.carrier, lane.stream) = (NONE, None);
            }
            self.news.push_back(News::Failed(token, why.to_owned()));
        }
        // An alert for the peer, perhaps.
        if let Ok(Some(alert)) = carrier.output() {
            let _ = behind.send(carrier.inner, alert);
        }
        behind.close(carrier.inner, false);
    }

    /// Takes bytes of a lane. Returns the buffer, unless bytes of it wait.
    pub(super) fn send(&mut self, token: Token, buf: Buf) -> Option<Buf> {
        let Some(lane) = self.lanes.get_mut(token) else { return Some(cleared(buf)) };
        let place = lane.carrier;
        let Some(carrier) = at(&mut self.carriers, place) else { return Some(cleared(buf)) };
        match carrier.send(token, lane, buf) {
            Ok(back) => {
                self.mark_dirty(place);
                back
            }
            Err(why) => {
                self.news.push_back(News::Failed(token, why));
                Some(Buf::new())
            }
        }
    }

    pub(super) fn shut(&mut self, token: Token) {
        let Some(lane) = self.lanes.get_mut(token) else { return };
        let place = lane.carrier;
        if let Some(carrier) = at(&mut self.carriers, place) {
            carrier.shut(lane);
        }
        self.mark_dirty(place);
    }

    /// The loop has taken bytes of a lane.
    pub(super) fn took(&mut self, token: Token, bytes: usize) {
        let Some(lane) = self.lanes.get(token) else { return };
        let place = lane.carrier;
        if let Some(carrier) = at(&mut self.carriers, place) {
            carrier.took(lane, bytes);
        }
        self.mark_dirty(place);
    }

    /// Frees a lane. Its carrier ends with its last one.
    pub(super) fn close(&mut self, token: Token, abort: bool, behind: &mut dyn Driver) {
        let Some(mut lane) = self.lanes.remove(token) else { return };
        let place = lane.carrier;
        let Some(carrier) = at(&mut self.carriers, place) else { return };
        carrier.remove(token, &mut lane, abort);
        if !carrier.lanes.is_empty() {
            return self.mark_dirty(place);
        }
        let Some(mut carrier) = self.carriers.get_mut(place).and_then(Option::take) else { return };
        carrier.end();
        if let Ok(Some(last)) = carrier.output() {
            let _ = behind.send_last(carrier.inner, last);
        }
        behind.close(carrier.inner, abort);
    }

    fn mark_dirty(&mut self, place: usize) {
        if let Some(carrier) = at(&mut self.carriers, place)
            && carrier.has_output()
            && !std::mem::replace(&mut carrier.is_dirty, true)
        {
            self.dirty.push(place);
        }
    }

    /// Sends the output of a carrier. False if none has any.
    pub(super) fn flush_one(&mut self, behind: &mut dyn Driver) -> bool {
        let Some(place) = self.dirty.pop() else { return false };
        let Some(carrier) = at(&mut self.carriers, place) else { return true };
        carrier.is_dirty = false;
        match carrier.output() {
            Ok(None) => {}
            Ok(Some(records)) => {
                let back = match behind.send(carrier.inner, records) {
                    Sent::Done(buf) => Some(buf),
                    Sent::Pending => None,
                };
                let is_done = back.is_some();
                carrier.sent(back);
                if is_done {
                    // Lanes may wait for room behind what has left.
                    carrier.go_on(None, &mut self.lanes, &mut self.news);
                    self.mark_dirty(place);
                }
            }
            Err(why) => self.fail(place, &why, behind),
        }
        true
    }
}

fn at(carriers: &mut [Option<Box<Carrier>>], place: usize) -> Option<&mut Carrier> {
    carriers.get_mut(place)?.as_deref_mut()
}

fn cleared(mut buf: Buf) -> Buf {
    buf.clear();
    buf
}
