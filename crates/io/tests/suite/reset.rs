//! Peers that reset the connection, at every point.

use super::*;
use std::io::{Read, Write};

/// The one failure of `token`, after which nothing more may happen, whatever is asked of it.
fn assert_failed<F: FnMut(&mut dyn Driver, &Event)>(driver: &mut dyn Driver, script: &mut Script<F>, token: Token) {
    run(driver, script, |script| !script.failures().is_empty());
    assert_idle(driver, script);
    assert!(matches!(send(driver, token, b"into the void"), Sent::Done(_)));
    driver.pause_receive(token, true);
    driver.pause_receive(token, false);
    driver.shutdown(token);
    assert_idle(driver, script);
    assert_eq!(script.failures(), [token]);
    driver.close(token, false);
    assert_idle(driver, script);
}

pub fn before_accept<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    reset(TcpStream::connect(at).unwrap());
    let peer = TcpStream::connect(at).unwrap();
    run(&mut driver, &mut script, |script| script.failures().len() + 1 == script.arrivals().len());
    // Some kernels hand out the dead connection, some do not.
    for token in script.failures() {
        driver.close(token, false);
    }
    assert_idle(&mut driver, &mut script);
    drop(peer);
    run(&mut driver, &mut script, |script| script.events.iter().any(|e| matches!(e, Event::Finished(_))));
}

pub fn after_accept<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (peer, token) = pair(&mut driver, &mut script, at);
    reset(peer);
    run(&mut driver, &mut script, |script| script.has(&Event::Failed(token, io::ErrorKind::ConnectionReset)));
    assert_failed(&mut driver, &mut script, token);
}

pub fn with_unread_bytes<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    assert!(matches!(send(&mut driver, token, b"never read"), Sent::Done(_)));
    peer.write_all(b"last words").unwrap();
    // Closing a socket with unread bytes resets it.
    peer.peek(&mut [0]).unwrap();
    drop(peer);
    run(&mut driver, &mut script, |script| !script.failures().is_empty());
    assert_eq!(script.bytes_of(token), b"last words");
    assert_failed(&mut driver, &mut script, token);
}

pub fn while_pending<D: Driver>(make: fn() -> D) {
    for paused in [false, true] {
        for finishing in [false, true] {
            let mut driver = make();
            let mut script = watch();
            let at = listen(&mut driver);
            let (peer, token) = pair(&mut driver, &mut script, at);
            send_until_pending(&mut driver, token);
            driver.pause_receive(token, paused);
            if finishing {
                driver.shutdown(token);
            }
            reset(peer);
            assert_failed(&mut driver, &mut script, token);
            assert!(!script.has(&Event::Sent(token)), "what failed was not sent");
        }
    }
}

pub fn after_finishing<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (peer, token) = pair(&mut driver, &mut script, at);
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    reset(peer);
    // The kernel may have noticed nothing yet; sending does.
    let start = Instant::now();
    while script.failures().is_empty() && start.elapsed() < PATIENCE {
        assert!(matches!(send(&mut driver, token, b"anyone there?"), Sent::Done(_)));
        idle(&mut driver, &mut script, Duration::from_millis(1));
    }
    assert_failed(&mut driver, &mut script, token);
    assert_eq!(script.events.iter().filter(|e| matches!(e, Event::Finished(_))).count(), 1);
}

pub fn while_paused<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    driver.pause_receive(token, true);
    peer.write_all(b"unheard").unwrap();
    idle(&mut driver, &mut script, Duration::from_millis(5));
    reset(peer);
    assert_failed(&mut driver, &mut script, token);
}

pub fn bytes_before_the_reset_come_first<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    assert!(matches!(send(&mut driver, token, b"never read"), Sent::Done(_)));
    peer.peek(&mut [0]).unwrap();
    peer.write_all(&pattern(40_000)).unwrap();
    drop(peer);
    // The failure is noticed by sending, before anything was received.
    for _ in 0..3 {
        assert!(matches!(send(&mut driver, token, b"too late"), Sent::Done(_)));
    }
    run(&mut driver, &mut script, |script| !script.failures().is_empty());
    assert!(script.bytes_of(token) == pattern(40_000));
    assert!(matches!(script.events.last(), Some(Event::Failed(..))));
}

pub fn failing_is_never_inside_send<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(token, _) = event {
            // Not even where it is known to be broken; and a failure must not stop later calls in one callback.
            for _ in 0..5 {
                assert!(matches!(send(driver, *token, b"reply"), Sent::Done(_)));
            }
        }
    });
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    peer.write_all(b"x").unwrap();
    reset(peer);
    let start = Instant::now();
    while script.failures().is_empty() && start.elapsed() < PATIENCE {
        let before = Instant::now();
        driver.turn(Some(PATIENCE), &mut script).unwrap();
        assert!(before.elapsed() < PATIENCE / 2, "a turn sleeps although a failure is known");
    }
    assert_failed(&mut driver, &mut script, token);
}

pub fn repeatedly_at_random_points<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| match event {
        Event::Received(token, data) => {
            if let Sent::Pending = send(driver, *token, data) {
                driver.pause_receive(*token, true);
            }
        }
        Event::Sent(token) => driver.pause_receive(*token, false),
        Event::Finished(token) | Event::Failed(token, _) => driver.close(*token, false),
        _ => {}
    });
    let at = listen(&mut driver);
    let peers = std::thread::spawn(move || {
        for round in 0..200_usize {
            let mut peer = TcpStream::connect(at).unwrap();
            let _ = peer.write_all(&pattern(round * 997 % 70_000 + 1));
            if round % 3 == 0 {
                let _ = peer.read(&mut [0; 100]);
            }
            if round % 2 == 0 {
                reset(peer);
            }
        }
    });
    let over = |script: &Script<_>| {
        script.events.iter().filter(|e| matches!(e, Event::Finished(_) | Event::Failed(..))).count()
    };
    // The last peers may still wait to be accepted when all accepted connections are over. Turns do not tell for how
    // long: some return at once with nothing, and faults let accepting wait for some of them.
    let mut settled = None;
    run(&mut driver, &mut script, |script| {
        let now = peers.is_finished() && over(script) == script.arrivals().len();
        settled = now.then(|| settled.unwrap_or_else(Instant::now));
        settled.is_some_and(|since| since.elapsed() > Duration::from_millis(200))
    });
    peers.join().unwrap();
    assert_idle(&mut driver, &mut script);
    let mut tokens = script.arrivals();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), over(&script), "every connection ended once");
}

/// The peer resets after every number of bytes sent, and after every number of bytes read of the reply.
pub fn at_every_byte_of_an_exchange<D: Driver>(make: fn() -> D) {
    const LEN: usize = 40;
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    for bytes in 0..=2 * LEN {
        let (mut peer, token) = pair(&mut driver, &mut script, at);
        let (sent, read) = (bytes.min(LEN), bytes.saturating_sub(LEN));
        peer.write_all(&pattern(sent)).unwrap();
        if read > 0 {
            run(&mut driver, &mut script, |script| script.bytes_of(token).len() == LEN);
            peer.read_exact(&mut vec![0; read]).unwrap();
        }
        reset(peer);
        run(&mut driver, &mut script, |script| script.failures().contains(&token));
        assert_eq!(script.bytes_of(token), pattern(sent)[..script.bytes_of(token).len()]);
        assert_eq!(driver.peer(token), None, "the script closed it");
    }
    assert_idle(&mut driver, &mut script);
}

pub fn behind_the_end<D: Driver>(make: fn() -> D) {
    for paused in [false, true] {
        for bytes in [0, 10, 300_000] {
            let mut driver = make();
            let mut script = watch();
            let at = listen(&mut driver);
            let (mut peer, token) = pair(&mut driver, &mut script, at);
            driver.pause_receive(token, paused);
            peer.set_nonblocking(true).unwrap();
            let _ = peer.write(&pattern(bytes)).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            reset(peer);
            // All of it is told by one event.
            assert_failed(&mut driver, &mut script, token);
            let ended = |event: &&Event| matches!(event, Event::Finished(_) | Event::Failed(..));
            assert!(matches!(script.events.iter().rfind(ended), Some(Event::Failed(..))), "{paused} {bytes}");
        }
    }
}

pub fn paused_before_all_is_received<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(token, _) = event {
            driver.pause_receive(*token, true);
        }
    });
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    peer.write_all(b"heard").unwrap();
    reset(peer);
    // The reset was told together with the bytes, and nothing else will be.
    assert_failed(&mut driver, &mut script, token);
    assert_eq!(script.bytes_of(token), b"heard");
}
