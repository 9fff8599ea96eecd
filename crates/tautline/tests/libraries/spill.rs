//! Output that does not fit the caller's buffer is not lost. If there is no memory for it, the session ends.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::libraries;
use tautline::layers::buf::Buf;
use tautline::layers::tls::{ClientConfig, Engine as _, Error, Roots, ServerConfig, Session as _, Versions};
use tautline::layers::tls_libssl::{Engine, Flavour, Session};
use tautline_testkit::Random;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{End, Pair, Split};

fn engine(flavour: Flavour, versions: Versions) -> Engine {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = ServerConfig::new([certificate]).with_versions(versions);
    let client = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
    Engine::new(flavour, Some(&server), Some(&client)).unwrap()
}

/// A pair whose whole output spills.
fn spilling(engine: &Engine) -> Pair<Session, Session> {
    let mut pair = Pair::new(engine, engine, "localhost").unwrap();
    pair.client.session.inject(true, false);
    pair.server.session.inject(true, false);
    pair.handshake(&mut Split::Whole).unwrap();
    pair
}

/// Sends `records` records of all sizes each way, and compares every byte.
fn converse(records: usize) {
    for flavour in libraries() {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let mut pair = spilling(&engine(flavour, versions));
            let mut random = Random::new(7);
            let data = random.bytes(16_384);
            let mut done = 0;
            while done < records {
                let most = match random.below(16) {
                    0 => data.len(),
                    1..6 => 1_400,
                    _ => 60,
                };
                let len = 1 + random.below(most);
                let burst = 1 + random.below(8);
                send(&mut pair.client, &mut pair.server, &data[..len], burst);
                send(&mut pair.server, &mut pair.client, &data[..len], burst);
                done += burst;
            }
            pair.client.close();
            pair.settle(&mut Split::Whole).unwrap();
            assert!(pair.server.closed, "{flavour}, {versions:?}");
        }
    }
}

fn send(from: &mut End<Session>, to: &mut End<Session>, data: &[u8], burst: usize) {
    for _ in 0..burst {
        from.send(&[data]).unwrap();
    }
    let wire = from.take_outbox();
    to.received.clear();
    to.deliver(&wire).unwrap();
    assert!(to.received.len() == burst * data.len() && to.received.chunks(data.len()).all(|chunk| chunk == data));
}

#[test]
fn spilled_output_is_not_lost() {
    converse(100_000);
}

/// If the output does not fit the window, the rest follows in order.
#[test]
fn windows_can_be_tiny() {
    let data = Random::new(3).bytes(40_000);
    for flavour in libraries() {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let engine = engine(flavour, versions);
            for window in [0, 1, 4, 5, 21, 22, 100, 1_000, 16_405, 16_406, 20_000] {
                let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
                pair.client.session.limit_window(window);
                pair.server.session.limit_window(window);
                pair.handshake(&mut Split::Whole).unwrap();
                for len in [1, 80, 16_400, data.len()] {
                    send(&mut pair.client, &mut pair.server, &data[..len], 3);
                    send(&mut pair.server, &mut pair.client, &data[..len], 3);
                    pair.client.session.wear_out();
                    send(&mut pair.client, &mut pair.server, &data[..len], 2);
                    pair.server.session.wear_out();
                    send(&mut pair.server, &mut pair.client, &data[..len], 2);
                }
                pair.client.close();
                pair.settle(&mut Split::Whole).unwrap();
                assert!(pair.server.closed, "{flavour}, {versions:?}, {window} bytes");
            }
        }
    }
}

#[test]
fn without_memory_the_session_ends() {
    for flavour in libraries() {
        let engine = engine(flavour, Versions::All);
        let mut client = engine.connect("localhost").unwrap();
        client.inject(true, true);
        let mut out = Buf::new();
        let failed = client.handshake(&mut [], &mut out);
        assert!(matches!(failed, Err(Error::Library(_))), "{flavour}: {failed:?}");
        assert!(matches!(client.handshake(&mut [], &mut out), Err(Error::ApiMisuse(_))));
        assert!(out.is_empty());

        let mut pair = spilling(&engine);
        pair.server.session.inject(true, true);
        let failed = pair.server.send(&[b"lost"]);
        assert!(matches!(failed, Err(Error::Library(_))), "{flavour}: {failed:?}");
        // The session stays ended when there is memory again, since output was lost.
        pair.server.session.inject(false, false);
        assert!(matches!(pair.server.send(&[b"more"]), Err(Error::ApiMisuse(_))));
        pair.server.close();
        assert!(pair.server.outbox.is_empty());
    }
}
