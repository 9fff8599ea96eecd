//! The two engines against each other: each opens the other's records, for any content and any split of the stream.

use tautline_testkit::Random;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{End, Pair, Split};
use tautline_tls::{ClientConfig, Engine, Roots, ServerConfig, Session, Versions};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

fn configurations() -> (ServerConfig, ClientConfig) {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    (ServerConfig::new([certificate]), ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into())))
}

/// Sends random messages both ways, closes both ends, and checks that nothing is missing.
fn converse(client: &impl Engine, server: &impl Engine, seed: u64) {
    let mut random = Random::new(seed);
    let mut split = Split::random(seed);
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut split).unwrap();
    let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        if random.below(2) == 0 {
            say(&mut pair.client, &mut random, &mut from_client);
        } else {
            say(&mut pair.server, &mut random, &mut from_server);
        }
        if random.below(3) == 0 {
            pair.settle(&mut split).unwrap();
        }
    }
    pair.client.close();
    pair.server.close();
    pair.settle(&mut split).unwrap();
    assert!(pair.client.closed && pair.server.closed, "seed {seed}");
    assert!(pair.server.received == from_client, "seed {seed}");
    assert!(pair.client.received == from_server, "seed {seed}");
}

fn say<S: Session>(end: &mut End<S>, random: &mut Random, said: &mut Vec<u8>) {
    let len = [20, 300, 5_000, 50_000][random.below(4)];
    let len = random.below(len);
    let data = random.bytes(len);
    let (a, b) = (random.below(data.len() + 1), random.below(data.len() + 1));
    end.send(&[&data[..a.min(b)], &data[a.min(b)..a.max(b)], &[], &data[a.max(b)..]]).unwrap();
    said.extend(data);
}

#[test]
fn both_engines_interoperate() {
    let (server, client) = configurations();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let (server, client) = (server.clone().with_versions(versions), client.clone());
        let library = library::Engine::new(Some(&server), Some(&client)).unwrap();
        let fused = fused::Engine::new(Some(&server), Some(&client)).unwrap();
        assert_eq!((library.name(), fused.name()), ("rustls", "fused"));
        for seed in 0..8 {
            converse(&library, &fused, seed);
            converse(&fused, &library, seed);
            converse(&fused, &fused, seed);
        }
    }
}
