//! Runs the suite of all drivers on the XDP driver, except tests that do not apply, which are listed with reasons below.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../io/tests/suite/mod.rs"]
#[expect(dead_code, reason = "not all of it applies")]
mod suite;
mod world;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Address, Arrival, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
use tautline_xdp::{Config, Driver as Xdp};
use world::World;

thread_local! {
    static WORLD: OnceCell<Option<World>> = const { OnceCell::new() };
}

/// Moves this thread to the kernel's side of its world. Returns whether there is a world.
fn enter_world() -> bool {
    WORLD.with(|world| world.get_or_init(World::new).as_ref().map(World::enter_theirs)).is_some()
}

/// Runs `act` on our side.
fn on_our_side<T>(act: impl FnOnce() -> T) -> T {
    WORLD.with(|world| {
        let world = world.get().and_then(Option::as_ref).unwrap();
        world.enter_ours();
        let result = act();
        world.enter_theirs();
        result
    })
}

/// The driver on our side. The link between both sides stands for the suite's loopback device.
///
/// The suite's peers expect that a kernel answers them while the program does something else. A background thread
/// answers them while no call of the driver is under way.
struct Far {
    shared: Arc<Mutex<Shared>>,
    /// The driver, while a callback holds it.
    lent: Option<NonNull<dyn Driver>>,
    /// The addresses of our connections in the suite's terms.
    dialled: HashMap<Token, Address>,
    stop: Arc<AtomicBool>,
    background: Option<JoinHandle<()>>,
}

struct Shared(Xdp);

// SAFETY: the driver shares its reference counts with nothing outside of it, and a lock guards the driver.
unsafe impl Send for Shared {}

fn make() -> Far {
    let driver = on_our_side(|| world::opened(|| Xdp::with(Config::new(world::INTERFACE))));
    let shared = Arc::new(Mutex::new(Shared(driver)));
    let stop = Arc::new(AtomicBool::new(false));
    let (its, stopped) = (Arc::clone(&shared), Arc::clone(&stop));
    let background = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            if let Ok(mut shared) = its.try_lock() {
                shared.0.work_in_background();
            }
            thread::sleep(Duration::from_micros(500));
        }
    });
    Far { shared, lent: None, dialled: HashMap::new(), stop, background: Some(background) }
}

impl Far {
    fn act<T>(&self, act: impl FnOnce(&mut dyn Driver) -> T) -> T {
        match self.lent {
            // SAFETY: a callback of this thread lends the driver while this is set, and does not use it meanwhile.
            Some(mut lent) => act(unsafe { lent.as_mut() }),
            None => act(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner).0),
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.background.take().map(JoinHandle::join);
    }
}

fn translate(address: &Address, local: &str) -> Address {
    match address {
        Address::Tcp(at) if at.ip().is_loopback() => SocketAddr::new(world::ip_of(local), at.port()).into(),
        other => other.clone(),
    }
}

impl Driver for Far {
    fn name(&self) -> &'static str {
        "far"
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        on_our_side(|| self.act(|xdp| xdp.listen(&translate(address, world::OURS[0]), options)))
    }
    fn stop_listening(&mut self) {
        self.act(|xdp| xdp.stop_listening());
    }
    fn pause_accept(&mut self, pause: bool) {
        self.act(|xdp| xdp.pause_accept(pause));
    }
    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let token = on_our_side(|| self.act(|xdp| xdp.connect(&translate(address, world::THEIRS[0]))))?;
        self.dialled.insert(token, address.clone());
        Ok(token)
    }
    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.act(|xdp| xdp.send(token, buf))
    }
    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        self.act(|xdp| xdp.send_last(token, buf))
    }
    fn pause_receive(&mut self, token: Token, pause: bool) {
        self.act(|xdp| xdp.pause_receive(token, pause));
    }
    fn shutdown(&mut self, token: Token) {
        self.act(|xdp| xdp.shutdown(token));
    }
    fn close(&mut self, token: Token, abort: bool) {
        self.act(|xdp| xdp.close(token, abort));
    }
    fn unsent(&self, token: Token) -> usize {
        self.act(|xdp| xdp.unsent(token))
    }
    fn peer(&self, token: Token) -> Option<Address> {
        let peer = self.act(|xdp| xdp.peer(token))?;
        Some(self.dialled.get(&token).cloned().unwrap_or(peer))
    }
    fn waker(&self) -> Waker {
        self.act(|xdp| xdp.waker())
    }
    fn stamp_arrivals(&mut self) -> io::Result<()> {
        self.act(|xdp| xdp.stamp_arrivals())
    }
    fn arrival(&self) -> Option<Arrival> {
        self.act(|xdp| xdp.arrival())
    }
    fn began(&self) -> Option<u64> {
        self.act(|xdp| xdp.began())
    }
    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0.turn(timeout, &mut Through { sink, far: self })
    }
}

/// Passes the wrapper to the suite's sinks.
struct Through<'a> {
    sink: &'a mut dyn Sink,
    far: &'a mut Far,
}

impl Through<'_> {
    fn call(&mut self, driver: &mut dyn Driver, call: impl FnOnce(&mut dyn Sink, &mut Far)) {
        // SAFETY: only the life in the type differs. It is taken back before this call returns.
        let lent =
            unsafe { core::mem::transmute::<NonNull<dyn Driver + '_>, NonNull<dyn Driver>>(NonNull::from(driver)) };
        self.far.lent = Some(lent);
        call(self.sink, self.far);
        self.far.lent = None;
    }
}

impl Sink for Through<'_> {
    fn woke(&mut self, driver: &mut dyn Driver) {
        self.call(driver, |sink, far| sink.woke(far));
    }
    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, listener: Listener) {
        self.call(driver, |sink, far| sink.accepted(far, token, listener));
    }
    fn connected(&mut self, driver: &mut dyn Driver, token: Token) {
        self.call(driver, |sink, far| sink.connected(far, token));
    }
    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        self.call(driver, |sink, far| sink.received(far, token, data));
    }
    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        self.call(driver, |sink, far| sink.sent(far, token, buf));
    }
    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        self.call(driver, |sink, far| sink.ended(far, token, end));
    }
    fn woken(&mut self, driver: &mut dyn Driver) {
        self.call(driver, |sink, far| sink.woken(far));
    }
    fn accept_failed(&mut self, driver: &mut dyn Driver, error: io::Error) {
        self.call(driver, |sink, far| sink.accept_failed(far, error));
    }
}

/// Makes a test that passes at once if it can have no world.
macro_rules! in_world {
    (#[test] fn $test:ident() $code:block) => {
        #[test]
        fn $test() {
            if super::enter_world() $code
        }
    };
}
use in_world;

/// Leaves out the tests that do not apply to this driver.
#[deny(unused_macro_rules)]
macro_rules! where_it_applies {
    // One driver owns the interface, so no second one opens.
    (accept port_in_use $code:tt) => {};
    (accept spreads_over_drivers $code:tt) => {};
    // The kernel's sockets are none of its own.
    (accept shares_a_socket_of_others $code:tt) => {};
    (accept refuses_other_sockets_of_others $code:tt) => {};
    // Its peers connect to the loopback device by name. `echoes_over_both_families` listens at both addresses instead.
    (accept ipv6_beside_ipv4 $code:tt) => {};
    // The kernel holds nothing for its connections.
    (transfer the_kernel_holds_little_for_a_peer_that_does_not_read $code:tt) => {};
    (transfer the_kernel_holds_less_for_each_of_a_crowd $code:tt) => {};
    // A peer's reset can overtake bytes that its kernel has not sent, unless both are on one machine. The order is tested
    // by `paused_before_all_is_received` and the tests over frames in memory.
    (reset bytes_before_the_reset_come_first $code:tt) => {};
    // The driver has no Unix sockets, and rejects a connect to one at once.
    (unix $test:ident $code:tt) => {};
    // Its connections live in this process.
    (moving $test:ident $code:tt) => {};
    (turn never_sleeps_on_known_failures $code:tt) => {};
    (turn new_failures_wait_for_the_next_turn $code:tt) => {};
    ($file:ident $test:ident { $($code:tt)* }) => {
        crate::in_world! { $($code)* }
    };
}
use where_it_applies;

driver_suite!(super::make, crate::where_it_applies);
