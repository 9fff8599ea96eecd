//! Connections come and go by every engine of this build, and leave nothing behind. What is watched is the memory of the
//! process, so nothing else runs in it.
//!
//! A run of 100,000 connections takes minutes for each engine; `ENGINE=openssl` is about one of them:
//! `CONNECTIONS=100000 cargo test --release -p tautline --features engines --test growth -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tautline::layers::tls::{ClientConfig, Engine, Error, Roots, ServerConfig, Session as _};
#[cfg(feature = "libssl")]
use tautline::layers::tls_libssl::{Engine as Libssl, fused};
use tautline::layers::tls_rustls::{Engine as Rustls, fused::Engine as Fused};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// So many connections with a message each way; every other one resumes a session.
fn connect(clients: &[impl Engine; 2], server: &impl Engine, count: usize) {
    for number in 0..count {
        let mut pair = Pair::new(&clients[number % 2], server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.client.send(&[b"question"]).unwrap();
        pair.server.send(&[b"answer"]).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        assert_eq!((&pair.client.received[..], &pair.server.received[..]), (&b"answer"[..], &b"question"[..]));
        assert!(number % 2 == 1 || !pair.server.session.facts().resumed);
        pair.client.close();
        pair.server.close();
        pair.settle(&mut Split::Whole).unwrap();
    }
}

/// The memory that connections leave behind must not grow by more than `most` bytes.
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
        let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
        let server = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
        let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
        let forgetful = ClientConfig { no_resumption: true, ..client.clone() };
        let server = make(Some(&server), None).unwrap();
        let clients = [forgetful, client].map(|client| make(None, Some(&client)).unwrap());
        connect(&clients, &server, 200);
        let before = resident();
        connect(&clients, &server, count);
        let grown = resident().saturating_sub(before);
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

/// Memory that an allocator keeps settles with the first connections, so a longer run has no higher limit but for that.
#[test]
fn connections_leave_nothing_behind() {
    let count = std::env::var("CONNECTIONS").map_or(600, |count| count.parse().expect("CONNECTIONS: a number"));
    churn(count, if count > 600 { 4 << 20 } else { 256 << 10 });
}
