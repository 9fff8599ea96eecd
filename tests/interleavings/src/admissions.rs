//! The limits that loops share, and their parts of them.

use crate::accept::admission::{Admission, Kind, SharedLimits, Stays};
use crate::config::Limits;
use crate::everywhere;
use crate::link::state::{Info, Link};
use crate::sync::{Bug, finds};
use crate::threads::command_queue::command_queue;
use crate::threads::remote::ShardHandle;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::marker::PhantomData;
use tautline_io::{Address, Token};

/// Two handshakes at a time, of both loops together.
const LIMITS: Limits =
    Limits { max_connections: 4, max_handshakes: 2, max_http: 1, memory: 1_000, shared_memory: None };
/// When every connection has waited for long enough to give way.
const LATER: u64 = 10_000;

fn link(index: u32) -> Link<(), ()> {
    let peer = Address::Tcp(([192, 0, 2, 1], 1).into());
    Link { info: Info { peer }, token: Token { index, generation: 0 }, types: PhantomData }
}

fn admission(totals: &SharedLimits) -> Admission {
    let handle = ShardHandle(Arc::new(command_queue(crate::threads::command_queue::CAPACITY).0));
    Admission::new(totals.clone(), &LIMITS, handle)
}

/// Ends connections while this loop has a surplus. Returns whether another loop has to do so.
fn apply(admission: &mut Admission) -> bool {
    loop {
        match admission.surplus(Kind::Handshake, &LIMITS, LATER) {
            Ok(first) => {
                admission.remove(Kind::Handshake, &link(first.token.index));
                admission.uncount_connection();
            }
            Err(Stays::OthersTurn) => return true,
            Err(Stays::WithinLimit) => return false,
            Err(Stays::Until(_)) => panic!("all have waited"),
        }
    }
}

fn crowds() {
    let totals = SharedLimits::default();
    // All loops take part before one of them serves.
    let loops = [0, 1].map(|number| (number, admission(&totals)));
    let asked = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    let running = loops.map(|(number, mut own)| {
        let asked = asked.clone();
        thread::spawn(move || {
            for index in 0..3 {
                own.count_connection();
                own.insert(Kind::Handshake, &link(index), 0);
                if apply(&mut own) {
                    asked[1 - number].store(true, Ordering::SeqCst);
                }
            }
            own
        })
    });
    let mut loops = running.map(|thread| thread.join().unwrap());
    // The wakes that are under way arrive.
    for (own, asked) in loops.iter_mut().zip(&*asked) {
        if asked.load(Ordering::SeqCst) {
            apply(own);
        }
    }
    let (connections, handshakes) = loops[0].of_all_shards();
    let waiting: usize = loops.iter().map(Admission::waits).sum();
    assert_eq!((connections, handshakes), (waiting, waiting), "the totals are those of the loops");
    assert!((1..=2).contains(&handshakes), "{handshakes}");
    let [one, two] = loops;
    drop(one);
    assert_eq!(two.of_all_shards().1, two.waits(), "a loop that ends takes its part away");
    drop(two);
    assert_eq!(admission(&totals).of_all_shards(), (0, 0));
}

#[test]
fn loops_keep_to_a_limit_together() {
    everywhere(crowds);
    assert!(finds(Bug::Torn, || everywhere(crowds)));
}
