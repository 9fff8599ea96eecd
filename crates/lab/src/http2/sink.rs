//! The sink of the driver behind. Its events are of carriers, and what follows from them is of lanes.

use super::carrier::News;
use super::carriers::State;
use super::front::Front;
use std::io;
use tautline::layers::buf::Buf;
use tautline::layers::io::{Driver, End, Listener, Received, Sink, Token};

pub(super) struct Behind<'a> {
    pub(super) state: &'a mut State,
    pub(super) sink: &'a mut dyn Sink,
}

impl Behind<'_> {
    /// Tells the loop what an event of a carrier has led to.
    fn deliver(&mut self, behind: &mut dyn Driver) {
        deliver(&mut Front { behind, state: self.state }, self.sink);
    }
}

impl Sink for Behind<'_> {
    fn woke(&mut self, behind: &mut dyn Driver) {
        self.state.read_clock();
        self.sink.woke(&mut Front { behind, state: self.state });
        self.deliver(behind);
    }

    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {}

    fn connected(&mut self, behind: &mut dyn Driver, inner: Token) {
        self.state.connected(inner, behind);
        self.deliver(behind);
    }

    fn received(&mut self, behind: &mut dyn Driver, inner: Token, data: Received<'_>) {
        self.state.received(inner, data.bytes(), behind);
        self.deliver(behind);
    }

    fn sent(&mut self, behind: &mut dyn Driver, inner: Token, buf: Buf) {
        self.state.sent(inner, buf);
        self.deliver(behind);
    }

    fn ended(&mut self, behind: &mut dyn Driver, inner: Token, end: End) {
        match end {
            End::Finished => self.state.ended(inner, "the server has ended the connection", behind),
            End::Failed(error) => self.state.ended(inner, &error.to_string(), behind),
            End::Faulty(why) => self.state.ended(inner, why, behind),
        }
        self.deliver(behind);
    }

    fn woken(&mut self, behind: &mut dyn Driver) {
        self.sink.woken(&mut Front { behind, state: self.state });
        self.deliver(behind);
    }

    fn make_room(&mut self, behind: &mut dyn Driver) -> bool {
        self.sink.make_room(&mut Front { behind, state: self.state })
    }

    fn accept_failed(&mut self, behind: &mut dyn Driver, error: io::Error) {
        self.sink.accept_failed(&mut Front { behind, state: self.state }, error);
    }
}

/// Tells the loop what is new of its lanes, and sends what carriers have for their peers.
pub(super) fn deliver(front: &mut Front<'_>, sink: &mut dyn Sink) {
    loop {
        while let Some(news) = front.state.news.pop_front() {
            tell(front, sink, news);
        }
        if !front.state.flush_one(front.behind) {
            return;
        }
    }
}

fn tell(front: &mut Front<'_>, sink: &mut dyn Sink, news: News) {
    match news {
        News::Input(token) => input(front, sink, token),
        News::Connected(token) if front.state.lanes.get(token).is_some() => sink.connected(front, token),
        News::Sent(token, buf) if front.state.lanes.get(token).is_some() => sink.sent(front, token, buf),
        News::Failed(token, why) if front.state.lanes.get(token).is_some() => {
            sink.ended(front, token, End::Failed(io::Error::other(why)));
        }
        News::Connected(_) | News::Sent(..) | News::Failed(..) => {}
    }
}

/// Gives a loop the bytes of a lane, and its end.
fn input(front: &mut Front<'_>, sink: &mut dyn Sink, token: Token) {
    let Some(lane) = front.state.lanes.get_mut(token).filter(|lane| !lane.is_paused) else { return };
    let mut bytes = std::mem::take(&mut lane.inbound);
    let owed = std::mem::take(&mut lane.owed);
    if !bytes.is_empty() {
        sink.received(front, token, Received::new(bytes.filled_mut(), 0));
        bytes.clear();
    }
    if owed > 0 {
        front.state.took(token, owed);
    }
    let Some(lane) = front.state.lanes.get_mut(token) else { return };
    if lane.inbound.is_empty() {
        lane.inbound = bytes;
        if lane.peer_ended && !lane.is_paused && !std::mem::replace(&mut lane.told, true) {
            sink.ended(front, token, End::Finished);
        }
    }
}
