//! Connections and listening sockets that go from one driver to another, as between two processes.

use super::*;
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Takes a connection out of `driver`: a copy of its socket, and the bytes that the driver has of it.
fn take(driver: &mut dyn Driver, token: Token) -> (OwnedFd, Vec<u8>, Vec<u8>) {
    driver.hold_still().unwrap();
    let held = driver.held(token).unwrap();
    let taken = (held.socket.try_clone_to_owned().unwrap(), held.received.to_vec(), held.unsent.to_vec());
    driver.give_away(token);
    assert!(driver.held(token).is_none(), "the token is not valid any more");
    taken
}

/// All bytes that arrived on a connection.
fn received<F>(script: &Script<F>, token: Token) -> Vec<u8> {
    let of = |event: &Event| match event {
        Event::Received(of, data) if *of == token => Some(data.clone()),
        _ => None,
    };
    script.events.iter().filter_map(of).flatten().collect()
}

pub fn no_received_byte_is_lost_or_doubled<D: Driver>(make: fn() -> D) {
    for round in 0..20 {
        let (mut old, mut new) = (make(), make());
        let (mut before, mut after) = (watch(), watch());
        let at = listen(&mut old);
        let (mut peer, token) = pair(&mut old, &mut before, at);
        let data = pattern(100_000 + round * 7_001);
        peer.write_all(&data[..1_000]).unwrap();
        run(&mut old, &mut before, |script| !received(script, token).is_empty());
        // These bytes arrive before, while and after the connection moves.
        let rest = data[1_000..].to_vec();
        let writer = std::thread::spawn(move || {
            peer.write_all(&rest).unwrap();
            peer
        });
        for _ in 0..round % 4 {
            old.turn(Some(Duration::ZERO), &mut before).unwrap();
        }
        let (socket, held, unsent) = take(&mut old, token);
        assert!(unsent.is_empty());
        let moved = new.adopt(socket).unwrap();
        let mut all = received(&before, token);
        all.extend(held);
        let len = data.len() - all.len();
        run(&mut new, &mut after, |script| received(script, moved).len() >= len);
        all.extend(received(&after, moved));
        assert!(all == data, "bytes were lost, doubled or mixed up in round {round}");
        drop(writer.join().unwrap());
        run(&mut new, &mut after, |script| script.events.contains(&Event::Finished(moved)));
        assert_idle(&mut old, &mut before);
    }
}

pub fn unsent_bytes_go_along<D: Driver>(make: fn() -> D) {
    let (mut old, mut new) = (make(), make());
    let (mut before, mut after) = (watch(), watch());
    let at = listen(&mut old);
    let (mut peer, token) = pair(&mut old, &mut before, at);
    let len = send_until_pending(&mut old, token);
    for _ in 0..3 {
        old.turn(Some(Duration::ZERO), &mut before).unwrap();
    }
    let (socket, _, unsent) = take(&mut old, token);
    assert!(!unsent.is_empty() && unsent.len() < len);
    let moved = new.adopt(socket).unwrap();
    assert!(matches!(send(&mut new, moved, &unsent), Sent::Pending));
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; len];
        peer.read_exact(&mut all).unwrap();
        (all, peer)
    });
    run(&mut new, &mut after, |script| script.events.contains(&Event::Sent(moved)));
    let (all, mut peer) = reader.join().unwrap();
    assert_repeats(&all);
    // The old driver's end does nothing to the connection.
    drop(old);
    peer.write_all(b"still there?").unwrap();
    run(&mut new, &mut after, |script| received(script, moved) == b"still there?");
}

pub fn a_driver_that_held_still_goes_on<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let data = pattern(300_000);
    let (mut reader, whole) = (peer.try_clone().unwrap(), data.clone());
    let writer = std::thread::spawn(move || {
        peer.write_all(&whole).unwrap();
        peer
    });
    let echoed = std::thread::spawn(move || {
        let mut all = vec![0; 300_000];
        reader.read_exact(&mut all).unwrap();
        all
    });
    let (start, mut held) = (Instant::now(), 0);
    while !echoed.is_finished() {
        assert!(start.elapsed() < PATIENCE, "nothing more happens");
        driver.hold_still().unwrap();
        held += usize::from(driver.held(token).is_some());
        driver.turn(Some(Duration::from_millis(5)), &mut script).unwrap();
    }
    assert!(held > 0);
    assert!(echoed.join().unwrap() == data, "bytes were lost, doubled or mixed up");
    drop(writer.join().unwrap());
}

pub fn a_connection_that_was_adopted_holds_still_too<D: Driver>(make: fn() -> D) {
    for goes in [false, true] {
        let (mut old, mut new) = (make(), make());
        let (mut before, mut after) = (watch(), watch());
        let at = listen(&mut old);
        let (mut peer, token) = pair(&mut old, &mut before, at);
        old.hold_still().unwrap();
        peer.write_all(b"for one of them").unwrap();
        new.hold_still().unwrap();
        let moved = new.adopt(old.held(token).unwrap().socket.try_clone_to_owned().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        let mut goes_on = |driver: &mut D, script: &mut Script<_>, token| {
            run(driver, script, |script| received(script, token) == b"for one of them");
            peer.write_all(b", all of it").unwrap();
            run(driver, script, |script| received(script, token) == b"for one of them, all of it");
        };
        // The other one does nothing to the connection when it ends.
        if goes {
            old.give_away(token);
            drop(old);
            goes_on(&mut new, &mut after, moved);
        } else {
            drop(new);
            goes_on(&mut old, &mut before, token);
        }
    }
}

pub fn connections_whose_direction_has_ended_are_held<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (_peer, token) = pair(&mut driver, &mut script, at);
    driver.hold_still().unwrap();
    assert!(driver.held(token).is_some());
    driver.shutdown(token);
    driver.hold_still().unwrap();
    assert!(driver.held(token).is_some_and(|held| held.unsent.is_empty()));
    assert!(driver.held(Token { index: 999, generation: 0 }).is_none());
    driver.give_away(Token { index: 999, generation: 0 });
}

pub fn listening_sockets_go_along<D: Driver>(make: fn() -> D) {
    let (mut old, mut new) = (make(), make());
    let (mut before, mut after) = (watch(), watch());
    let at = listen(&mut old);
    let path = std::env::temp_dir().join(format!("tautline-moving-{}-{}", std::process::id(), at.port()));
    old.listen(&Address::Unix(path.clone()), &ListenOptions::default()).unwrap();
    pair(&mut old, &mut before, at);
    for socket in old.listening().unwrap() {
        new.listen_on(socket).unwrap();
    }
    old.give_listening_away();
    old.turn(Some(Duration::ZERO), &mut before).unwrap();
    drop(old);
    // Nobody is refused, and the file is still there.
    let _tcp = pair(&mut new, &mut after, at);
    let _unix = std::os::unix::net::UnixStream::connect(&path).unwrap();
    run(&mut new, &mut after, |script| script.arrivals().len() == 2);
    std::fs::remove_file(path).unwrap();
}

pub fn a_driver_that_gave_all_away_hears_nothing_more<D: Driver>(make: fn() -> D) {
    let (mut old, mut script) = (make(), watch());
    let at = listen(&mut old);
    let (mut peer, token) = pair(&mut old, &mut script, at);
    let (_socket, ..) = take(&mut old, token);
    let _listening = old.listening().unwrap();
    old.give_listening_away();
    assert_idle(&mut old, &mut script);
    // A fault may end a wait early, but not all of them.
    let waits = (0..20).any(|_| {
        peer.write_all(b"to the next process").unwrap();
        let _another = TcpStream::connect(at).unwrap();
        let start = Instant::now();
        old.turn(Some(Duration::from_millis(20)), &mut script).unwrap();
        start.elapsed() >= Duration::from_millis(20)
    });
    assert!(waits, "the loop wakes for each message");
}

pub fn a_break_while_all_hold_still_is_reported_once<D: Driver>(make: fn() -> D) {
    for (paused, pending) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut driver = make();
        let mut script = watch();
        let at = listen(&mut driver);
        let (peer, token) = pair(&mut driver, &mut script, at);
        driver.pause_receive(token, paused);
        if pending {
            send_until_pending(&mut driver, token);
        }
        driver.turn(Some(Duration::ZERO), &mut script).unwrap();
        reset(peer);
        std::thread::sleep(Duration::from_millis(20));
        driver.hold_still().unwrap();
        run(&mut driver, &mut script, |script| !script.failures().is_empty());
        assert_idle(&mut driver, &mut script);
        assert_eq!(script.failures(), [token], "paused: {paused}, pending: {pending}");
        driver.close(token, true);
    }
}
