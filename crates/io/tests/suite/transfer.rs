//! Bytes in both directions.

use super::*;
use rustix::net::sockopt;
use std::io::{Read, Write};
use std::thread;

pub fn every_split<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    peer.set_nodelay(true).unwrap();
    let message = b"all that matters comes in order";
    for cut in 0..=message.len() {
        script.events.clear();
        for part in [&message[..cut], &message[cut..]] {
            let before = script.bytes_of(token).len();
            peer.write_all(part).unwrap();
            run(&mut driver, &mut script, |script| script.bytes_of(token).len() == before + part.len());
        }
        assert_eq!(script.bytes_of(token), message);
    }
}

pub fn byte_by_byte<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (mut peer, _) = pair(&mut driver, &mut script, at);
    peer.set_nodelay(true).unwrap();
    for byte in pattern(300) {
        peer.write_all(&[byte]).unwrap();
        let before = script.events.len();
        run(&mut driver, &mut script, |script| script.events.len() > before);
        let mut reply = [0];
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [byte]);
    }
}

pub fn echo_of_megabytes<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let data = pattern(8 << 20);
    let (sent, mut writer) = (data.clone(), peer.try_clone().unwrap());
    let writer = thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let reader = thread::spawn(move || {
        let mut reply = Vec::new();
        peer.read_to_end(&mut reply).unwrap();
        reply
    });
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)) && reader.is_finished());
    writer.join().unwrap();
    assert!(reader.join().unwrap() == data, "the echo differs");
}

pub fn slow_reader_pends<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    assert_eq!(driver.unsent(token), 0);
    // Kernels change their minds about how much they take, and a peer that is further away takes its time to say so.
    let (mut total, mut sends, mut unsent) = (0, 0, 0);
    while unsent == 0 {
        total += send_until_pending(&mut driver, token);
        sends += 1;
        unsent = driver.unsent(token);
        assert!(0 < unsent && unsent <= 1 << 20, "{unsent} bytes of the last MiB");
        loop {
            idle(&mut driver, &mut script, Duration::from_millis(100));
            let now = driver.unsent(token);
            if std::mem::replace(&mut unsent, now) == now {
                break;
            }
        }
    }
    assert_idle(&mut driver, &mut script);
    assert_eq!(driver.unsent(token), unsent);
    let reader = thread::spawn(move || {
        let mut data = vec![0; total];
        for part in data.chunks_mut(100_000) {
            peer.read_exact(part).unwrap();
        }
        (peer, data)
    });
    let sent = |script: &Script<_>| script.events.iter().filter(|e| matches!(e, Event::Sent(_))).count();
    run(&mut driver, &mut script, |script| sent(script) == sends);
    assert_eq!(driver.unsent(token), 0);
    let (mut peer, data) = reader.join().unwrap();
    assert_repeats(&data);
    assert!(matches!(send(&mut driver, token, b"next"), Sent::Done(_)), "there is room again");
    let mut next = [0; 4];
    peer.read_exact(&mut next).unwrap();
    assert_eq!(&next, b"next");
    assert_idle(&mut driver, &mut script);
    assert_eq!(sent(&script), sends);
}

/// Bytes that a peer does not read stay with the driver: the kernel's memory for connections is that of the whole machine.
pub fn the_kernel_holds_little_for_a_peer_that_does_not_read<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (accepted, token) = pair(&mut driver, &mut script, at);
    let (outside, address) = outside();
    let dialed = driver.connect(&address).unwrap();
    run(&mut driver, &mut script, |script| script.has(&Event::Connected(dialed)));
    let (connected, _) = outside.accept().unwrap();
    for (peer, token) in [(accepted, token), (connected, dialed)] {
        let held = held_by_kernel(&mut driver, &mut script, token, &peer);
        assert!(512 << 10 < held && held <= 2 << 20, "the kernel holds {held} bytes that {token:?} does not read");
    }
}

/// Once many peers do not read, the kernel holds less for each further one.
pub fn the_kernel_holds_less_for_each_of_a_crowd<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let mut crowd: Vec<_> = (0..65).map(|_| pair(&mut driver, &mut script, at)).collect();
    for (_, token) in &crowd {
        assert!(matches!(send(&mut driver, *token, &pattern(2 << 20)), Sent::Pending));
    }
    let (peer, token) = pair(&mut driver, &mut script, at);
    let held = held_by_kernel(&mut driver, &mut script, token, &peer);
    assert!(0 < held && held <= 512 << 10, "the kernel holds {held} bytes");
    driver.close(token, true);
    // Some of the crowd go, and the others read.
    for (_, token) in crowd.drain(..30) {
        driver.close(token, true);
    }
    let tokens: Vec<_> = crowd.iter().map(|(_, token)| *token).collect();
    let readers = thread::spawn(move || {
        for (peer, _) in &mut crowd {
            peer.read_exact(&mut vec![0; 2 << 20]).unwrap();
        }
        crowd
    });
    run(&mut driver, &mut script, |script| tokens.iter().all(|token| script.has(&Event::Sent(*token))));
    let _crowd = readers.join().unwrap();
    let (peer, token) = pair(&mut driver, &mut script, at);
    let held = held_by_kernel(&mut driver, &mut script, token, &peer);
    assert!(512 << 10 < held && held <= 2 << 20, "the kernel holds {held} bytes");
}

/// Sends 16 MiB that the peer does not read, and returns how many of them the kernel holds.
fn held_by_kernel<F: FnMut(&mut dyn Driver, &Event)>(
    driver: &mut dyn Driver,
    script: &mut Script<F>,
    token: Token,
    peer: &TcpStream,
) -> usize {
    assert!(matches!(send(driver, token, &pattern(16 << 20)), Sent::Pending));
    // The kernel takes no more once its queue stays as it is.
    let mut held = 0;
    loop {
        idle(driver, script, Duration::from_millis(100));
        let now = send_queue(peer);
        if std::mem::replace(&mut held, now) == now {
            return held;
        }
    }
}

/// Bytes that the kernel holds for this peer and that have not reached its receive buffer (`proc_net_tcp`, `tx_queue`).
fn send_queue(peer: &TcpStream) -> usize {
    let (far, near) = (peer.peer_addr().unwrap().port(), peer.local_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = [format!(":{far:04X}"), format!(":{near:04X}")];
    let queue = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let of_driver = fields.get(1)?.ends_with(&ends[0]) && fields.get(2)?.ends_with(&ends[1]);
        usize::from_str_radix(fields.get(4)?.split(':').next()?, 16).ok().filter(|_| of_driver)
    });
    queue.expect("the connection is in the kernel's table")
}

/// Small sends inside callbacks may be made together, without waiting for room: none may be lost, doubled or mixed up
/// where there is none.
pub fn small_sends_fill_the_pipe<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let at = listen(&mut driver);
    let mut pending = false;
    let mut total = 0;
    let chunk = pattern(1000);
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(token, data) = event {
            for _ in data {
                if !pending {
                    total += chunk.len();
                    pending = matches!(send(driver, *token, &chunk), Sent::Pending);
                }
            }
        }
    });
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    // Each byte asks for a chunk; no reply is read.
    let asked = 20_000;
    let asking = peer.try_clone().unwrap();
    let asker = thread::spawn(move || {
        for _ in 0..asked / 10 {
            (&asking).write_all(&[1; 10]).unwrap();
        }
    });
    let got = |script: &Script<_>| script.bytes_of(token).len();
    run(&mut driver, &mut script, |script| asker.is_finished() && got(script) == asked);
    asker.join().unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    driver.shutdown(token);
    run(&mut driver, &mut script, |_| reader.is_finished());
    let all = reader.join().unwrap();
    drop(script);
    assert!(pending, "there was room for all");
    assert_eq!(all.len(), total);
    assert!(all.chunks(chunk.len()).all(|part| part == chunk), "bytes were lost, doubled or mixed up");
}

pub fn reader_of_single_bytes<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    sockopt::set_socket_recv_buffer_size(&peer, 16 << 10).unwrap();
    let total = send_until_pending(&mut driver, token);
    let reader = thread::spawn(move || {
        let (mut data, mut byte) = (Vec::new(), [0]);
        while data.len() < 20_000 {
            peer.read_exact(&mut byte).unwrap();
            data.push(byte[0]);
        }
        peer.take((total - 20_000) as u64).read_to_end(&mut data).unwrap();
        data
    });
    run(&mut driver, &mut script, |script| script.has(&Event::Sent(token)) && reader.is_finished());
    let data = reader.join().unwrap();
    assert_eq!(data.len(), total);
    assert_repeats(&data);
}

/// Carries all but the last byte of what it gets, as a TLS session carries a cut record.
struct Carrier(Vec<u8>);

impl Sink for Carrier {
    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {}
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
    fn received(&mut self, _: &mut dyn Driver, _: Token, data: Received<'_>) {
        let len = data.len();
        let joined = data.join(&self.0).expect("there is room for a record of TLS");
        assert_eq!(joined.len(), self.0.len() + len);
        assert_eq!(joined[..self.0.len()], self.0);
        self.0 = joined.to_vec();
    }
    fn sent(&mut self, _: &mut dyn Driver, _: Token, _: Buf) {}
    fn ended(&mut self, _: &mut dyn Driver, _: Token, _: End) {}
    fn woken(&mut self, _: &mut dyn Driver) {}
    fn accept_failed(&mut self, _: &mut dyn Driver, _: io::Error) {}
}

pub fn room_for_carried_bytes<D: Driver>(make: fn() -> D) {
    const RECORD: usize = 5 + 16_640;
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, _) = pair(&mut driver, &mut script, at);
    let data = pattern(RECORD + 1);
    let mut carrier = Carrier(Vec::new());
    for part in [&data[..1], &data[1..9000], &data[9000..RECORD], &data[RECORD..]] {
        peer.write_all(part).unwrap();
        let wanted = carrier.0.len() + part.len();
        let start = Instant::now();
        while carrier.0.len() < wanted && start.elapsed() < PATIENCE {
            driver.turn(Some(Duration::from_millis(20)), &mut carrier).unwrap();
        }
    }
    assert!(carrier.0 == data);
}

/// Notes where received bytes begin.
struct Places(Vec<usize>);

impl Sink for Places {
    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {}
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn Driver, _: Token, data: Received<'_>) {
        // A stamp that the kernel puts in front of the bytes moves them.
        let place = if driver.arrival().is_some() { 0 } else { data.bytes().as_ptr().addr() };
        self.0.push(place);
    }
    fn sent(&mut self, _: &mut dyn Driver, _: Token, _: Buf) {}
    fn ended(&mut self, _: &mut dyn Driver, _: Token, _: End) {}
    fn woken(&mut self, _: &mut dyn Driver) {}
    fn accept_failed(&mut self, _: &mut dyn Driver, _: io::Error) {}
}

/// Bytes that arrive alone begin at a multiple of 64: copies to other places are slow on some processors.
pub fn received_bytes_begin_aligned<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, _token) = pair(&mut driver, &mut script, at);
    let mut places = Places(Vec::new());
    for round in 1..20 {
        peer.write_all(&[7; 101]).unwrap();
        let start = Instant::now();
        while places.0.len() < round && start.elapsed() < PATIENCE {
            driver.turn(Some(Duration::from_millis(20)), &mut places).unwrap();
        }
    }
    assert!(places.0.iter().all(|place| place.is_multiple_of(Buf::ALIGN)), "{:x?}", places.0);
}

pub fn sends_reuse_their_buffer<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let mut buf = Buf::with_capacity(64);
    for round in 0..100_u8 {
        buf.put(&[round; 64]);
        let Sent::Done(back) = driver.send(token, buf) else { panic!("the kernel has room for 64 bytes") };
        assert!(back.is_empty());
        assert_eq!(back.capacity(), 64, "the memory comes back");
        buf = back;
        let mut got = [0; 64];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(got, [round; 64]);
    }
    assert!(matches!(driver.send(token, buf), Sent::Done(_)), "nothing is sent at once");
    assert_idle(&mut driver, &mut script);
}

pub fn sends_past_the_driver<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let Some(direct) = driver.direct(token) else {
        assert!(!["epoll", "select", "io_uring"].contains(&driver.name()), "{} has sockets", driver.name());
        return;
    };
    assert_eq!(direct.send(b"one "), 4);
    thread::scope(|scope| scope.spawn(|| assert_eq!(direct.send(b"two "), 4)).join().unwrap());
    assert!(matches!(send(&mut driver, token, b"three"), Sent::Done(_)));
    let mut all = [0; 13];
    peer.read_exact(&mut all).unwrap();
    assert_eq!(&all, b"one two three");
    // The driver sends the bytes that the kernel did not take, and no direct send overtakes them.
    let chunk = pattern(1 << 20);
    let mut total = 0;
    loop {
        let part = &chunk[total % chunk.len()..];
        let sent = driver.direct(token).unwrap().send(part);
        total += sent;
        if sent < part.len() {
            break;
        }
        assert!(total < 200 << 20, "the kernel takes 200 MiB that nobody reads");
    }
    let rest = &chunk[total % chunk.len()..];
    total += rest.len();
    let pends = matches!(send(&mut driver, token, rest), Sent::Pending);
    assert_eq!(driver.direct(token).is_none(), pends);
    let reader = thread::spawn(move || {
        let mut data = vec![0; total];
        peer.read_exact(&mut data).unwrap();
        (peer, data)
    });
    run(&mut driver, &mut script, |script| !pends || script.has(&Event::Sent(token)));
    let (_peer, data) = reader.join().unwrap();
    assert_repeats(&data);
    assert!(driver.direct(token).is_some());
    driver.close(token, true);
    assert!(driver.direct(token).is_none());
}

pub fn sends_in_order<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    let data = pattern(200_000);
    let reader = thread::spawn(move || {
        let mut got = vec![0; 200_000];
        peer.read_exact(&mut got).unwrap();
        got
    });
    let (mut rest, mut len) = (data.as_slice(), 1);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(len.min(rest.len()));
        if let Sent::Pending = send(&mut driver, token, part) {
            let before = script.events.len();
            run(&mut driver, &mut script, |script| script.events[before..].contains(&Event::Sent(token)));
        }
        rest = behind;
        len = len % 700 + 1;
    }
    assert!(reader.join().unwrap() == data);
}

pub fn paused_bytes_wait<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    driver.pause_receive(token, true);
    driver.pause_receive(token, true);
    let chunk = pattern(1 << 20);
    peer.set_nonblocking(true).unwrap();
    let mut written = 0;
    loop {
        let offset = written % chunk.len();
        match peer.write(&chunk[offset..]) {
            Ok(n) => written += n,
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        assert!(written < 200 << 20, "the peer is not slowed down");
    }
    idle(&mut driver, &mut script, Duration::from_millis(5));
    assert_idle(&mut driver, &mut script);
    driver.pause_receive(token, false);
    run(&mut driver, &mut script, |script| {
        script.events.iter().map(|e| if let Event::Received(_, data) = e { data.len() } else { 0 }).sum::<usize>()
            == written
    });
    assert_repeats(&script.bytes_of(token));
}

pub fn pauses_inside_received<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(token, _) = event {
            driver.pause_receive(*token, true);
        }
    });
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    for round in 1..=5 {
        peer.write_all(b"x").unwrap();
        run(&mut driver, &mut script, |script| script.bytes_of(token).len() == round);
        peer.write_all(b"y").unwrap();
        idle(&mut driver, &mut script, Duration::from_millis(5));
        assert_idle(&mut driver, &mut script);
        driver.pause_receive(token, false);
        run(&mut driver, &mut script, |script| script.bytes_of(token).len() > round);
        script.events.retain(|event| !matches!(event, Event::Received(_, data) if data == b"y"));
        driver.pause_receive(token, false);
    }
}

pub fn end_waits_behind_a_pause<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    driver.pause_receive(token, true);
    peer.write_all(b"last words").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    // With both directions finished the kernel reports a hang-up that cannot be masked.
    driver.shutdown(token);
    idle(&mut driver, &mut script, Duration::from_millis(5));
    assert_idle(&mut driver, &mut script);
    driver.pause_receive(token, false);
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    assert_eq!(script.bytes_of(token), b"last words");
    assert_idle(&mut driver, &mut script);
}

pub fn sends_before_connected<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let (listener, to) = outside();
    let token = driver.connect(&to).unwrap();
    assert!(matches!(send(&mut driver, token, b"early"), Sent::Pending));
    run(&mut driver, &mut script, |script| script.has(&Event::Sent(token)));
    let (mut peer, _) = listener.accept().unwrap();
    let mut early = [0; 5];
    peer.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    assert_eq!(script.events, [Event::Connected(token), Event::Sent(token)]);
}

pub fn urgent_bytes_do_no_harm<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut peer, token) = pair(&mut driver, &mut script, at);
    for _ in 0..3 {
        rustix::net::send(&peer, b"!", rustix::net::SendFlags::OOB).unwrap();
    }
    idle(&mut driver, &mut script, Duration::from_millis(10));
    script.events.clear();
    assert_idle(&mut driver, &mut script);
    // Receives stop at urgent data; what lies behind it must not be forgotten.
    driver.pause_receive(token, true);
    peer.write_all(b"before").unwrap();
    rustix::net::send(&peer, b"!", rustix::net::SendFlags::OOB).unwrap();
    peer.write_all(b"behind").unwrap();
    idle(&mut driver, &mut script, Duration::from_millis(10));
    driver.pause_receive(token, false);
    run(&mut driver, &mut script, |script| script.bytes_of(token).ends_with(b"behind"));
    assert_idle(&mut driver, &mut script);
}

pub fn exactly_full_buffers<D: Driver>(make: fn() -> D) {
    // Around the size of the receive buffer: neither the last byte nor the end behind it may be missed.
    for len in [(256 << 10) - 1, 256 << 10, (256 << 10) + 1, 512 << 10] {
        let mut driver = make();
        let mut script = watch();
        let at = listen(&mut driver);
        let (mut peer, token) = pair(&mut driver, &mut script, at);
        driver.pause_receive(token, true);
        let data = pattern(len);
        let (sent, half) = (data.clone(), peer.try_clone().unwrap());
        let writer = thread::spawn(move || peer.write_all(&sent).unwrap());
        idle(&mut driver, &mut script, Duration::from_millis(10));
        driver.pause_receive(token, false);
        run(&mut driver, &mut script, |script| script.bytes_of(token).len() == len);
        writer.join().unwrap();
        assert!(script.bytes_of(token) == data);
        assert_idle(&mut driver, &mut script);
        half.shutdown(std::net::Shutdown::Write).unwrap();
        run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    }
}

pub fn resumes_inside_another_callback<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (mut one, first) = pair(&mut driver, &mut script, at);
    let (mut other, second) = pair(&mut driver, &mut script, at);
    let mut script = Script::new(move |driver: &mut dyn Driver, event: &Event| {
        if let Event::Received(token, _) = event {
            // Each holds the other back and lets it go on.
            let (now, next) = if *token == first { (first, second) } else { (second, first) };
            driver.pause_receive(now, true);
            driver.pause_receive(next, true);
            driver.pause_receive(next, false);
        }
    });
    driver.pause_receive(second, true);
    for round in 1..=20 {
        one.write_all(b"1").unwrap();
        other.write_all(b"2").unwrap();
        run(&mut driver, &mut script, |script| {
            script.bytes_of(first).len() == round && script.bytes_of(second).len() == round
        });
    }
}
