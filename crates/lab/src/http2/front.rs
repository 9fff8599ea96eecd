use super::carrier::News;
use super::carriers::State;
use std::io;
use std::time::Duration;
use tautline::Address;
use tautline::layers::buf::Buf;
use tautline::layers::io::{Driver, ListenOptions, Listener, Sent, Sink, Source, Token, Waker};

/// The driver that a loop uses in a call of its sink.
pub(super) struct Front<'a> {
    pub(super) behind: &'a mut dyn Driver,
    pub(super) state: &'a mut State,
}

impl Driver for Front<'_> {
    fn name(&self) -> &'static str {
        self.behind.name()
    }

    fn listen(&mut self, _: &Address, _: &ListenOptions) -> io::Result<(Listener, Address)> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a load over HTTP/2 accepts no connections"))
    }

    fn stop_listening(&mut self) {}

    fn pause_accept(&mut self, _: bool) {}

    fn next_work(&mut self) -> Option<Duration> {
        if self.state.has_news() { Some(Duration::ZERO) } else { self.behind.next_work() }
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let Self { behind, state } = self;
        state.connect(address, || behind.connect(address))
    }

    fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token> {
        let Self { behind, state } = self;
        state.connect(address, || behind.connect_from(address, source))
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.state.send(token, buf).map_or(Sent::Pending, Sent::Done)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        if let Some(lane) = self.state.lanes.get_mut(token) {
            lane.is_paused = pause;
            if !pause {
                self.state.news.push_back(News::Input(token));
            }
        }
    }

    fn shutdown(&mut self, token: Token) {
        self.state.shut(token);
    }

    fn close(&mut self, token: Token, abort: bool) {
        self.state.close(token, abort, self.behind);
    }

    fn unsent(&self, token: Token) -> usize {
        self.state.lanes.get(token).map_or(0, |lane| lane.unsent())
    }

    fn peer(&self, token: Token) -> Option<Address> {
        let lane = self.state.lanes.get(token)?;
        Some(self.state.carrier(lane.carrier)?.address.clone())
    }

    fn waker(&self) -> Waker {
        self.behind.waker()
    }

    /// The loop turns the driver that owns this one.
    fn turn(&mut self, _: Option<Duration>, _: &mut dyn Sink) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
