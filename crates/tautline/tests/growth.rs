//! Connections of every engine of this build leave no memory behind. The test watches all allocations of the process, those of
//! the libraries in C included, so no other test runs in it.
//!
//! A run of 100,000 connections takes minutes per engine. `ENGINE=openssl` runs only one engine:
//! `CONNECTIONS=100000 cargo test --release -p tautline --features engines --test growth -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tautline::layers::tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session as _};
#[cfg(feature = "libssl")]
use tautline::layers::tls_libssl::{Engine as Libssl, fused};
use tautline::layers::tls_rustls::{Engine as Rustls, fused::Engine as Fused};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};

/// Allocated bytes of the whole process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn allocated() -> usize {
    /// `struct mallinfo2`, see mallinfo(3).
    #[repr(C)]
    struct Info {
        arena: usize,
        free_chunks: usize,
        free_fast_chunks: usize,
        mapped_regions: usize,
        mapped: usize,
        unused: usize,
        free_fast: usize,
        in_use: usize,
        free: usize,
        top: usize,
    }
    unsafe extern "C" {
        safe fn mallinfo2() -> Info;
    }
    let info = mallinfo2();
    info.in_use + info.mapped
}

/// Resident memory, since this allocator cannot be asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn allocated() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Makes `count` connections with a message each way. Every other one may resume a session.
fn connect(clients: &[impl Engine; 2], server: &impl Engine, count: usize) {
    for number in 0..count {
        let mut pair = Pair::new(&clients[number % 2], server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.client.send(&[b"question"]).unwrap();
        pair.server.send(&[b"answer"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert_eq!((&pair.client.received[..], &pair.server.received[..]), (&b"answer"[..], &b"question"[..]));
        assert!(number % 2 == 1 || !pair.server.session.tls_info().resumed);
        pair.client.close();
        pair.server.close();
        pair.settle(&mut Split::Whole).unwrap();
    }
}

/// Asserts that an established session of the server holds about as much memory as the engine's capabilities say.
fn weigh(client: &impl Engine, server: &impl Engine) {
    const SESSIONS: usize = 50;
    let mut sessions = Vec::with_capacity(SESSIONS);
    let before = allocated();
    for _ in 0..SESSIONS {
        let mut pair = Pair::new(client, server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.client.send(&[b"question"]).unwrap();
        pair.server.send(&[b"answer"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        sessions.push(pair.server.session);
    }
    let held = allocated().saturating_sub(before) / SESSIONS;
    let stated = server.capabilities().session_memory;
    eprintln!("{}: {held} B for each session, {stated} B stated", server.name());
    // Sessions of `fused` hold some 430 bytes, and caches of the process grow meanwhile.
    let is_about = held <= stated + stated / 3 + 1024 && held + 1024 >= stated - stated / 3;
    assert!(is_about, "{held} B, {stated} B stated");
    drop(sessions);
}

/// Asserts that `count` connections of each engine leave at most `most` bytes behind.
fn churn(count: usize, most: usize) {
    fn each<E: Engine>(
        name: &str,
        (count, most): (usize, usize),
        make: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>,
    ) {
        if std::env::var("ENGINE").is_ok_and(|only| only != name) {
            return;
        }
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        let server = ServerConfig::new([certificate]);
        let client = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
        let forgetful = client.clone().without_resumption();
        let server = make(Some(&server), None).unwrap();
        let clients = [forgetful, client].map(|client| make(None, Some(&client)).unwrap());
        // Afterwards permanent allocations exist, and bounded caches are full.
        connect(&clients, &server, 200);
        weigh(&clients[0], &server);
        let before = allocated();
        connect(&clients, &server, count);
        let grown = allocated().saturating_sub(before);
        eprintln!("{name}: {grown} B more after {count} connections");
        assert!(grown <= most, "{name}: {grown} B more after {count} connections");
    }

    let limit = (count, most);
    each("fused", limit, Fused::new);
    each("rustls", limit, Rustls::new);
    #[cfg(feature = "libssl")]
    for engine in tautline::TlsEngine::all() {
        match engine {
            tautline::TlsEngine::Libssl(flavour) => {
                each(engine.name(), limit, |server, client| Libssl::new(flavour, server, client));
            }
            tautline::TlsEngine::FusedLibssl(flavour) => {
                each(engine.name(), limit, |server, client| fused::Engine::new(flavour, server, client));
            }
            _ => {}
        }
    }
}

/// Tables of sessions and spare buffers take some kilobytes for any number of connections. A leak of 24 bytes per connection
/// would be noticed.
#[test]
fn connections_leave_nothing_behind() {
    let count = std::env::var("CONNECTIONS").map_or(1000, |count| count.parse().expect("CONNECTIONS: a number"));
    churn(count, (8 << 10) + 8 * count);
}
