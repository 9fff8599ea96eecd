//! A shard rejects any bytes as a saved connection, or goes on with them. It then survives any input, and the connection
//! can move again at any time without a difference that its peer or the application sees.

use crate::fake::{Event, Fake, socket};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tautline_engine::{Closed, Config, Conn, Handler, Outgoing, Raw, RawEvent, Shard};
use tautline_testkit::rustls_peer::Fixture;
use tautline_tls::{Engine, Versions, plain};
use tautline_tls_rustls::fused;
use tautline_ws::Message;
use tautline_ws::deflate::DeflateConfig;

/// Echoes messages behind their number, which is the state that goes along.
#[derive(Default)]
struct Count {
    restored: usize,
    closed: usize,
    drained: usize,
}

impl Handler for Count {
    type State = u8;

    fn on_message(&mut self, conn: &mut Conn<'_, u8>, message: Message<'_>) {
        *conn.state() = conn.state().wrapping_add(1);
        let count = *conn.state();
        conn.binary(&[&[count], message.data()].concat());
        match message.data().first() {
            Some(b'p') => conn.pause(true),
            Some(b't') => conn.set_timer(Duration::ZERO, count.into()),
            Some(b's') => _ = conn.subscribe("topic"),
            _ => {}
        }
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, u8>, id: u64) {
        conn.send(Outgoing::text(&format!("timer {id}")));
        conn.pause(false);
    }

    fn on_drain(&mut self, _: &mut Conn<'_, u8>) {
        self.drained += 1;
    }

    fn on_close(&mut self, _: &mut Conn<'_, u8>, _: &Closed) {
        self.closed += 1;
    }

    fn on_raw(&mut self, raw: &mut Raw<'_, u8>, event: RawEvent<'_>) {
        match event {
            RawEvent::Restored => self.restored += 1,
            RawEvent::Drained => self.drained += 1,
            RawEvent::Finished { .. } => raw.finish(),
            RawEvent::Closed(_) => self.closed += 1,
            _ => {}
        }
    }

    fn on_bytes(&mut self, raw: &mut Raw<'_, u8>, bytes: &mut [u8]) -> usize {
        *raw.state() = raw.state().wrapping_add(1);
        raw.write(bytes);
        bytes.len()
    }

    fn save_state(&mut self, state: &mut u8, out: &mut Vec<u8>) -> bool {
        out.push(*state);
        true
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<u8> {
        if let [state] = saved { Some(*state) } else { None }
    }

    fn on_restored(&mut self, _: &mut Conn<'_, u8>) {
        self.restored += 1;
    }
}

/// Input: one byte whose lowest bit asks for TLS, and whose rest is the size of the pieces. Then the number of bytes at the
/// end that the peer sends, the saved connection, and these bytes. Returns whether the connection was accepted.
pub(crate) fn run(data: &[u8]) -> bool {
    let Some((&[way, len], rest)) = data.split_first_chunk() else { return false };
    let (saved, wire) = rest.split_at(rest.len().saturating_sub(len.into()));
    let pieces: Vec<&[u8]> = wire.chunks(usize::from(way >> 1) + 1).collect();
    if way & 1 == 0 { move_on(&plain::Engine, saved, &pieces) } else { move_on(fused_engine(), saved, &pieces) }
}

fn fused_engine() -> &'static fused::Engine {
    static ENGINE: OnceLock<fused::Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let server = Fixture::default().server(Versions::All);
        fused::Engine::new(Some(&server), None).expect("the fixture is valid")
    })
}

fn move_on<E: Engine>(engine: &E, saved: &[u8], pieces: &[&[u8]]) -> bool {
    let Some(mut stays) = Host::take(engine, saved) else { return false };
    let mut moves = Host::take(engine, saved).expect("it was taken before");
    let (first, then) = pieces.split_at(pieces.len() / 2);
    for host in [&mut stays, &mut moves] {
        host.feed(first);
    }
    // A compressor's history does not go along, and saving finds a compressed message that was ended too early.
    let flags = if saved.first() < Some(&5) { saved.get(1) } else { saved.get(2) };
    let is_compressed = flags.is_some_and(|flags| flags & 64 > 0);
    moves.go_on(engine);
    for host in [&mut stays, &mut moves] {
        host.feed(then);
        host.end();
    }
    if !is_compressed {
        assert_eq!(stays.received, moves.received, "the peer sees a difference");
        assert_eq!(stays.drained, moves.drained, "the application sees a difference");
    }
    true
}

/// A process that has the connection.
struct Host<E: Engine> {
    shard: Shard<E, Count>,
    kernel: Fake,
    /// All that the peer has received, also from earlier processes.
    received: Vec<u8>,
    drained: usize,
}

impl<E: Engine> Host<E> {
    fn take(engine: &E, saved: &[u8]) -> Option<Self> {
        let mut config = Config::untrusted_internet();
        config.limits.max_message = 4096;
        config.upgrade.deflate = Some(DeflateConfig::with_context_takeover());
        let kernel = Fake::default();
        kernel.0.borrow_mut().room = usize::MAX;
        let shard = Shard::new(0, Arc::new(config), engine.clone(), kernel.clone(), Count::default());
        let mut shard = shard.expect("a shard over a fake driver starts");
        // No deadline passes, however long the fuzzer is stopped.
        shard.danger_simulate(|| Duration::ZERO, [7; 32]);
        let socket = socket().try_clone().expect("a descriptor is left");
        if shard.restore(vec![socket.into()], saved).is_err() {
            assert_eq!(shard.begin_restored(), 0, "a rejected connection begins");
            return None;
        }
        // An idle connection of plain HTTP has nothing of the application.
        let (begun, restored) = (shard.begin_restored(), shard.handler().restored);
        assert!(begun == 1 && restored <= 1, "{begun} {restored}");
        Some(Self { shard, kernel, received: Vec::new(), drained: 0 })
    }

    fn is_closed(&self) -> bool {
        self.kernel.with(0, |wire| wire.closed.is_some())
    }

    fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).expect("a turn over a fake driver succeeds");
    }

    fn feed(&mut self, pieces: &[&[u8]]) {
        self.turn();
        for piece in pieces {
            if self.is_closed() {
                break;
            }
            self.kernel.push(Event::Bytes(0, piece.to_vec()));
            self.turn();
        }
    }

    /// Moves to another process, if the connection can.
    fn go_on(&mut self, engine: &E) {
        self.shard.settle();
        self.shard.hold_still().expect("a fake driver can");
        let mut all = Vec::new();
        let staying = self.shard.save(&mut |movers, _, saved| {
            all.extend(movers.conns().map(|conn| (conn, saved.to_vec())));
            Ok(())
        });
        assert!(staying.expect("nothing failed").total() + all.len() <= 1);
        let [(conn, saved)] = &all[..] else { return };
        let mut next = Self::take(engine, saved).expect("what was saved can be restored");
        self.shard.give_away(&[*conn]);
        assert_eq!((self.shard.counters().connections, self.shard.handler().closed), (0, 0));
        // Bytes that the old process has not read wait in the kernel.
        next.kernel.0.borrow_mut().events = std::mem::take(&mut self.kernel.0.borrow_mut().events);
        next.received = self.kernel.received(0);
        next.drained = self.shard.handler().drained;
        *self = next;
    }

    /// Has the peer finish, and the connection break if it does not end by that.
    fn end(&mut self) {
        for end in [Event::Finished(0), Event::Failed(0)] {
            if !self.is_closed() {
                self.kernel.push(end);
                self.turn();
                self.turn();
            }
        }
        assert_eq!(self.shard.counters().connections, 0, "the connection has ended");
        let handler = self.shard.handler();
        // A client that was idle may have opened a WebSocket since.
        assert!(handler.closed == handler.restored || handler.restored == 0, "on_restored and on_close come in pairs");
        self.drained += handler.drained;
        self.received.extend(self.kernel.received(0));
    }
}
