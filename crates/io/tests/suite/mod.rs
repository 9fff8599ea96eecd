//! Tests that every driver must pass, generic over the driver. A test binary instantiates them with [`driver_suite!`].
#![expect(unreachable_pub, reason = "each driver's test binary includes this module and is a crate of its own")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this runs inside tests")]

pub mod accept;
pub mod end;
pub mod moving;
pub mod reset;
pub mod transfer;
pub mod turn;
pub mod unix;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_io::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token};

/// Makes one `#[test]` of each function of the suite for the driver that `$make` (a `fn() -> D`) makes.
///
/// A driver to which some tests do not apply names a macro, which gets a file, a test and its code, and expands to the
/// code or to nothing. The macro names the tests that it leaves out, so that new tests apply to every driver.
#[macro_export]
macro_rules! driver_suite {
    ($make:expr) => {
        $crate::driver_suite! { $make, $crate::every_test }
    };
    ($make:expr, $filter:path) => {
        $crate::driver_suite! { @each $make, $filter;
            accept {
                storm thousands_at_once paused_ones_wait_in_the_backlog stopping_refuses stops_inside_accepted
                port_in_use tells_listeners_apart spreads_over_drivers shares_a_socket_of_others
                refuses_other_sockets_of_others ipv6_beside_ipv4 knows_peers
            }
            transfer {
                every_split byte_by_byte echo_of_megabytes slow_reader_pends
                the_kernel_holds_little_for_a_peer_that_does_not_read
                the_kernel_holds_less_for_each_of_a_crowd reader_of_single_bytes room_for_carried_bytes
                received_bytes_begin_aligned sends_reuse_their_buffer small_sends_fill_the_pipe sends_in_order sends_past_the_driver paused_bytes_wait pauses_inside_received end_waits_behind_a_pause
                sends_before_connected urgent_bytes_do_no_harm exactly_full_buffers
                resumes_inside_another_callback
            }
            end {
                peer_finishes_first we_finish_first finishing_waits_for_the_pending_send
                closing_sends_what_is_pending aborting_resets closed_tokens_do_nothing refused_connect
                closing_while_connecting finishing_while_connecting idles_after_the_end closes_inside_each_callback
                many_fail_in_one_turn
            }
            reset {
                before_accept after_accept with_unread_bytes while_pending after_finishing while_paused
                bytes_before_the_reset_come_first failing_is_never_inside_send repeatedly_at_random_points
                behind_the_end paused_before_all_is_received at_every_byte_of_an_exchange
            }
            turn {
                timeouts_hold short_timeouts_are_precise zero_does_not_wait woken_from_another_thread wakes_coalesce
                no_wake_is_lost waker_outlives_the_driver flood_starves_nobody closing_others_in_one_batch
                slots_reused_in_one_batch generations_differ never_sleeps_on_known_work never_sleeps_on_known_failures
                new_failures_wait_for_the_next_turn each_turn_tells_that_its_wait_is_over
                arrivals_are_stamped_or_refused sends_are_stamped_or_have_no_number
            }
            moving {
                no_received_byte_is_lost_or_doubled unsent_bytes_go_along a_driver_that_held_still_goes_on
                connections_whose_direction_has_ended_are_held listening_sockets_go_along
                a_driver_that_gave_all_away_hears_nothing_more
                a_break_while_all_hold_still_is_reported_once a_connection_that_was_adopted_holds_still_too
            }
            unix {
                echoes names_peers replaces_a_stale_file has_its_mode_when_it_listens keeps_a_live_socket keeps_a_stale_file_when_told
                keeps_other_files removes_its_file leaves_a_successors_file missing_file full_queue long_path
                paused_end_waits closing_with_output_leaves_no_socket reset_by_unread_bytes peer_shuts_both_ways_while_pending
            }
        }
    };
    (@each $make:expr, $filter:path; $($file:ident { $($test:ident)* })*) => {
        $(mod $file {
            $($filter! {
                $file $test {
                    #[test]
                    fn $test() {
                        super::suite::$file::$test($make);
                    }
                }
            })*
        })*
    };
}

/// Leaves out nothing.
#[macro_export]
macro_rules! every_test {
    ($file:ident $test:ident { $($code:tt)* }) => {
        $($code)*
    };
}

/// Reports loudly that something cannot be tested here. If `TAUTLINE_SKIPPED` names a file, the report is appended to
/// it too.
pub fn skip(what: &str, why: &str) {
    // Not by eprintln!, which the test harness swallows.
    let _ = writeln!(io::stderr(), "SKIPPED: {what}: {why}");
    if let Some(file) = std::env::var_os("TAUTLINE_SKIPPED") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(format!("{what}: {why}\n").as_bytes()).unwrap();
    }
}

/// Longest that any awaited event may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// An event that a driver reported to its sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Accepted(Token, Listener),
    Connected(Token),
    Received(Token, Vec<u8>),
    Sent(Token),
    /// With the number of the send, and the time.
    Departed(Token, u32, u64),
    Finished(Token),
    Failed(Token, io::ErrorKind),
    Woken,
    AcceptFailed(io::ErrorKind),
}

/// Records every event and reacts with `react`.
pub struct Script<F> {
    pub events: Vec<Event>,
    /// Connections that give way for want of descriptors.
    pub give_way: Vec<Token>,
    react: F,
}

impl<F> Script<F> {
    pub fn new(react: F) -> Self {
        Self { events: Vec::new(), give_way: Vec::new(), react }
    }

    pub fn arrivals(&self) -> Vec<Token> {
        self.tokens(|event| if let Event::Accepted(token, _) = *event { Some(token) } else { None })
    }

    pub fn bytes_of(&self, of: Token) -> Vec<u8> {
        let chunks = self.events.iter().filter_map(|event| match event {
            Event::Received(token, data) if *token == of => Some(data.as_slice()),
            _ => None,
        });
        chunks.collect::<Vec<_>>().concat()
    }

    pub fn has(&self, event: &Event) -> bool {
        self.events.contains(event)
    }

    pub fn failures(&self) -> Vec<Token> {
        self.tokens(|event| if let Event::Failed(token, _) = *event { Some(token) } else { None })
    }

    pub fn tokens(&self, pick: impl FnMut(&Event) -> Option<Token>) -> Vec<Token> {
        self.events.iter().filter_map(pick).collect()
    }

    fn happened(&mut self, driver: &mut dyn Driver, event: Event)
    where
        F: FnMut(&mut dyn Driver, &Event),
    {
        (self.react)(driver, &event);
        self.events.push(event);
    }
}

impl<F: FnMut(&mut dyn Driver, &Event)> Sink for Script<F> {
    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, listener: Listener) {
        self.happened(driver, Event::Accepted(token, listener));
    }

    fn connected(&mut self, driver: &mut dyn Driver, token: Token) {
        self.happened(driver, Event::Connected(token));
    }

    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        assert!(!data.is_empty(), "nothing received is no event");
        self.happened(driver, Event::Received(token, data.bytes().to_vec()));
    }

    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        assert!(buf.is_empty() && buf.capacity() > 0, "the buffer comes back empty, with its memory");
        self.happened(driver, Event::Sent(token));
    }

    fn departed(&mut self, driver: &mut dyn Driver, token: Token, number: u32, nanos: u64) {
        self.happened(driver, Event::Departed(token, number, nanos));
    }

    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        self.happened(
            driver,
            match end {
                End::Finished => Event::Finished(token),
                End::Failed(error) => Event::Failed(token, error.kind()),
                End::Faulty(_) => Event::Failed(token, io::ErrorKind::ConnectionReset),
            },
        );
    }

    fn woken(&mut self, driver: &mut dyn Driver) {
        self.happened(driver, Event::Woken);
    }

    fn make_room(&mut self, driver: &mut dyn Driver) -> bool {
        self.give_way.pop().inspect(|token| driver.close(*token, true)).is_some()
    }

    fn accept_failed(&mut self, driver: &mut dyn Driver, error: io::Error) {
        self.happened(driver, Event::AcceptFailed(error.kind()));
    }
}

/// A script without reactions.
pub fn watch() -> Script<impl FnMut(&mut dyn Driver, &Event)> {
    Script::new(|_: &mut dyn Driver, _: &Event| {})
}

/// A script that sends back what it receives.
pub fn echo() -> Script<impl FnMut(&mut dyn Driver, &Event)> {
    Script::new(|driver: &mut dyn Driver, event: &Event| match event {
        Event::Received(token, data) => {
            if let Sent::Pending = send(driver, *token, data) {
                driver.pause_receive(*token, true);
            }
        }
        Event::Sent(token) => driver.pause_receive(*token, false),
        Event::Finished(token) | Event::Failed(token, _) => driver.close(*token, false),
        _ => {}
    })
}

/// Turns until `done`.
pub fn run<F: FnMut(&mut dyn Driver, &Event)>(
    driver: &mut dyn Driver,
    script: &mut Script<F>,
    mut done: impl FnMut(&Script<F>) -> bool,
) {
    let start = Instant::now();
    while !done(script) {
        if start.elapsed() > PATIENCE {
            let tail = &script.events[script.events.len().saturating_sub(20)..];
            panic!("nothing more happens after {} events, the last are {tail:?}", script.events.len());
        }
        driver.turn(Some(Duration::from_millis(20)), script).unwrap();
    }
}

/// Turns for `time` and returns the number of turns: a driver with nothing to do turns about once per 20 ms.
pub fn idle<F: FnMut(&mut dyn Driver, &Event)>(
    driver: &mut dyn Driver,
    script: &mut Script<F>,
    time: Duration,
) -> usize {
    let start = Instant::now();
    let mut turns = 0;
    while start.elapsed() < time {
        driver.turn(Some(Duration::from_millis(20)), script).unwrap();
        turns += 1;
    }
    turns
}

/// Asserts that nothing happens, and that the driver sleeps meanwhile.
pub fn assert_idle<F: FnMut(&mut dyn Driver, &Event)>(driver: &mut dyn Driver, script: &mut Script<F>) {
    let before = script.events.len();
    let turns = idle(driver, script, Duration::from_millis(60));
    assert_eq!(script.events[before..], [], "nothing was expected any more");
    assert!(turns <= 20, "{turns} turns with nothing to do: the driver spins");
}

pub fn send(driver: &mut dyn Driver, token: Token, data: &[u8]) -> Sent {
    let mut buf = Buf::new();
    buf.put(data);
    let sent = driver.send(token, buf);
    if let Sent::Done(buf) = &sent {
        assert!(buf.is_empty(), "the buffer comes back empty");
    }
    sent
}

/// Sends more than the kernel takes while nobody reads, and returns the number of bytes.
pub fn send_until_pending(driver: &mut dyn Driver, token: Token) -> usize {
    let chunk = pattern(1 << 20);
    for chunks in 1..200 {
        if let Sent::Pending = send(driver, token, &chunk) {
            return chunks * chunk.len();
        }
    }
    panic!("the kernel takes 200 MiB that nobody reads");
}

/// Bytes whose order shows.
pub fn pattern(len: usize) -> Vec<u8> {
    let byte = |i: usize| {
        let [low, middle, high, ..] = i.to_le_bytes();
        low ^ middle.wrapping_mul(7) ^ high.wrapping_mul(13)
    };
    (0..len).map(byte).collect()
}

/// Asserts that `data` repeats `pattern(1 << 20)`.
pub fn assert_repeats(data: &[u8]) {
    let chunk = pattern(1 << 20);
    for part in data.chunks(chunk.len()) {
        assert!(part == &chunk[..part.len()], "bytes were lost, doubled or mixed up");
    }
}

/// Listens at a free port of the loopback device.
pub fn listen(driver: &mut dyn Driver) -> SocketAddr {
    let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (_, Address::Tcp(address)) = driver.listen(&any, &ListenOptions::default()).unwrap() else {
        panic!("a TCP listener has a TCP address")
    };
    assert_ne!(address.port(), 0);
    address
}

/// A listener outside of the driver, and its address as the driver sees it.
pub fn outside() -> (TcpListener, Address) {
    // At every address: a driver's loopback device may be a link to another host.
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, SocketAddr::from(([127, 0, 0, 1], port)).into())
}

/// A connection from a blocking peer to `driver`, accepted already.
pub fn pair<F: FnMut(&mut dyn Driver, &Event)>(
    driver: &mut dyn Driver,
    script: &mut Script<F>,
    at: SocketAddr,
) -> (TcpStream, Token) {
    let before = script.arrivals().len();
    let peer = TcpStream::connect(at).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.set_write_timeout(Some(PATIENCE)).unwrap();
    run(driver, script, |script| script.arrivals().len() > before);
    (peer, script.arrivals()[before])
}

/// Closes the peer's end with a reset.
pub fn reset(peer: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
}
