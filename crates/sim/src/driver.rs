use crate::end_id::{CLIENT, EndId, SERVER};
use crate::host::Host;
use crate::network::{Net, Segment};
use crate::plan::Plant;
use crate::trace::SECOND;
use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_engine::{Handler, Shard};
use tautline_io::{Address, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
use tautline_tls::Engine;

/// Most connections that one turn accepts.
const MOST_ACCEPTS: usize = 16;
/// Longest that a closed connection goes on sending.
const LINGER: u64 = 5 * SECOND;

/// Has a loop go by the clock and the randomness of the run.
pub(crate) fn simulate<E: Engine, H: Handler>(net: &RefCell<Net>, shard: &mut Shard<E, H>) {
    let clock = net.borrow().clock.clone();
    let mut seed = [0; 32];
    seed.iter_mut().for_each(|byte| *byte = net.borrow_mut().random.next().to_le_bytes()[0]);
    shard.danger_simulate(move || Duration::from_micros(clock.now()), seed);
}

/// The driver of one host. A turn that finds nothing to do returns at once and notes when its timeout ends: the
/// scheduler runs the loop again then, or when something has happened.
pub(crate) struct Driver {
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) host: usize,
}

impl Driver {
    fn token(host: &Host, index: u32) -> Token {
        Token { index, generation: host.slots[index as usize].generation }
    }

    fn end_of(&self, net: &Net, token: Token) -> Option<EndId> {
        let slot = net.hosts[self.host].slots.get(token.index as usize)?;
        slot.end.filter(|_| slot.generation == token.generation)
    }

    fn insert(&self, net: &mut Net, id: EndId) -> Token {
        let index = net.hosts[self.host].insert(id);
        net.end(id).slot = Some(index);
        Self::token(&net.hosts[self.host], index)
    }

    fn accept(&mut self, sink: &mut dyn Sink) {
        for _ in 0..MOST_ACCEPTS {
            let token = {
                let mut guard = self.net.borrow_mut();
                let net = &mut *guard;
                if !net.hosts[self.host].can_accept() {
                    return;
                }
                let rarity = net.weather.no_descriptors;
                if net.chance(rarity) {
                    let kinds = [24, 23, 12, 105].map(io::Error::from_raw_os_error);
                    let at = net.random.below(kinds.len());
                    let error = kinds.into_iter().nth(at);
                    net.hosts[self.host].accept_rests = true;
                    let again = net.clock.now() + SECOND / 10;
                    net.schedule(again, crate::network::Event::AcceptAgain(self.host));
                    net.note(self.host, "cannot accept", at, 0);
                    drop(guard);
                    return error.into_iter().for_each(|error| sink.accept_failed(self, error));
                }
                let Some(tcp) = net.hosts[self.host].backlog.pop_front() else { return };
                let id = EndId { tcp, side: SERVER };
                let token = self.insert(net, id);
                net.note(self.host, "accepted", tcp, token.index as usize);
                net.mark_ready(id);
                token
            };
            sink.accepted(self, token, Listener(0));
        }
    }

    /// Tells the application everything about one end.
    fn step(&mut self, id: EndId, sink: &mut dyn Sink) {
        let net = self.net.clone();
        let Some(token) = self.begin_step(id) else { return };
        if std::mem::take(&mut net.borrow_mut().end(id).connected_owed) {
            net.borrow_mut().note(self.host, "connected", id.tcp, 0);
            sink.connected(self, token);
        }
        let sent = self.live(id, token).and_then(|mut net| net.end(id).sent_owed.take());
        if let Some(buf) = sent {
            net.borrow_mut().note(self.host, "sent", id.tcp, id.side);
            sink.sent(self, token, buf);
        }
        let received = self.live(id, token).and_then(|mut net| receive(&mut net, id));
        if let Some((mut buffer, start)) = received {
            net.borrow_mut().note(self.host, "received", id.tcp, buffer.len() - start);
            sink.received(self, token, Received::new(&mut buffer, start));
        }
        let finished = self.live(id, token).is_some_and(|mut net| {
            let end = net.end(id);
            let due = end.fin && !end.fin_told && !end.paused && end.inbox.is_empty();
            end.fin_told |= due;
            due
        });
        if finished {
            net.borrow_mut().note(self.host, "finished", id.tcp, id.side);
            sink.ended(self, token, End::Finished);
        }
        let failed = self.live(id, token).and_then(|mut net| {
            let end = net.end(id);
            let due = !end.failed_told && (end.paused || end.inbox.is_empty());
            let failed = end.failed.filter(|_| due);
            end.failed_told |= failed.is_some();
            failed
        });
        if let Some(kind) = failed {
            net.borrow_mut().note(self.host, "failed", id.tcp, id.side);
            sink.ended(self, token, End::Failed(kind.into()));
        }
        if let Some(mut net) = self.live(id, token)
            && !net.end(id).inbox.is_empty()
            && !net.end(id).paused
        {
            net.mark_ready(id);
        }
    }

    fn begin_step(&self, id: EndId) -> Option<Token> {
        let mut net = self.net.borrow_mut();
        let end = net.end(id);
        end.is_ready = false;
        let index = end.slot?;
        Some(Self::token(&net.hosts[self.host], index))
    }

    /// The network, while the application still has this end.
    fn live(&self, id: EndId, token: Token) -> Option<std::cell::RefMut<'_, Net>> {
        let net = self.net.borrow_mut();
        (self.end_of(&net, token) == Some(id)).then_some(net)
    }
}

/// Takes the next bytes for the application, behind some headroom.
fn receive(net: &mut Net, id: EndId) -> Option<(Vec<u8>, usize)> {
    let most = net.weather.receive;
    let most = if net.random.below(8) == 0 { most } else { 1 + net.random.below(most) };
    let start = net.weather.headroom;
    let end = net.end(id);
    if end.paused || end.inbox.is_empty() {
        return None;
    }
    let len = most.min(end.inbox.len());
    let mut buffer = Vec::with_capacity(start + len);
    buffer.resize(start, 0);
    buffer.extend(end.inbox.drain(..len));
    net.acknowledge(id, len);
    Some((buffer, start))
}

impl tautline_io::Driver for Driver {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn listen(&mut self, address: &Address, _options: &ListenOptions) -> io::Result<(Listener, Address)> {
        self.net.borrow_mut().hosts[self.host].listens = Some(address.clone());
        Ok((Listener(0), address.clone()))
    }

    fn stop_listening(&mut self) {
        let mut net = self.net.borrow_mut();
        net.hosts[self.host].listens = None;
        while let Some(tcp) = net.hosts[self.host].backlog.pop_front() {
            let id = EndId { tcp, side: SERVER };
            net.end(id).closed = true;
            net.send_segment(id, Segment::Reset);
        }
    }

    fn pause_accept(&mut self, pause: bool) {
        self.net.borrow_mut().hosts[self.host].accept_paused = pause;
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let mut net = self.net.borrow_mut();
        let rarity = net.weather.no_descriptors;
        if net.chance(rarity) {
            net.note(self.host, "cannot connect", 0, 0);
            return Err(io::Error::from_raw_os_error(24));
        }
        let tcp = net.add_tcp(self.host, address.clone());
        let token = self.insert(&mut net, EndId { tcp, side: CLIENT });
        net.note(self.host, "connect", tcp, token.index as usize);
        Ok(token)
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        let mut net = self.net.borrow_mut();
        let Some(id) = self.end_of(&net, token) else {
            buf.clear();
            return Sent::Done(buf);
        };
        net.note(self.host, "send", id.tcp, buf.len());
        let end = net.end(id);
        if end.pending.is_some() || end.sent_owed.is_some() {
            net.find(format!("host {} sends on connection {} while a send is pending", self.host, id.tcp));
        } else if end.finishing {
            net.find(format!("host {} sends on connection {} behind its end", self.host, id.tcp));
        }
        let end = net.end(id);
        if end.failed.is_some() || buf.is_empty() {
            buf.clear();
            return Sent::Done(buf);
        }
        end.pending = Some(buf);
        net.transmit(id);
        net.end(id).sent_owed.take().map_or(Sent::Pending, Sent::Done)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        let mut net = self.net.borrow_mut();
        if let Some(id) = self.end_of(&net, token) {
            net.end(id).paused = pause;
            net.note(self.host, "pause", id.tcp, usize::from(pause));
            if !pause {
                net.mark_ready(id);
            }
        }
    }

    fn shutdown(&mut self, token: Token) {
        let mut net = self.net.borrow_mut();
        if let Some(id) = self.end_of(&net, token) {
            net.note(self.host, "shutdown", id.tcp, id.side);
            net.end(id).finishing = true;
            net.finish(id);
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        let mut net = self.net.borrow_mut();
        let Some(id) = self.end_of(&net, token) else { return };
        net.note(self.host, "close", id.tcp, usize::from(abort));
        let planted = net.plant == Some(Plant::DoubleRelease) && net.chance(10);
        let host = &mut net.hosts[self.host];
        host.slots[token.index as usize].end = None;
        host.free.push(token.index);
        if planted {
            // The slot is released twice, so two connections get it.
            host.free.push(token.index);
        } else {
            let generation = &mut host.slots[token.index as usize].generation;
            *generation = generation.wrapping_add(1);
        }
        let end = net.end(id);
        end.slot = None;
        end.closed = true;
        end.sent_owed = None;
        if end.failed.is_some() {
            return;
        }
        if abort || !end.inbox.is_empty() {
            // The kernel resets a connection whose received bytes nobody reads.
            end.pending = None;
            net.send_segment(id, Segment::Reset);
        } else {
            end.finishing = true;
            if end.pending.is_some() {
                let at = net.clock.now() + LINGER;
                net.schedule(at, crate::network::Event::LingerEnd(id));
            }
            net.finish(id);
        }
    }

    fn unsent(&self, token: Token) -> usize {
        let mut net = self.net.borrow_mut();
        self.end_of(&net, token).and_then(|id| net.end(id).pending.as_ref().map(Buf::len)).unwrap_or(0)
    }

    fn peer(&self, token: Token) -> Option<Address> {
        let mut net = self.net.borrow_mut();
        let id = self.end_of(&net, token)?;
        if net.end(id).failed.is_some() {
            return None;
        }
        let [a, b] = u16::try_from(net.end(id.other()).host).unwrap_or(0).to_be_bytes();
        let port = u16::try_from(1024 + id.tcp % 60_000).unwrap_or(1);
        Some(Address::Tcp(SocketAddr::from((Ipv4Addr::new(10, a, b, 1), port))))
    }

    fn waker(&self) -> Waker {
        let woken = self.net.borrow().hosts[self.host].woken.clone();
        Waker::new(move || woken.store(true, Ordering::Relaxed))
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        let (ready, woken) = {
            let mut guard = self.net.borrow_mut();
            let net = &mut *guard;
            let now = net.clock.now();
            let host = &mut net.hosts[self.host];
            host.turns += 1;
            let woken = host.woken.swap(false, Ordering::Relaxed);
            if !woken && host.ready.is_empty() && !host.can_accept() {
                host.due = timeout.map(|wait| now + u64::try_from(wait.as_micros()).unwrap_or(u64::MAX / 2));
                return Ok(());
            }
            host.due = Some(now);
            let mut ready = std::mem::take(&mut host.ready);
            // The order of events of different connections is arbitrary.
            for at in (1..ready.len()).rev() {
                ready.swap(at, net.random.below(at + 1));
            }
            (ready, woken)
        };
        sink.woke(self);
        if woken {
            sink.woken(self);
        }
        self.accept(sink);
        ready.into_iter().for_each(|id| self.step(id, sink));
        Ok(())
    }
}
