//! Handshakes in the pool, with sessions that wait, take long or panic as a test says.

use crate::fake::{Event, Fake};
use rustix::time::{ClockId, clock_gettime};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_engine::{Config, Conn, Counters, Handler, HandshakePool, Shard};
use tautline_tls::{Content, Error, Handshake, Opened, Session, Signing, TlsInfo};
use tautline_ws::Message;

/// A handshake that waits until the gate is open.
const WAIT: u8 = b'w';
/// A handshake that takes 3 ms of CPU time, as an expensive signature does.
const BUSY: u8 = b'r';
/// A handshake that panics.
const PANIC: u8 = b'!';

/// Time within which a thread of idle priority makes progress on a busy machine.
const LONG: Duration = Duration::from_secs(100);

/// State that sessions share with the test.
#[derive(Default)]
struct Gate {
    /// The handshakes that have begun, in order, and whether the gate is open.
    begun: Mutex<(Vec<u8>, bool)>,
    changed: Condvar,
}

#[derive(Clone, Default)]
struct Engine(Arc<Gate>);

struct Scripted(Arc<Gate>);

impl tautline_tls::Engine for Engine {
    type Session = Scripted;

    fn capabilities(&self) -> &'static tautline_tls::Capabilities {
        tautline_tls::plain::Engine.capabilities()
    }

    fn accept(&self) -> Result<Scripted, Error> {
        Ok(Scripted(self.0.clone()))
    }

    fn connect(&self, _host: &str) -> Result<Scripted, Error> {
        Ok(Scripted(self.0.clone()))
    }

    fn signing(&self, _hello: &[u8]) -> Option<Signing> {
        Some(Signing::new(Duration::from_secs(1), false))
    }
}

impl Session for Scripted {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        let what = wire[9];
        let mut begun = self.0.begun.lock().unwrap();
        begun.0.push(what);
        self.0.changed.notify_all();
        if what == WAIT {
            begun = self.0.changed.wait_while(begun, |begun| !begun.1).unwrap();
        }
        drop(begun);
        if what == BUSY {
            let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
            let end = spent() + Duration::from_millis(3);
            while spent() < end {}
        }
        if what == PANIC {
            // Without the hook, which prints a backtrace: a thread of idle priority takes minutes for that on a busy machine.
            resume_unwind(Box::new("the test wants this panic"));
        }
        out.put(&[what]);
        Ok((wire.len(), Handshake::Complete))
    }

    fn open(&mut self, wire: &mut [u8], _: &mut Buf, _: &mut Buf) -> Result<Opened, Error> {
        Ok(Opened { used: wire.len(), content: Content::Control })
    }

    fn seal(&mut self, _plain: &[&[u8]], _out: &mut Buf) -> Result<(), Error> {
        Ok(())
    }

    fn close(&mut self, _out: &mut Buf) {}

    fn tls_info(&self) -> TlsInfo {
        TlsInfo::default()
    }
}

struct App;

impl Handler for App {
    type State = ();

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

/// A shard and its pool of one thread.
struct Bench {
    shard: Shard<Engine, App>,
    kernel: Fake,
    gate: Arc<Gate>,
}

impl Bench {
    fn new(max_waiting: usize) -> Self {
        let mut config = Config::default();
        config.offload.max_waiting = max_waiting;
        // Without watchers one thread does all handshakes, also on a busy machine.
        config.offload.max_stall = None;
        Self::with(config)
    }

    fn with(mut config: Config) -> Self {
        config.offload.threads = Some(1);
        config.deadlines.handshake = LONG;
        let pool = HandshakePool::start(&config.offload).unwrap();
        let (kernel, engine) = (Fake::default(), Engine::default());
        kernel.0.borrow_mut().room = usize::MAX;
        let gate = engine.0.clone();
        let mut shard = Shard::new(0, Arc::new(config), engine, kernel.clone(), App).unwrap();
        shard.set_handshake_pool(pool);
        Self { shard, kernel, gate }
    }

    /// A client connects and sends a ClientHello that contains `what`.
    fn client(&mut self, index: u32, what: u8) {
        self.kernel.push(Event::Accept);
        self.kernel.push(Event::Bytes(index, vec![22, 3, 1, 0, 5, 1, 0, 0, 1, what]));
        // The turn that accepts may leave the step to the next one.
        self.turn();
        self.turn();
    }

    fn turn(&mut self) -> Counters {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
        self.shard.counters()
    }

    fn until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        let end = Instant::now() + LONG;
        while !done(self) {
            assert!(Instant::now() < end, "timed out: {what}");
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn begun(&self) -> Vec<u8> {
        self.gate.begun.lock().unwrap().0.clone()
    }

    fn open_the_gate(&self) {
        self.gate.begun.lock().unwrap().1 = true;
        self.gate.changed.notify_all();
    }
}

#[test]
fn a_client_that_leaves_frees_its_place_without_a_handshake() {
    let mut bench = Bench::new(2);
    bench.client(0, WAIT);
    bench.until("the thread is busy", |bench| bench.begun() == [WAIT]);
    bench.client(1, b'a');
    bench.client(2, b'b');
    bench.client(3, b'c');
    assert_eq!(bench.kernel.with(3, |wire| wire.closed), Some(true), "no place");
    // One client that waits leaves, and one whose handshake is under way.
    bench.kernel.push(Event::Failed(1));
    bench.kernel.push(Event::Failed(0));
    bench.turn();
    bench.client(4, b'd');
    assert_eq!(bench.kernel.with(4, |wire| wire.closed), None, "a place");
    bench.client(5, b'e');
    assert_eq!(bench.kernel.with(5, |wire| wire.closed), Some(true), "no place any more");
    bench.open_the_gate();
    bench.until("all are served", |bench| bench.turn().handshakes_offloaded == 3);
    assert_eq!(bench.begun(), [WAIT, b'b', b'd']);
    assert_eq!((bench.kernel.received(2), bench.kernel.received(4)), (vec![b'b'], vec![b'd']));
    let counters = bench.turn();
    assert_eq!((counters.handshakes_refused, counters.connections, counters.handshaking), (2, 2, 2));
}

#[test]
fn a_panic_ends_one_handshake_and_no_thread() {
    let mut bench = Bench::new(10);
    for index in 0..3 {
        bench.client(index, PANIC);
    }
    bench.client(3, b'a');
    bench.until("all are done", |bench| bench.turn().handshakes_offloaded == 4);
    // A fatal internal_error.
    let alert = [21, 3, 3, 0, 2, 2, 80];
    assert_eq!((bench.kernel.received(0), bench.kernel.received(3)), (alert.to_vec(), vec![b'a']));
    assert_eq!(bench.turn().handshakes_failed, 3);
}

#[test]
fn without_a_queue_an_idle_thread_still_takes_a_handshake() {
    let mut bench = Bench::new(0);
    bench.until("the thread is idle", |bench| {
        let index = u32::try_from(bench.kernel.0.borrow().wires.len()).unwrap();
        bench.client(index, b'a');
        bench.kernel.with(index, |wire| wire.closed).is_none()
    });
    bench.until("it is served", |bench| bench.turn().handshakes_offloaded == 1);
}

/// The pool may run on one CPU only, whose other thread never sleeps.
#[test]
fn handshakes_go_on_beside_threads_that_never_sleep() {
    for (max_stall, may_stall) in [(Some(Duration::from_millis(20)), true), (None, false)] {
        let run = move || {
            let cpus = tautline_io::machine::cpus().unwrap();
            tautline_io::machine::pin_to_cpu(cpus[cpus.len() - 1]).unwrap();
            let mut config = Config::default();
            config.offload.max_stall = max_stall;
            let over = Arc::new(AtomicBool::new(false));
            let busy = std::thread::spawn({
                let over = over.clone();
                move || while !over.load(Ordering::Relaxed) {}
            });
            let mut bench = Bench::with(config);
            for index in 0..4 {
                bench.client(index, BUSY);
            }
            bench.until("all are done", |bench| bench.turn().handshakes_offloaded == 4);
            over.store(true, Ordering::Relaxed);
            busy.join().unwrap();
            let counters = bench.turn();
            assert_eq!((counters.handshakes_refused, counters.handshakes_failed), (0, 0));
            assert_eq!(counters.handshakes_stalled > 0, may_stall, "{}", counters.handshakes_stalled);
        };
        std::thread::spawn(run).join().unwrap();
    }
}
