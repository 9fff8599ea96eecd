//! Listening and accepting.

use super::*;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use tautline_testkit::ClosedPort;

/// Tests with hundreds of connections take turns. They share a process, and `select` refuses descriptors from 1024 on.
static MANY: Mutex<()> = Mutex::new(());

pub fn storm<D: Driver>(make: fn() -> D) {
    /// Connections of each thread. The other tests of the process need descriptors below 1024 as well.
    const PART: u32 = 75;
    let _turn = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let peers: Vec<_> = (0..5_u32)
        .map(|part| {
            thread::spawn(move || {
                let mut peers: Vec<_> = (0..PART).map(|_| TcpStream::connect(at).unwrap()).collect();
                for (i, peer) in (0_u32..).zip(&mut peers) {
                    peer.write_all(&(part * PART + i).to_le_bytes()).unwrap();
                }
                for (i, peer) in (0_u32..).zip(&mut peers) {
                    let mut reply = [0; 4];
                    peer.read_exact(&mut reply).unwrap();
                    assert_eq!(u32::from_le_bytes(reply), part * PART + i);
                }
            })
        })
        .collect();
    run(&mut driver, &mut script, |_| peers.iter().all(thread::JoinHandle::is_finished));
    peers.into_iter().for_each(|peer| peer.join().unwrap());
    assert_eq!(script.arrivals().len(), 5 * PART as usize);
    run(&mut driver, &mut script, |script| {
        script.events.iter().filter(|e| matches!(e, Event::Finished(_))).count() == 5 * PART as usize
    });
}

pub fn thousands_at_once<D: Driver>(make: fn() -> D) {
    let _turn = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = tautline_io::machine::raise_nofile_limit().unwrap();
    let count = usize::try_from(limit / 4).unwrap().min(3000);
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let mut peers = Vec::new();
    while peers.len() < count {
        for _ in 0..100 {
            peers.push(TcpStream::connect(at).unwrap());
        }
        run(&mut driver, &mut script, |script| script.arrivals().len() == peers.len());
    }
    let tokens: HashSet<_> = script.arrivals().into_iter().collect();
    assert_eq!(tokens.len(), peers.len(), "every connection has its own token");
    assert_idle(&mut driver, &mut script);
    for (i, peer) in (0_u32..).zip(&mut peers) {
        peer.write_all(&i.to_le_bytes()).unwrap();
    }
    let received = |script: &Script<_>| script.events.iter().filter(|e| matches!(e, Event::Received(..))).count();
    run(&mut driver, &mut script, |script| received(script) == peers.len());
    for (i, peer) in (0_u32..).zip(&mut peers) {
        let mut reply = [0; 4];
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(u32::from_le_bytes(reply), i);
    }
}

pub fn paused_ones_wait_in_the_backlog<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    driver.pause_accept(true);
    let at = listen(&mut driver);
    let _early = TcpStream::connect(at).unwrap();
    assert_idle(&mut driver, &mut script);
    driver.pause_accept(false);
    run(&mut driver, &mut script, |script| script.arrivals().len() == 1);
    driver.pause_accept(true);
    driver.pause_accept(true);
    let _late = TcpStream::connect(at).unwrap();
    assert_idle(&mut driver, &mut script);
    driver.pause_accept(false);
    run(&mut driver, &mut script, |script| script.arrivals().len() == 2);
}

pub fn stopping_refuses<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (mut peer, _) = pair(&mut driver, &mut script, at);
    driver.stop_listening();
    assert_eq!(TcpStream::connect(at).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    peer.write_all(b"still here").unwrap();
    run(&mut driver, &mut script, |script| script.events.iter().any(|e| matches!(e, Event::Received(..))));
    let mut reply = [0; 10];
    peer.read_exact(&mut reply).unwrap();
    let start = Instant::now();
    let again = loop {
        match driver.listen(&Address::Tcp(at), &ListenOptions::default()) {
            // A program that another test starts right now has copies of all descriptors until it runs.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && start.elapsed() < PATIENCE => {}
            result => break result.unwrap(),
        }
    };
    assert_eq!(again.1, Address::Tcp(at), "the port is free again");
    pair(&mut driver, &mut script, at);
}

pub fn stops_inside_accepted<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = Script::new(|driver: &mut dyn Driver, event: &Event| {
        if let Event::Accepted(..) = event {
            driver.stop_listening();
        }
    });
    let at = listen(&mut driver);
    let _peers: Vec<_> = (0..3).map(|_| TcpStream::connect(at).unwrap()).collect();
    run(&mut driver, &mut script, |script| !script.events.is_empty());
    assert_idle(&mut driver, &mut script);
    assert_eq!(script.arrivals().len(), 1);
}

pub fn port_in_use<D: Driver>(make: fn() -> D) {
    let (mut one, mut other) = (make(), make());
    let at = listen(&mut one);
    let error = other.listen(&Address::Tcp(at), &ListenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.raw_os_error().is_some(), "the system's own error, for the program to explain");
}

pub fn tells_listeners_apart<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let (a, b) = (listen(&mut driver), listen(&mut driver));
    for at in [b, a, b] {
        pair(&mut driver, &mut script, at);
    }
    let listeners: Vec<_> = script
        .events
        .iter()
        .filter_map(|event| if let Event::Accepted(_, listener) = event { Some(listener.0) } else { None })
        .collect();
    assert_eq!(listeners, [1, 0, 1]);
}

pub fn spreads_over_drivers<D: Driver>(make: fn() -> D) {
    let _turn = MANY.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = ListenOptions::default();
    options.reuse_port = true;
    let any = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (mut one, mut other) = (make(), make());
    let (_, address) = one.listen(&any, &options).unwrap();
    other.listen(&address, &options).unwrap();
    let Address::Tcp(at) = address else { panic!("a TCP listener has a TCP address") };
    let (mut first, mut second) = (watch(), watch());
    let _peers: Vec<_> = (0..200).map(|_| TcpStream::connect(at).unwrap()).collect();
    run(&mut one, &mut first, |first| {
        other.turn(Some(Duration::ZERO), &mut second).unwrap();
        first.arrivals().len() + second.arrivals().len() == 200
    });
    assert!(first.arrivals().len() > 20, "only {} of 200", first.arrivals().len());
    assert!(second.arrivals().len() > 20, "only {} of 200", second.arrivals().len());
}

/// As systemd passes them: the socket belongs to others too, and outlives the drivers.
pub fn shares_a_socket_of_others<D: Driver>(make: fn() -> D) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let (mut one, mut other) = (make(), make());
    for driver in [&mut one, &mut other] {
        let (_, address) = driver.listen_on(socket.try_clone().unwrap().into()).unwrap();
        assert_eq!(address, Address::Tcp(at));
    }
    let (mut first, mut second) = (watch(), watch());
    let peers = |count| (0..count).map(|_| TcpStream::connect(at).unwrap()).collect::<Vec<_>>();
    let _early = peers(40);
    run(&mut one, &mut first, |first| {
        other.turn(Some(Duration::ZERO), &mut second).unwrap();
        first.arrivals().len() + second.arrivals().len() == 40
    });
    one.stop_listening();
    assert_idle(&mut one, &mut first);
    let before = second.arrivals().len();
    let _late = peers(10);
    run(&mut other, &mut second, |second| second.arrivals().len() == before + 10);
    drop((one, other));
    let _last = peers(1);
    socket.set_nonblocking(false).unwrap();
    socket.accept().unwrap();
}

pub fn refuses_other_sockets_of_others<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for (socket, why) in [(near.into(), "not listening"), (datagrams.into(), "no stream socket")] {
        let error = driver.listen_on(socket).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

pub fn ipv6_beside_ipv4<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let options = ListenOptions::default();
    // Of the other family, and nobody else's.
    let reserved = ClosedPort::new().unwrap();
    let port = reserved.address().port();
    if driver.listen(&Address::Tcp(SocketAddr::from(([0; 16], port))), &options).is_err() {
        return skip("IPv6 beside IPv4", "this machine has no IPv6");
    }
    driver.listen(&Address::Tcp(SocketAddr::from(([0; 4], port))), &options).expect("one address, one family");
    for (at, listener) in [("[::1]", 0), ("127.0.0.1", 1)] {
        let (peer, token) = pair(&mut driver, &mut script, format!("{at}:{port}").parse().unwrap());
        assert!(script.has(&Event::Accepted(token, Listener(listener))));
        assert_eq!(driver.peer(token), Some(Address::Tcp(peer.local_addr().unwrap())));
    }
}

pub fn knows_peers<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = watch();
    let at = listen(&mut driver);
    let (peer, token) = pair(&mut driver, &mut script, at);
    assert_eq!(driver.peer(token), Some(Address::Tcp(peer.local_addr().unwrap())));
    assert!(driver.local(token).is_none_or(|local| local == Address::Tcp(at)), "{:?}", driver.local(token));
    let (_listener, to) = outside();
    let outgoing = driver.connect(&to).unwrap();
    run(&mut driver, &mut script, |script| script.has(&Event::Connected(outgoing)));
    assert_eq!(driver.peer(outgoing), Some(to));
    driver.close(token, false);
    assert_eq!(driver.peer(token), None);
}
