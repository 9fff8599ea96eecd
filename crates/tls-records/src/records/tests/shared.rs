use super::super::{MAX_PLAIN, REKEY_AFTER, Records};
use super::{connected, open_all};
use crate::{Suite, Traffic};
use tautline_testkit::Random;
use tautline_tls::Team;
use tautline_window::Buf;

/// As many threads as are asked for.
struct Threads;

impl Team for Threads {
    fn share(&self, others: usize, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..others.min(3) {
                scope.spawn(work);
            }
            work();
        });
    }
}

#[test]
fn several_threads_seal_what_one_would() {
    for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305] {
        let [server, client] = connected();
        let (mut snapshot, mut theirs) = (server.export(), client.export());
        let traffic = Traffic { secret: vec![7; suite.hash_len()], sequence: 5 };
        (snapshot.suite, snapshot.rx, snapshot.tx) = (suite, traffic.clone(), traffic.clone());
        (theirs.suite, theirs.rx, theirs.tx) = (suite, traffic.clone(), traffic);
        let mut client = Records::import(&theirs).unwrap();
        let mut random = Random::new(11);
        for (header, len) in
            [(10, 1 << 20), (0, 2 * MAX_PLAIN), (40_000, 5 * MAX_PLAIN + 1), (3, MAX_PLAIN - 3), (0, 0)]
        {
            let (header, payload) = (random.bytes(header), random.bytes(len));
            let plain = [&header[..], &[], &payload[..]];
            let (mut alone, mut together) = (Buf::new(), Buf::new());
            let mut one = Records::import(&snapshot).unwrap();
            let mut many = Records::import(&snapshot).unwrap();
            one.seal(&plain, &mut alone).unwrap();
            many.seal_with(&plain, &mut together, &Threads).unwrap();
            assert!(alone.filled() == together.filled(), "{suite:?}: {} and {len}", header.len());
            assert_eq!(one.tx.sequence(), many.tx.sequence());
            let (data, ..) = open_all(&mut client, together.filled_mut()).unwrap();
            assert!(data == plain.concat());
            snapshot = many.export();
        }
    }
}

#[test]
fn keys_that_change_are_not_shared() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    server.owes_update = true;
    server.seal_with(&[&vec![1; 1 << 16]], &mut out, &Threads).unwrap();
    server.seal_with(&[&vec![2; 1 << 16]], &mut out, &Threads).unwrap();
    let mut tired = server.export();
    tired.tx.sequence = REKEY_AFTER - 2;
    let (data, updates, _) = open_all(&mut client, out.filled_mut()).unwrap();
    assert_eq!((data.len(), updates), (1 << 17, 1));
    let mut theirs = client.export();
    theirs.rx.sequence = tired.tx.sequence;
    let (mut server, mut client) = (Records::import(&tired).unwrap(), Records::import(&theirs).unwrap());
    out.clear();
    server.seal_with(&[&vec![3; 1 << 16]], &mut out, &Threads).unwrap();
    let (data, updates, _) = open_all(&mut client, out.filled_mut()).unwrap();
    assert_eq!((data.len(), updates), (1 << 16, 1));
    let mut closed = Records::import(&tired).unwrap();
    closed.close(&mut out).unwrap();
    assert!(closed.seal_with(&[&vec![3; 1 << 16]], &mut out, &Threads).is_err());
}
