use super::net::{Net, Pipe};
use std::cell::{RefCell, RefMut};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Address, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};

/// Free bytes before received ones.
const HEADROOM: usize = 4096;
/// Most bytes that a connection gets in one turn.
const RECEIVE: usize = 64 << 10;

/// A driver over pipes in memory. Its turn never waits, and notes when the next one is due.
pub(super) struct Driver(pub(super) Rc<RefCell<Net>>);

/// One thing that a turn tells the loop.
enum News {
    Accepted,
    Sent(Buf),
    Received(Vec<u8>),
    Ended,
}

impl Driver {
    fn pipe(&self, token: Token) -> Option<RefMut<'_, Pipe>> {
        let net = self.0.borrow_mut();
        let pipe = RefMut::filter_map(net, |net| net.pipes.get_mut(token.index as usize)).ok()?;
        (!pipe.is_released).then_some(pipe)
    }

    fn next_news(&self, token: Token, received: &mut bool) -> Option<News> {
        let may_accept = !self.0.borrow().is_paused;
        let mut pipe = self.pipe(token)?;
        if !pipe.accepted {
            pipe.accepted = may_accept;
            return may_accept.then_some(News::Accepted);
        }
        if let Some(mut buf) = pipe.pending.take() {
            if pipe.take(&mut buf) {
                return Some(News::Sent(buf));
            }
            pipe.pending = Some(buf);
        }
        if pipe.loop_pauses {
            return None;
        }
        if !pipe.inbound.is_empty() {
            if std::mem::replace(received, true) {
                return None;
            }
            let len = pipe.inbound.len().min(RECEIVE);
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(pipe.inbound.drain(..len));
            return Some(News::Received(buffer));
        }
        let ended = pipe.client_ended && !pipe.end_told;
        pipe.end_told |= ended;
        ended.then_some(News::Ended)
    }
}

fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("a loop under test cannot {what}"))
}

impl tautline_io::Driver for Driver {
    fn name(&self) -> &'static str {
        "testing"
    }

    fn listen(&mut self, _: &Address, _: &ListenOptions) -> io::Result<(Listener, Address)> {
        Err(unsupported("listen: its clients come from App::connect"))
    }

    fn stop_listening(&mut self) {
        let mut net = self.0.borrow_mut();
        net.is_closed = true;
        net.pipes.iter_mut().for_each(|pipe| pipe.is_released |= !pipe.accepted);
    }

    fn pause_accept(&mut self, pause: bool) {
        self.0.borrow_mut().is_paused = pause;
    }

    fn connect(&mut self, _: &Address) -> io::Result<Token> {
        Err(unsupported("connect"))
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        if let Some(mut pipe) = self.pipe(token)
            && !pipe.take(&mut buf)
        {
            pipe.pending = Some(buf);
            return Sent::Pending;
        }
        buf.clear();
        Sent::Done(buf)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        if let Some(mut pipe) = self.pipe(token) {
            pipe.loop_pauses = pause;
        }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(mut pipe) = self.pipe(token) {
            pipe.loop_ended = true;
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        if let Some(mut pipe) = self.pipe(token) {
            let pending = pipe.pending.take();
            if abort {
                pipe.outbound.clear();
            } else if let Some(buf) = pending {
                pipe.outbound.extend(buf.filled());
            }
            pipe.is_released = true;
        }
    }

    fn unsent(&self, token: Token) -> usize {
        self.pipe(token).and_then(|pipe| pipe.pending.as_ref().map(Buf::len)).unwrap_or(0)
    }

    fn peer(&self, token: Token) -> Option<Address> {
        let port = u16::try_from(1024 + token.index % 60_000).unwrap_or(1);
        Some(Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
    }

    fn waker(&self) -> Waker {
        let wake = self.0.borrow().wake.clone();
        Waker::new(move || wake.wake())
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        let (pipes, woken) = {
            let mut net = self.0.borrow_mut();
            net.due = timeout.map(|wait| net.now + wait);
            (net.pipes.len(), net.wake.take())
        };
        sink.woke(self);
        if woken {
            sink.woken(self);
        }
        for index in 0..u32::try_from(pipes).unwrap_or(u32::MAX) {
            let token = Token { index, generation: 0 };
            let mut received = false;
            while let Some(news) = self.next_news(token, &mut received) {
                match news {
                    News::Accepted => sink.accepted(self, token, Listener(0)),
                    News::Sent(buf) => sink.sent(self, token, buf),
                    News::Received(mut buffer) => {
                        sink.received(self, token, Received::new(&mut buffer, HEADROOM));
                    }
                    News::Ended => sink.ended(self, token, End::Finished),
                }
            }
        }
        Ok(())
    }
}
