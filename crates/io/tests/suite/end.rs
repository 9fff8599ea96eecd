//! How connections end.

use super::*;
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::thread;
use tautline_testkit::ClosedPort;

pub fn peer_finishes_first<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    peer.write_all(b"question").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    assert_eq!(script.bytes_of(token), b"question");
    assert_idle(&mut driver, &mut script);
    assert!(matches!(send(&mut driver, token, b"answer"), Sent::Done(_)));
    driver.shutdown(token);
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
    drop(peer);
    assert_idle(&mut driver, &mut script);
    assert_eq!(script.events.iter().filter(|e| matches!(e, Event::Finished(_))).count(), 1);
    driver.close(token, false);
}

pub fn we_finish_first<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    assert!(matches!(send(&mut driver, token, b"bye"), Sent::Done(_)));
    driver.shutdown(token);
    driver.shutdown(token);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"bye");
    assert_idle(&mut driver, &mut script);
    peer.write_all(b"one more thing").unwrap();
    drop(peer);
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    assert_eq!(script.bytes_of(token), b"one more thing");
    assert_idle(&mut driver, &mut script);
}

pub fn finishing_waits_for_the_pending_send<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let total = send_until_pending(&mut driver, token);
    driver.shutdown(token);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        (peer, all)
    });
    run(&mut driver, &mut script, |_| reader.is_finished());
    let (peer, all) = reader.join().unwrap();
    assert_eq!(all.len(), total);
    assert_repeats(&all);
    assert!(script.has(&Event::Sent(token)));
    drop(peer);
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
}

pub fn closing_sends_what_is_pending<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let total = send_until_pending(&mut driver, token);
    driver.close(token, false);
    assert_eq!(driver.peer(token), None);
    assert!(matches!(send(&mut driver, token, b"ignored"), Sent::Done(_)));
    // The slot must not serve two at once.
    let (_other, other) = pair(&mut driver, &mut script, at);
    assert_ne!(other, token);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    run(&mut driver, &mut script, |_| reader.is_finished());
    let all = reader.join().unwrap();
    assert_eq!(all.len(), total);
    assert_repeats(&all);
    let about_it =
        |event: &&Event| matches!(event, Event::Sent(t) | Event::Finished(t) | Event::Failed(t, _) if *t == token);
    assert_eq!(script.events.iter().find(about_it), None, "no event follows");
}

pub fn aborting_resets<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    for pending in [false, true] {
        let (mut peer, token) = pair(&mut driver, &mut script, at);
        if pending {
            send_until_pending(&mut driver, token);
        }
        driver.close(token, true);
        let mut all = Vec::new();
        assert_eq!(peer.read_to_end(&mut all).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    assert_idle(&mut driver, &mut script);
}

pub fn closed_tokens_do_nothing<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let never = Token { index: 4_000_000, generation: 0 };
    let wrong = Token { generation: token.generation + 1, ..token };
    for stranger in [never, wrong] {
        assert!(matches!(send(&mut driver, stranger, b"?"), Sent::Done(_)));
        driver.pause_receive(stranger, true);
        driver.shutdown(stranger);
        driver.close(stranger, true);
        assert_eq!(driver.peer(stranger), None);
    }
    peer.write_all(b"!").unwrap();
    run(&mut driver, &mut script, |script| script.bytes_of(token) == b"!");
    driver.close(token, false);
    driver.close(token, false);
    assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert_idle(&mut driver, &mut script);
}

pub fn refused_connect<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let port = ClosedPort::new().unwrap();
    let token = driver.connect(&Address::Tcp(port.address())).unwrap();
    assert!(matches!(send(&mut driver, token, b"hello?"), Sent::Pending | Sent::Done(_)));
    run(&mut driver, &mut script, |script| !script.events.is_empty());
    assert_eq!(script.events, [Event::Failed(token, io::ErrorKind::ConnectionRefused)]);
    assert_idle(&mut driver, &mut script);
    assert!(matches!(send(&mut driver, token, b"anyone?"), Sent::Done(_)));
    assert_idle(&mut driver, &mut script);
    driver.close(token, false);
}

pub fn closing_while_connecting<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let (_listener, to) = outside();
    for abort in [false, true] {
        let token = driver.connect(&to).unwrap();
        let _ = send(&mut driver, token, b"never mind");
        driver.close(token, abort);
        assert_eq!(driver.peer(token), None);
    }
    idle(&mut driver, &mut script, Duration::from_millis(20));
    assert!(!script.events.iter().any(|event| matches!(event, Event::Connected(_) | Event::Sent(_))));
}

pub fn finishing_while_connecting<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let (listener, to) = outside();
    let peers = thread::spawn(move || {
        let mut all = Vec::new();
        for _ in 0..2 {
            let (mut peer, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).unwrap();
            all.push(bytes);
        }
        all
    });
    let silent = driver.connect(&to).unwrap();
    driver.shutdown(silent);
    let speaking = driver.connect(&to).unwrap();
    assert!(matches!(send(&mut driver, speaking, b"hi"), Sent::Pending));
    driver.shutdown(speaking);
    let finished = |script: &Script<_>| script.events.iter().filter(|e| matches!(e, Event::Finished(_))).count();
    run(&mut driver, &mut script, |script| finished(script) == 2);
    let all = peers.join().unwrap();
    assert!(all.contains(&b"hi".to_vec()) && all.contains(&Vec::new()), "{all:?}");
}

pub fn idles_after_the_end<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    for finish_too in [false, true] {
        let (peer, token) = pair(&mut driver, &mut script, at);
        drop(peer);
        run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
        if finish_too {
            driver.shutdown(token);
        }
        assert_idle(&mut driver, &mut script);
        driver.pause_receive(token, true);
        driver.pause_receive(token, false);
        assert_idle(&mut driver, &mut script);
    }
}

pub fn closes_inside_each_callback<D: Driver>(make: fn() -> D) {
    const KINDS: [fn(&Event) -> Option<Token>; 6] = [
        |e| if let Event::Accepted(token, _) = e { Some(*token) } else { None },
        |e| if let Event::Connected(token) = e { Some(*token) } else { None },
        |e| if let Event::Received(token, _) = e { Some(*token) } else { None },
        |e| if let Event::Sent(token) = e { Some(*token) } else { None },
        |e| if let Event::Finished(token) = e { Some(*token) } else { None },
        |e| if let Event::Failed(token, _) = e { Some(*token) } else { None },
    ];
    for (kind, pick) in KINDS.into_iter().enumerate() {
        let mut driver = make();
        let closed = Rc::new(Cell::new(None));
        let note = Rc::clone(&closed);
        let mut script = Script::new(move |driver: &mut dyn Driver, event: &Event| {
            if let Some(token) = pick(event) {
                driver.close(token, false);
                note.set(Some(token));
            }
        });
        let at = listen(&mut driver);
        let (_listener, to) = outside();
        // An early send makes a `sent`.
        let out = driver.connect(&to).unwrap();
        let _ = send(&mut driver, out, b"hello");
        let mut peer = Some(TcpStream::connect(at).unwrap());
        peer.as_ref().unwrap().write_all(b"hello").unwrap();
        if kind >= 4 {
            idle(&mut driver, &mut script, Duration::from_millis(10));
            if let (5, Some(peer)) = (kind, peer.take()) {
                reset(peer);
            }
        }
        run(&mut driver, &mut script, |_| closed.get().is_some());
        let token = closed.get().unwrap();
        assert_eq!(driver.peer(token), None, "closed inside callback {kind}");
        idle(&mut driver, &mut script, Duration::from_millis(10));
        let position = script.events.iter().position(|event| pick(event) == Some(token)).unwrap();
        let later = &script.events[position + 1..];
        let about_it = KINDS[1..].iter().any(|pick| later.iter().any(|event| pick(event) == Some(token)));
        assert!(!about_it, "an event followed the close inside callback {kind}: {:?}", script.events);
    }
}

pub fn many_fail_in_one_turn<D: Driver>(make: fn() -> D) {
    let port = ClosedPort::new().unwrap();
    let closed = Address::Tcp(port.address());
    let mut driver = make();
    // Each failure is answered by another attempt: turns must end all the same.
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Failed(token, _) = event {
            driver.close(*token, false);
            driver.connect(&closed).unwrap();
        }
    });
    for _ in 0..20 {
        driver.connect(&closed).unwrap();
    }
    run(&mut driver, &mut script, |script| script.failures().len() >= 100);
    assert!(script.events.iter().all(|event| matches!(event, Event::Failed(_, io::ErrorKind::ConnectionRefused))));
}
