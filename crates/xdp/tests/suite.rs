//! The XDP driver, held to what every driver must do, as far as that makes sense: not for Unix sockets, several drivers at
//! one address, or a driver that connects to itself.

#[path = "../../io/tests/suite/mod.rs"]
#[expect(dead_code, reason = "not all of it applies")]
mod suite;
mod world;

use std::cell::OnceCell;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tautline_io::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
use tautline_window::Buf;
use tautline_xdp::Config;
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
#[repr(transparent)]
struct Far(tautline_xdp::Driver);

fn make() -> Far {
    on_our_side(|| Far(tautline_xdp::Driver::with(Config::new(world::INTERFACE)).unwrap()))
}

fn translate(address: &Address, local: &str) -> Address {
    match address {
        Address::Tcp(at) if at.ip().is_loopback() => SocketAddr::new(world::v4(local), at.port()).into(),
        other => other.clone(),
    }
}

struct Through<'a, S>(&'a mut S);

impl Driver for Far {
    const NAME: &'static str = "far";

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        on_our_side(|| self.0.listen(&translate(address, world::OURS[0]), options))
    }
    fn stop_listening(&mut self) {
        self.0.stop_listening();
    }
    fn pause_accept(&mut self, pause: bool) {
        self.0.pause_accept(pause);
    }
    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        on_our_side(|| self.0.connect(&translate(address, world::THEIRS[0])))
    }
    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.0.send(token, buf)
    }
    fn pause_receive(&mut self, token: Token, pause: bool) {
        self.0.pause_receive(token, pause);
    }
    fn shutdown(&mut self, token: Token) {
        self.0.shutdown(token);
    }
    fn close(&mut self, token: Token, abort: bool) {
        self.0.close(token, abort);
    }
    fn unsent(&self, token: Token) -> usize {
        self.0.unsent(token)
    }
    fn peer(&self, token: Token) -> Option<Address> {
        self.0.peer(token)
    }
    fn waker(&self) -> Waker {
        self.0.waker()
    }
    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
        self.0.turn(timeout, &mut Through(sink))
    }
}

fn far(driver: &mut tautline_xdp::Driver) -> &mut Far {
    let far = std::ptr::from_mut(driver).cast::<Far>();
    // SAFETY: a transparent wrapper is what it wraps, and the reference lives no longer than the one it is made of.
    unsafe { &mut *far }
}

impl<S: Sink<Far>> Sink<tautline_xdp::Driver> for Through<'_, S> {
    fn woke(&mut self, driver: &mut tautline_xdp::Driver) {
        self.0.woke(far(driver));
    }
    fn accepted(&mut self, driver: &mut tautline_xdp::Driver, token: Token, listener: Listener) {
        self.0.accepted(far(driver), token, listener);
    }
    fn connected(&mut self, driver: &mut tautline_xdp::Driver, token: Token) {
        self.0.connected(far(driver), token);
    }
    fn received(&mut self, driver: &mut tautline_xdp::Driver, token: Token, data: Received<'_>) {
        self.0.received(far(driver), token, data);
    }
    fn sent(&mut self, driver: &mut tautline_xdp::Driver, token: Token, buf: Buf) {
        self.0.sent(far(driver), token, buf);
    }
    fn ended(&mut self, driver: &mut tautline_xdp::Driver, token: Token, end: End) {
        self.0.ended(far(driver), token, end);
    }
    fn woken(&mut self, driver: &mut tautline_xdp::Driver) {
        self.0.woken(far(driver));
    }
    fn accept_failed(&mut self, driver: &mut tautline_xdp::Driver, error: io::Error) {
        self.0.accept_failed(far(driver), error);
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
        every_split byte_by_byte echo_of_megabytes slow_reader_pends reader_of_single_bytes room_for_carried_bytes
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
