//! Unix sockets.

use super::*;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tautline-io-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("taut.sock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn listen_at(driver: &mut dyn Driver, path: &Path) -> io::Result<()> {
    let address = Address::Unix(path.to_owned());
    let (_, got) = driver.listen(&address, &ListenOptions::default())?;
    assert_eq!(got, address);
    Ok(())
}

fn unix_pair<F: FnMut(&mut dyn Driver, &Event)>(
    driver: &mut dyn Driver,
    script: &mut Script<F>,
    path: &Path,
) -> (UnixStream, Token) {
    let before = script.arrivals().len();
    let peer = UnixStream::connect(path).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    run(driver, script, |script| script.arrivals().len() > before);
    (peer, script.arrivals()[before])
}

pub fn echoes<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = echo();
    listen_at(&mut driver, &place.socket()).unwrap();
    let (mut peer, token) = unix_pair(&mut driver, &mut script, &place.socket());
    let data = pattern(3 << 20);
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

pub fn names_peers<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = watch();
    listen_at(&mut driver, &place.socket()).unwrap();
    let outgoing = driver.connect(&Address::Unix(place.socket())).unwrap();
    run(&mut driver, &mut script, |script| script.events.len() == 2);
    assert!(script.has(&Event::Connected(outgoing)));
    assert_eq!(driver.peer(outgoing), Some(Address::Unix(place.socket())));
    assert_eq!(driver.peer(script.arrivals()[0]), Some(Address::UnixUnnamed));
    assert_eq!(driver.connect(&Address::UnixUnnamed).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

pub fn replaces_a_stale_file<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap());
    assert!(place.socket().exists(), "what a killed server leaves");
    let mut driver = make();
    listen_at(&mut driver, &place.socket()).unwrap();
    unix_pair(&mut driver, &mut watch(), &place.socket());
}

pub fn has_its_mode_when_it_listens<D: Driver>(make: fn() -> D) {
    use std::os::unix::fs::PermissionsExt;
    for mode in [0o600, 0o660, 0o777] {
        let place = Place::new();
        let mut options = ListenOptions::default();
        options.unix_mode = Some(mode);
        let mut driver = make();
        driver.listen(&Address::Unix(place.socket()), &options).unwrap();
        assert_eq!(fs::metadata(place.socket()).unwrap().permissions().mode() & 0o777, mode);
        unix_pair(&mut driver, &mut watch(), &place.socket());
    }
}

pub fn keeps_a_live_socket<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let alive = UnixListener::bind(place.socket()).unwrap();
    let error = listen_at(&mut make(), &place.socket()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    UnixStream::connect(place.socket()).unwrap();
    alive.accept().unwrap();
}

pub fn keeps_a_stale_file_when_told<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    drop(UnixListener::bind(place.socket()).unwrap());
    let mut options = ListenOptions::default();
    options.replace_stale = false;
    let error = make().listen(&Address::Unix(place.socket()), &options).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(place.socket().exists());
}

pub fn keeps_other_files<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    fs::write(place.socket(), "precious").unwrap();
    let error = listen_at(&mut make(), &place.socket()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("a file that is no socket"), "{error}");
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "precious");
}

pub fn removes_its_file<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    listen_at(&mut driver, &place.socket()).unwrap();
    assert!(place.socket().exists());
    driver.stop_listening();
    assert!(!place.socket().exists());
    listen_at(&mut driver, &place.socket()).unwrap();
    drop(driver);
    assert!(!place.socket().exists());
}

pub fn leaves_a_successors_file<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    listen_at(&mut driver, &place.socket()).unwrap();
    fs::rename(place.socket(), place.0.join("moved")).unwrap();
    let successor = UnixListener::bind(place.socket()).unwrap();
    drop(driver);
    UnixStream::connect(place.socket()).unwrap();
    drop(successor);
}

pub fn missing_file<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = watch();
    let token = driver.connect(&Address::Unix(place.socket())).unwrap();
    run(&mut driver, &mut script, |script| !script.events.is_empty());
    assert_eq!(script.events, [Event::Failed(token, io::ErrorKind::NotFound)]);
}

pub fn full_queue<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let (mut server, mut client) = (make(), make());
    let mut options = ListenOptions::default();
    options.backlog = 1;
    let address = Address::Unix(place.socket());
    server.listen(&address, &options).unwrap();
    let (mut accepting, mut connecting) = (watch(), watch());
    let tokens: Vec<_> = (0..20).map(|_| client.connect(&address).unwrap()).collect();
    client.close(tokens[19], false);
    idle(&mut client, &mut connecting, Duration::from_millis(20));
    assert!(connecting.events.len() < 19, "the queue is not full");
    assert_eq!(connecting.failures(), []);
    run(&mut client, &mut connecting, |connecting| {
        server.turn(Some(Duration::ZERO), &mut accepting).unwrap();
        tokens[..19].iter().all(|&token| connecting.has(&Event::Connected(token)))
    });
    assert_eq!(connecting.events.len(), 19);
}

pub fn long_path<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let long = Address::Unix(PathBuf::from("/tmp/".to_owned() + &"x".repeat(200)));
    assert!(driver.listen(&long, &ListenOptions::default()).is_err());
    let mut script = watch();
    if let Ok(token) = driver.connect(&long) {
        run(&mut driver, &mut script, |script| script.failures() == [token]);
    }
}

pub fn paused_end_waits<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = watch();
    listen_at(&mut driver, &place.socket()).unwrap();
    let (mut peer, token) = unix_pair(&mut driver, &mut script, &place.socket());
    driver.pause_receive(token, true);
    peer.write_all(b"last words").unwrap();
    // On a Unix socket the end of the peer is a hang-up at once, which cannot be masked.
    drop(peer);
    idle(&mut driver, &mut script, Duration::from_millis(5));
    assert_idle(&mut driver, &mut script);
    driver.pause_receive(token, false);
    run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
    assert_eq!(script.bytes_of(token), b"last words");
    assert_idle(&mut driver, &mut script);
    assert!(matches!(send(&mut driver, token, b"too late"), Sent::Done(_)));
    run(&mut driver, &mut script, |script| script.has(&Event::Failed(token, io::ErrorKind::BrokenPipe)));
}

pub fn reset_by_unread_bytes<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = watch();
    listen_at(&mut driver, &place.socket()).unwrap();
    for pending in [false, true] {
        let (mut peer, token) = unix_pair(&mut driver, &mut script, &place.socket());
        peer.write_all(b"last words").unwrap();
        if pending {
            send_until_pending(&mut driver, token);
        } else {
            assert!(matches!(send(&mut driver, token, b"never read"), Sent::Done(_)));
        }
        drop(peer);
        run(&mut driver, &mut script, |script| script.failures().contains(&token));
        assert_eq!(script.bytes_of(token), b"last words");
        assert_idle(&mut driver, &mut script);
        driver.close(token, false);
    }
}

pub fn peer_shuts_both_ways_while_pending<D: Driver>(make: fn() -> D) {
    for paused in [false, true] {
        let place = Place::new();
        let mut driver = make();
        let mut script = watch();
        listen_at(&mut driver, &place.socket()).unwrap();
        let (peer, token) = unix_pair(&mut driver, &mut script, &place.socket());
        send_until_pending(&mut driver, token);
        driver.pause_receive(token, paused);
        // Its queue stays full: there is no room to send, and never will be.
        peer.shutdown(std::net::Shutdown::Both).unwrap();
        run(&mut driver, &mut script, |script| script.has(&Event::Failed(token, io::ErrorKind::BrokenPipe)));
        assert_idle(&mut driver, &mut script);
    }
}

/// Number of sockets that the kernel has at `path`, also those that no descriptor names any more.
fn sockets_at(path: &Path) -> usize {
    let all = fs::read_to_string("/proc/net/unix").unwrap();
    all.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

/// All requests of a connection end with it, also if it is closed while it still sends. The kernel keeps a socket as
/// long as a request names it.
pub fn closing_with_output_leaves_no_socket<D: Driver>(make: fn() -> D) {
    let place = Place::new();
    let mut driver = make();
    let mut script = watch();
    listen_at(&mut driver, &place.socket()).unwrap();
    assert_eq!(sockets_at(&place.socket()), 1, "the listener");
    for case in ["open", "paused", "finished", "open and in time", "paused and in time"] {
        let (mut peer, token) = unix_pair(&mut driver, &mut script, &place.socket());
        peer.write_all(b"first").unwrap();
        run(&mut driver, &mut script, |script| script.bytes_of(token) == b"first");
        if case.starts_with("paused") {
            driver.pause_receive(token, true);
            peer.write_all(b"second").unwrap();
            idle(&mut driver, &mut script, Duration::from_millis(40));
        } else if case == "finished" {
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            run(&mut driver, &mut script, |script| script.has(&Event::Finished(token)));
            idle(&mut driver, &mut script, Duration::from_millis(40));
        }
        send_until_pending(&mut driver, token);
        if !case.ends_with("in time") {
            idle(&mut driver, &mut script, Duration::from_millis(40));
        }
        driver.close(token, false);
        let reader = thread::spawn(move || io::copy(&mut peer, &mut io::sink()).is_ok());
        run(&mut driver, &mut script, |_| reader.is_finished());
        reader.join().unwrap();
        let start = Instant::now();
        while sockets_at(&place.socket()) > 1 {
            assert!(start.elapsed() < PATIENCE, "{case}: the socket is still there");
            idle(&mut driver, &mut script, Duration::from_millis(20));
        }
    }
}
