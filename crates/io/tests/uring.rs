//! The io_uring driver, held to what every driver must do.

mod suite;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::echo::Echo;
use tautline_io::uring::{Config, Driver};
use tautline_io::{Address, Driver as _, DriverConfig, End, ListenOptions, Listener, Received, Sink, Token};

/// Whether there is an io_uring. Asked once: where there is one, a driver that cannot be opened is a failure.
fn is_there() -> bool {
    static PROBED: LazyLock<bool> = LazyLock::new(|| {
        let probed = DriverConfig::from(Config::default()).probe();
        probed.inspect_err(|error| suite::skip("all of the io_uring driver", &error.to_string())).is_ok()
    });
    *PROBED
}

#[expect(clippy::unwrap_used, reason = "runs inside tests")]
fn with(config: Config) -> Driver {
    Driver::with(config).unwrap()
}

/// Ends a test at once where there is no io_uring.
macro_rules! where_it_is {
    ($file:ident $test:ident { #[test] fn $name:ident() $code:block }) => {
        #[test]
        fn $name() {
            if crate::is_there() $code
        }
    };
}
use where_it_is;

driver_suite!(|| crate::with(tautline_io::uring::Config::default()), crate::where_it_is);

/// A driver with so little room that queues overflow and buffers are missing all the time.
mod cramped {
    use crate::{driver_suite, suite};
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let mut small = Config::default();
        (small.buffers, small.buffer) = (2, 32 << 10);
        (small.submissions, small.completions) = (8, 64);
        super::with(small)
    }

    driver_suite!(crate::cramped::make, crate::where_it_is);
}

#[path = "suite/foreign.rs"]
mod foreign;

/// Within the loop of somebody else.
mod within_another_loop {
    use crate::{driver_suite, suite};

    driver_suite!(|| crate::foreign::Foreign(crate::with(tautline_io::uring::Config::default())), crate::where_it_is);
}

/// Spinning, with a time so short that it sleeps now and then.
mod spinning {
    use crate::{driver_suite, suite};
    use std::time::Duration;
    use tautline_io::Spin;
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let mut spin = Spin::default();
        spin.idle = Duration::from_millis(5);
        let mut config = Config::default();
        config.spin = Some(spin);
        super::with(config)
    }

    driver_suite!(crate::spinning::make, crate::where_it_is);
}

/// With stamps, whose place in buffers so small is often no more than there is.
mod stamped {
    use crate::{driver_suite, suite};
    use tautline_io::Driver as _;
    use tautline_io::uring::{Config, Driver};

    #[expect(clippy::unwrap_used, reason = "runs inside tests")]
    fn make() -> Driver {
        let mut config = Config::default();
        config.buffer = 4_000;
        let mut driver = super::with(config);
        driver.stamp_arrivals().unwrap();
        driver
    }

    driver_suite!(crate::stamped::make, crate::where_it_is);
}

/// A driver that has the kernel report bytes only, and receives them itself, from the start.
mod told {
    use crate::{driver_suite, suite};
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let mut config = Config::default();
        config.large = 0;
        super::with(config)
    }

    driver_suite!(crate::told::make, crate::where_it_is);
}

/// Sending without a copy what tests expect to be pending or do not look at.
mod uncopied {
    use crate::{driver_suite, suite};
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let mut config = Config::default();
        config.zero_copy = 100_000;
        super::with(config)
    }

    /// Leaves out the test for which a send has to end that the peer does not acknowledge.
    macro_rules! where_sends_end {
        (moving unsent_bytes_go_along $code:tt) => {};
        ($file:ident $test:ident $code:tt) => {
            crate::where_it_is! { $file $test $code }
        };
    }
    use where_sends_end;

    driver_suite!(crate::uncopied::make, crate::uncopied::where_sends_end);
}

/// Echoes messages of these sizes on eight connections at once, 20 of each size, and compares every byte.
#[expect(clippy::unwrap_used, reason = "runs inside tests")]
fn echoes<S: Read + Write + 'static>(config: Config, at: &str, sizes: [usize; 5], connect: fn(&Address) -> S) {
    let mut driver = with(config);
    let (_, at) = driver.listen(&at.parse().unwrap(), &ListenOptions::default()).unwrap();
    let client = std::thread::spawn(move || {
        let mut peers: Vec<S> = (0..8).map(|_| connect(&at)).collect();
        for (round, size) in sizes.into_iter().enumerate() {
            for number in 0..20_u8 {
                let message: Vec<u8> = (0..size).map(|at: usize| at.to_le_bytes()[0] ^ number).collect();
                for peer in &mut peers {
                    peer.write_all(&message).unwrap();
                }
                for peer in &mut peers {
                    let mut reply = vec![0; size];
                    peer.read_exact(&mut reply).unwrap();
                    assert!(reply == message, "round {round}, message {number}");
                }
            }
        }
    });
    let mut echo = Echo::default();
    while !client.is_finished() {
        driver.turn(Some(Duration::from_millis(20)), &mut echo).unwrap();
    }
    client.join().unwrap();
}

#[expect(clippy::unwrap_used, reason = "runs inside tests")]
fn over_tcp(at: &Address) -> TcpStream {
    TcpStream::connect(at.to_string()).unwrap()
}

/// Large messages on several connections at once, then small ones, and again: the driver changes how it receives,
/// there and back, and no byte is lost on the way.
#[test]
fn messages_change_their_size() {
    if !is_there() {
        return;
    }
    let mut config = Config::default();
    (config.buffers, config.buffer, config.large) = (2, 16 << 10, 2 << 10);
    echoes(config, "127.0.0.1:0", [10_000, 10, 20_000, 100, 3_000], over_tcp);
}

#[test]
fn everything_is_sent_without_a_copy() {
    if !is_there() {
        return;
    }
    let mut config = Config::default();
    config.zero_copy = 1;
    echoes(config, "127.0.0.1:0", [1, 64, 4_096, 65_536, 1], over_tcp);
}

#[test]
fn unix_sockets_copy_all_the_same() {
    if !is_there() {
        return;
    }
    let mut config = Config::default();
    config.zero_copy = 1;
    let at = std::env::temp_dir().join(format!("tautline-uring-copies-{}", std::process::id()));
    echoes(config, &format!("unix:{}", at.display()), [1, 64, 4_096, 65_536, 1], |at| match at {
        Address::Unix(path) => UnixStream::connect(path).unwrap(),
        other => panic!("{other}"),
    });
}

/// The buffer ring is lent for a turn, and comes back also from a turn that a panic ends.
#[test]
fn a_panicking_sink_costs_nothing_but_its_turn() {
    if !is_there() {
        return;
    }
    struct Panic;
    impl Sink for Panic {
        fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {}
        fn connected(&mut self, _: &mut dyn tautline_io::Driver, _: Token) {}
        fn received(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Received<'_>) {}
        fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
        fn ended(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: End) {}
        fn woken(&mut self, _: &mut dyn tautline_io::Driver) {
            std::panic::resume_unwind(Box::new("quietly"));
        }
        fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: std::io::Error) {}
    }
    let mut driver = with(Config::default());
    driver.waker().wake();
    let turn = std::panic::AssertUnwindSafe(|| driver.turn(Some(Duration::from_secs(20)), &mut Panic));
    assert!(std::panic::catch_unwind(turn).is_err());
    let mut script = suite::watch();
    let at = suite::listen(&mut driver);
    let (mut peer, token) = suite::pair(&mut driver, &mut script, at);
    peer.write_all(b"still there").unwrap();
    suite::run(&mut driver, &mut script, |script| script.bytes_of(token) == b"still there");
}

/// Receives with stamps could bring descriptors too.
#[test]
fn descriptors_that_a_peer_passes_are_closed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd;
    if !is_there() {
        return;
    }
    let mut driver = with(Config::default());
    driver.stamp_arrivals().unwrap();
    let path = std::env::temp_dir().join(format!("tautline-io-passed-{}.sock", std::process::id()));
    driver.listen(&Address::Unix(path.clone()), &ListenOptions::default()).unwrap();
    let client = std::thread::spawn(move || {
        let mut peer = UnixStream::connect(path).unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        for _ in 0..3 {
            let passed = [writer.as_fd(); 3];
            let mut control = SendAncillaryBuffer::new(&mut room);
            assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
            sendmsg(&peer, &[std::io::IoSlice::new(b"with a gift")], &mut control, SendFlags::empty()).unwrap();
            let mut reply = [0; 11];
            peer.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"with a gift");
        }
        // This was the pipe's last writing end: if another were open, the read would wait for ever.
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    });
    let mut echo = Echo::default();
    let started = std::time::Instant::now();
    while !client.is_finished() {
        assert!(started.elapsed() < Duration::from_secs(20), "a descriptor stays open");
        driver.turn(Some(Duration::from_millis(20)), &mut echo).unwrap();
    }
    client.join().unwrap();
}
