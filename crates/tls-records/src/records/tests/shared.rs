use super::super::{MAX_PLAIN, REKEY_AFTER, Records};
use super::{connected, open_all};
use crate::{Suite, Traffic};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tautline_testkit::Random;
use tautline_tls::Team;
use tautline_window::Buf;

/// As many threads as are asked for, and what each run of the last call was.
#[derive(Default)]
struct Threads {
    told: Mutex<BTreeMap<usize, Option<Vec<u8>>>>,
}

impl Team for Threads {
    fn share(&self, others: usize, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 0..others.min(3) {
                scope.spawn(work);
            }
            work();
        });
    }

    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        let before = self.told.lock().unwrap().insert(run, records.map(<[u8]>::to_vec));
        assert!(before.is_none(), "run {run} twice");
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
            let team = Threads::default();
            many.seal_with(&plain, &mut together, &team).unwrap();
            assert!(alone.filled() == together.filled(), "{suite:?}: {} and {len}", header.len());
            assert_eq!(one.tx.sequence(), many.tx.sequence());
            // Who sends the runs one after the other sends the same.
            let told = team.told.into_inner().unwrap();
            let runs: Vec<u8> = told.values().flat_map(|records| records.as_deref().unwrap()).copied().collect();
            assert!(told.len() <= 2 && (runs == together.filled() || told.is_empty()), "{} runs", told.len());
            assert_eq!(told.is_empty(), plain.concat().len() <= MAX_PLAIN);
            assert!(told.keys().copied().eq(0..told.len()));
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
    server.seal_with(&[&vec![1; 1 << 16]], &mut out, &Threads::default()).unwrap();
    server.seal_with(&[&vec![2; 1 << 16]], &mut out, &Threads::default()).unwrap();
    let mut tired = server.export();
    tired.tx.sequence = REKEY_AFTER - 2;
    let (data, updates, _) = open_all(&mut client, out.filled_mut()).unwrap();
    assert_eq!((data.len(), updates), (1 << 17, 1));
    let mut theirs = client.export();
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
