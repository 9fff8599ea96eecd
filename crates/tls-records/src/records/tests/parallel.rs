use super::super::{MAX_PLAIN, REKEY_AFTER, Records};
use super::{connected, open_all};
use crate::{Suite, Traffic};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tautline_buf::Buf;
use tautline_testkit::Random;
use tautline_tls::Helpers;

/// Up to three helper threads, and the runs that they reported.
#[derive(Default)]
struct Threads {
    reported: Mutex<BTreeMap<usize, Option<Vec<u8>>>>,
}

impl Helpers for Threads {
    fn share(&self, others: usize, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..others.min(3) {
                scope.spawn(work);
            }
            work();
        });
    }

    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        let before = self.reported.lock().unwrap().insert(run, records.map(<[u8]>::to_vec));
        assert!(before.is_none(), "run {run} was reported twice");
    }
}

#[test]
fn several_threads_seal_the_same_bytes_as_one() {
    for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305] {
        let [server, client] = connected();
        let (mut snapshot, mut theirs) = (server.snapshot(), client.snapshot());
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
            let helpers = Threads::default();
            many.seal_with(&plain, &mut together, &helpers).unwrap();
            assert!(alone.filled() == together.filled(), "{suite:?}: {} and {len}", header.len());
            assert_eq!(one.tx.sequence(), many.tx.sequence());
            // The reported runs, in their order, are the same bytes.
            let reported = helpers.reported.into_inner().unwrap();
            let runs: Vec<u8> = reported.values().flat_map(|records| records.as_deref().unwrap()).copied().collect();
            let is_whole = runs == together.filled() || reported.is_empty();
            assert!(reported.len() <= 2 && is_whole, "{} runs", reported.len());
            assert_eq!(reported.is_empty(), plain.concat().len() <= MAX_PLAIN);
            assert!(reported.keys().copied().eq(0..reported.len()));
            let (data, ..) = open_all(&mut client, together.filled_mut()).unwrap();
            assert!(data == plain.concat());
            snapshot = many.snapshot();
        }
    }
}

#[test]
fn seal_with_uses_one_thread_while_keys_change() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    server.owes_update = true;
    server.seal_with(&[&vec![1; 1 << 16]], &mut out, &Threads::default()).unwrap();
    server.seal_with(&[&vec![2; 1 << 16]], &mut out, &Threads::default()).unwrap();
    let mut tired = server.snapshot();
    tired.tx.sequence = REKEY_AFTER - 2;
    let (data, updates, _) = open_all(&mut client, out.filled_mut()).unwrap();
    assert_eq!((data.len(), updates), (1 << 17, 1));
    let mut theirs = client.snapshot();
    theirs.rx.sequence = tired.tx.sequence;
    let (mut server, mut client) = (Records::import(&tired).unwrap(), Records::import(&theirs).unwrap());
    out.clear();
    server.seal_with(&[&vec![3; 1 << 16]], &mut out, &Threads::default()).unwrap();
    let (data, updates, _) = open_all(&mut client, out.filled_mut()).unwrap();
    assert_eq!((data.len(), updates), (1 << 16, 1));
    let mut closed = Records::import(&tired).unwrap();
    closed.close(&mut out).unwrap();
    assert!(closed.seal_with(&[&vec![3; 1 << 16]], &mut out, &Threads::default()).is_err());
}
