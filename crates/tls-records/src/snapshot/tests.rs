use super::{Role, Snapshot, Suite, Traffic};
use crate::records::Records;
use tautline_tls::{NamedGroup, TlsInfo};

fn full() -> Snapshot {
    let mut facts = TlsInfo::default();
    facts.group = Some(NamedGroup::X25519MlKem768);
    facts.alpn = Some(b"http/1.1".to_vec());
    facts.server_name = Some("localhost".to_owned());
    facts.resumed = true;
    facts.peer_certificates = vec![vec![9; 300], Vec::new()];
    facts.client_rule = Some("staff".to_owned());
    Snapshot {
        role: Role::Client,
        suite: Suite::Aes256Gcm,
        rx: Traffic { secret: vec![1; 48], sequence: 0x0102_0304_0506 },
        tx: Traffic { secret: vec![2; 48], sequence: u64::MAX },
        partial: vec![4, 0, 1],
        quiet: 7,
        canceled: 2,
        owes_update: true,
        asks_update: true,
        sent_close: false,
        received_close: true,
        facts,
    }
}

fn empty() -> Snapshot {
    let traffic = |byte| Traffic { secret: vec![byte; 32], sequence: 0 };
    Snapshot {
        role: Role::Server,
        suite: Suite::Chacha20Poly1305,
        rx: traffic(3),
        tx: traffic(4),
        partial: Vec::new(),
        quiet: 0,
        canceled: 0,
        owes_update: false,
        asks_update: false,
        sent_close: false,
        received_close: false,
        facts: TlsInfo::default(),
    }
}

#[test]
fn decode_reverses_encode() {
    for snapshot in [full(), empty(), Snapshot { sent_close: true, ..empty() }] {
        let mut bytes = Vec::new();
        snapshot.encode(&mut bytes);
        assert!(Snapshot::decode(&bytes).unwrap() == snapshot);
    }
}

#[test]
fn decode_rejects_truncated_and_trailing_bytes() {
    for snapshot in [full(), empty()] {
        let mut bytes = Vec::new();
        snapshot.encode(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..len]).is_err(), "{len}");
        }
        bytes.push(0);
        assert!(Snapshot::decode(&bytes).is_err());
    }
}

#[test]
fn decode_rejects_unknown_values() {
    let mut bytes = Vec::new();
    empty().encode(&mut bytes);
    for (at, value) in [(0, 2), (1, 2), (3, 9), (bytes.len() - 2, 1)] {
        let mut changed = bytes.clone();
        changed[at] = value;
        assert!(Snapshot::decode(&changed).is_err(), "{at}");
    }
}

#[test]
fn import_rejects_impossible_states() {
    assert!(Records::import(&empty()).is_ok());
    for wrong in [
        Snapshot { quiet: 65, ..empty() },
        Snapshot { canceled: 5, ..empty() },
        Snapshot { partial: vec![4; 65_541], ..empty() },
        Snapshot { suite: Suite::Aes256Gcm, ..empty() },
    ] {
        assert!(Records::import(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn debug_output_omits_secrets() {
    let shown = format!("{:?} {:?}", full(), full().rx);
    assert!(!shown.contains("1, 1") && shown.contains("Aes256Gcm"), "{shown}");
}
