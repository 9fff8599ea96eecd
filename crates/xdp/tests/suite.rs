//! The XDP driver, held to what every driver must do, as far as that makes sense: not for Unix sockets, several drivers at
//! one address, or a driver that connects to itself; nor where a test takes it that all that fits the peer's buffers is
//! there at once.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../io/tests/suite/mod.rs"]
#[expect(dead_code, reason = "not all of it applies")]
mod suite;
mod world;

use std::cell::OnceCell;
use std::io;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tautline_io::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
use tautline_window::Buf;
use tautline_xdp::{Config, Driver as Xdp};
use world::World;

thread_local! {
    static WORLD: OnceCell<Option<World>> = const { OnceCell::new() };
}

/// Whether there is a world for this thread, on the kernel's side of which it is from now on.
fn in_a_world() -> bool {
    WORLD.with(|world| world.get_or_init(World::new).as_ref().map(World::enter_theirs)).is_some()
}

/// Acts on our side.
fn on_our_side<T>(act: impl FnOnce() -> T) -> T {
    WORLD.with(|world| {
        let world = world.get().and_then(Option::as_ref).unwrap();
        world.enter_ours();
        let result = act();
        world.enter_theirs();
        result
    })
}

/// The driver on our side; what the suite takes for the loopback device is the link between both sides.
///
/// The suite's peers expect what a kernel does: that it answers them while the program does something else. A thread of
/// its own sees to that, while no call of the driver is under way.
struct Far {
    shared: Arc<Mutex<Shared>>,
    /// The driver, while a callback has it.
    lent: Option<NonNull<Xdp>>,
    stop: Arc<AtomicBool>,
    background: Option<JoinHandle<()>>,
}

struct Shared(Xdp);

// SAFETY: what the driver shares by reference counts, it shares with nobody outside, and a lock guards it.
unsafe impl Send for Shared {}

fn make() -> Far {
    let driver = on_our_side(|| Xdp::with(Config::new(world::INTERFACE)).unwrap());
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
    Far { shared, lent: None, stop, background: Some(background) }
}

impl Far {
    fn act<T>(&self, act: impl FnOnce(&mut Xdp) -> T) -> T {
        match self.lent {
            // SAFETY: a callback of this thread has lent it for as long as this is set, and does not use it meanwhile.
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
    const NAME: &'static str = "far";

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        on_our_side(|| self.act(|xdp| xdp.listen(&translate(address, world::OURS[0]), options)))
    }
    fn stop_listening(&mut self) {
        self.act(Xdp::stop_listening);
    }
    fn pause_accept(&mut self, pause: bool) {
        self.act(|xdp| xdp.pause_accept(pause));
    }
    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        on_our_side(|| self.act(|xdp| xdp.connect(&translate(address, world::THEIRS[0]))))
    }
    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.act(|xdp| xdp.send(token, buf))
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
        self.act(|xdp| xdp.peer(token))
    }
    fn waker(&self) -> Waker {
        self.act(|xdp| xdp.waker())
    }
    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0.turn(timeout, &mut Through { sink, far: self })
    }
}

/// Hands the suite's sinks the wrapper that they know.
struct Through<'a, S> {
    sink: &'a mut S,
    far: &'a mut Far,
}

impl<S: Sink<Far>> Through<'_, S> {
    fn call(&mut self, driver: &mut Xdp, call: impl FnOnce(&mut S, &mut Far)) {
        self.far.lent = Some(NonNull::from(driver));
        call(self.sink, self.far);
        self.far.lent = None;
    }
}

impl<S: Sink<Far>> Sink<Xdp> for Through<'_, S> {
    fn woke(&mut self, driver: &mut Xdp) {
        self.call(driver, S::woke);
    }
    fn accepted(&mut self, driver: &mut Xdp, token: Token, listener: Listener) {
        self.call(driver, |sink, far| sink.accepted(far, token, listener));
    }
    fn connected(&mut self, driver: &mut Xdp, token: Token) {
        self.call(driver, |sink, far| sink.connected(far, token));
    }
    fn received(&mut self, driver: &mut Xdp, token: Token, data: Received<'_>) {
        self.call(driver, |sink, far| sink.received(far, token, data));
    }
    fn sent(&mut self, driver: &mut Xdp, token: Token, buf: Buf) {
        self.call(driver, |sink, far| sink.sent(far, token, buf));
    }
    fn ended(&mut self, driver: &mut Xdp, token: Token, end: End) {
        self.call(driver, |sink, far| sink.ended(far, token, end));
    }
    fn woken(&mut self, driver: &mut Xdp) {
        self.call(driver, S::woken);
    }
    fn accept_failed(&mut self, driver: &mut Xdp, error: io::Error) {
        self.call(driver, |sink, far| sink.accept_failed(far, error));
    }
}

/// Makes tests of functions of the suite.
macro_rules! suite {
    ($($file:ident { $($test:ident)* })*) => {
        $(mod $file {
            $(#[test]
            fn $test() {
                if super::in_a_world() {
                    super::suite::$file::$test(super::make);
                }
            })*
        })*
    };
}

suite! {
    accept {
        storm thousands_at_once paused_ones_wait_in_the_backlog stopping_refuses stops_inside_accepted
        tells_listeners_apart
    }
    transfer {
        every_split byte_by_byte echo_of_megabytes reader_of_single_bytes room_for_carried_bytes
        sends_reuse_their_buffer sends_in_order paused_bytes_wait pauses_inside_received end_waits_behind_a_pause
        exactly_full_buffers resumes_inside_another_callback
    }
    end {
        peer_finishes_first we_finish_first finishing_waits_for_the_pending_send closing_sends_what_is_pending
        aborting_resets closed_tokens_do_nothing refused_connect idles_after_the_end many_fail_in_one_turn
    }
    reset {
        before_accept after_accept with_unread_bytes while_pending after_finishing while_paused
        failing_is_never_inside_send repeatedly_at_random_points behind_the_end paused_before_all_is_received
    }
    turn {
        timeouts_hold short_timeouts_are_precise zero_does_not_wait woken_from_another_thread wakes_coalesce
        no_wake_is_lost waker_outlives_the_driver flood_starves_nobody closing_others_in_one_batch generations_differ
    }
}
