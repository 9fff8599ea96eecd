use super::*;
use proptest::prelude::*;
use std::time::Duration;

const NAMES: [&str; 3] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"];

fn group(balance: Balance, change: impl Fn(&mut Server)) -> (Group, Instant) {
    let now = Instant::now();
    let servers = NAMES.iter().enumerate().map(|(number, name)| {
        let mut server = Server::new(number, name, now);
        change(&mut server);
        Arc::new(server)
    });
    (Group::new(balance, servers.collect(), Arc::default()), now)
}

fn number(lease: Result<Lease, Unavailable>) -> usize {
    lease.unwrap().server().number
}

#[test]
fn each_server_has_its_turn() {
    let (group, now) = group(Balance::RoundRobin, |_| {});
    let chosen: Vec<usize> = (0..6).map(|_| number(group.choose(&Wish::default(), now))).collect();
    assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn the_server_with_the_fewest_connections_is_chosen() {
    let (group, now) = group(Balance::LeastConnections, |_| {});
    let mut held: Vec<Lease> = (0..6).map(|_| group.choose(&Wish::default(), now).unwrap()).collect();
    assert!(group.servers().iter().all(|server| server.connections() == 2));
    held.retain(|lease| lease.server().number != 1);
    assert_eq!(group.servers()[1].connections(), 0);
    let next: Vec<Lease> = (0..2).map(|_| group.choose(&Wish::default(), now).unwrap()).collect();
    assert!(next.iter().all(|lease| lease.server().number == 1));
}

#[test]
fn a_key_stays_at_its_server_if_another_one_goes() {
    let (all, now) = group(Balance::Hash, |_| {});
    let wish = |key: u32| Wish { key: Some(Key::new(&key.to_be_bytes())), ..Wish::default() };
    let before: Vec<usize> = (0..300).map(|key| number(all.choose(&wish(key), now))).collect();
    for server in 0..3 {
        let share = before.iter().filter(|chosen| **chosen == server).count();
        assert!((50..150).contains(&share), "server {server} has {share} of 300 keys");
    }
    all.servers()[1].set_healthy(false);
    for (key, before) in (0..300).zip(before) {
        let after = number(all.choose(&wish(key), now));
        assert!(after == before || before == 1 && after != 1, "key {key} went from {before} to {after}");
    }
}

#[test]
fn a_cookie_binds_a_client_to_its_server_also_while_it_drains() {
    let (group, now) = group(Balance::RoundRobin, |server| server.is_drained = server.number == 2);
    let cookie = group.servers()[2].cookie.to_owned();
    for _ in 0..4 {
        assert_eq!(number(group.choose(&Wish { sticky: Some(&cookie), ..Wish::default() }, now)), 2);
        assert_ne!(number(group.choose(&Wish::default(), now)), 2);
        assert_ne!(number(group.choose(&Wish { sticky: Some("made up"), ..Wish::default() }, now)), 2);
    }
    group.servers()[2].set_healthy(false);
    assert_ne!(number(group.choose(&Wish { sticky: Some(&cookie), ..Wish::default() }, now)), 2);
}

#[test]
fn a_server_has_no_more_connections_than_it_may() {
    let (group, now) = group(Balance::RoundRobin, |server| server.max_connections = 2);
    let mut held: Vec<Lease> = (0..6).map(|_| group.choose(&Wish::default(), now).unwrap()).collect();
    assert_eq!(group.choose(&Wish::default(), now).unwrap_err(), Unavailable::Full);
    let freed = held.pop().unwrap().server().number;
    assert_eq!(number(group.choose(&Wish::default(), now)), freed);
}

#[test]
fn failures_in_a_row_take_a_server_out_for_a_time() {
    let passive = Passive { failures: 2, time: Duration::from_secs(10) };
    let (group, start) = group(Balance::RoundRobin, |server| server.passive = passive);
    let tried = [1, 2];
    let only_first = Wish { tried: &tried, ..Wish::default() };
    let lease = group.choose(&only_first, start).unwrap();
    assert!(!lease.failed(start));
    lease.succeeded();
    assert!(!lease.failed(start), "a success between two failures");
    assert!(lease.failed(start));
    assert!(!lease.failed(start), "it is out already");
    let during = start + Duration::from_secs(9);
    assert!((0..6).all(|_| number(group.choose(&Wish::default(), during)) != 0));
    assert_eq!(number(group.choose(&only_first, during)), 0, "it is better than none");
    let after = start + Duration::from_secs(10);
    assert!((0..3).any(|_| number(group.choose(&Wish::default(), after)) == 0));
    assert!(lease.failed(after), "one failure is enough now");
    assert!((0..6).all(|_| number(group.choose(&Wish::default(), after + Duration::from_secs(1))) != 0));
}

#[test]
fn a_full_server_is_better_than_one_that_fails() {
    let passive = Passive { failures: 1, time: Duration::from_secs(10) };
    let (group, now) = group(Balance::RoundRobin, |server| {
        (server.passive, server.max_connections) = (passive, 1);
    });
    let held: Vec<Lease> = (0..2).map(|_| group.choose(&Wish::default(), now).unwrap()).collect();
    group.choose(&Wish::default(), now).unwrap().failed(now);
    assert_eq!(group.choose(&Wish::default(), now).unwrap_err(), Unavailable::Full);
    drop(held);
}

#[test]
fn checks_that_pass_again_end_the_time_out_of_a_server() {
    let passive = Passive { failures: 1, time: Duration::from_secs(10) };
    let (group, now) = group(Balance::RoundRobin, |server| server.passive = passive);
    let lease = group.choose(&Wish::default(), now).unwrap();
    assert!(lease.failed(now) && lease.server().is_out(now));
    lease.server().set_healthy(true);
    assert!(lease.server().is_out(now), "it was healthy all the time");
    lease.server().set_healthy(false);
    lease.server().set_healthy(true);
    assert!(!lease.server().is_out(now));
}

#[test]
fn without_a_healthy_server_there_is_none() {
    let (group, now) = group(Balance::RoundRobin, |_| {});
    group.servers().iter().for_each(|server| server.set_healthy(false));
    assert_eq!(group.choose(&Wish::default(), now).unwrap_err(), Unavailable::Down);
    assert_eq!(group.choose(&Wish { tried: &[0, 1, 2], ..Wish::default() }, now).unwrap_err(), Unavailable::Down);
}

#[test]
fn a_reload_keeps_the_counts_of_a_server_that_stays() {
    let (before, now) = group(Balance::RoundRobin, |server| server.max_connections = 1);
    let lease = before.choose(&Wish::default(), now).unwrap();
    let old = &before.servers()[0];
    let mut new = Server::new(0, &old.name, now);
    new.max_connections = 1;
    new.go_on_from(old);
    let after = Group::new(Balance::RoundRobin, vec![Arc::new(new)], Arc::default());
    assert_eq!(after.choose(&Wish::default(), now).unwrap_err(), Unavailable::Full);
    drop(lease);
    assert_eq!(number(after.choose(&Wish::default(), now)), 0);
}

#[test]
fn a_request_is_repeated_only_where_that_does_no_harm() {
    let unsent = Attempt {
        was_sent: false,
        was_reused: false,
        has_answer: false,
        is_idempotent: false,
        has_body: true,
        repeats: 5,
    };
    assert!(unsent.may_repeat());
    let stale =
        Attempt { was_sent: true, was_reused: true, is_idempotent: true, has_body: false, repeats: 0, ..unsent };
    assert!(stale.may_repeat());
    let not = [
        Attempt { was_reused: false, ..stale },
        Attempt { has_answer: true, ..stale },
        Attempt { is_idempotent: false, ..stale },
        Attempt { has_body: true, ..stale },
        Attempt { repeats: 1, ..stale },
    ];
    assert!(not.iter().all(|attempt| !attempt.may_repeat()));
}

proptest! {
    #[test]
    fn counts_are_exact_and_bounded_whatever_happens(
        most in 1_usize..4,
        steps in proptest::collection::vec((0_u8..5, any::<u8>(), 0_u64..4000), 1..200),
        balance in prop_oneof![Just(Balance::RoundRobin), Just(Balance::LeastConnections), Just(Balance::Hash)],
    ) {
        let passive = Passive { failures: 2, time: Duration::from_secs(5) };
        let (group, mut now) = group(balance, |server| {
            (server.passive, server.max_connections) = (passive, most);
        });
        let mut held: Vec<Lease> = Vec::new();
        for (step, pick, millis) in steps {
            now += Duration::from_millis(millis);
            match step {
                0 | 1 => {
                    let wish = Wish { key: Some(Key::new(&[pick])), ..Wish::default() };
                    match group.choose(&wish, now) {
                        Ok(lease) => {
                            prop_assert!(lease.server().is_healthy());
                            held.push(lease);
                        }
                        Err(Unavailable::Down) => prop_assert!(group.servers().iter().all(|server| !server.is_healthy())),
                        Err(Unavailable::Full) => {
                            let has_room = |server: &Arc<Server>| {
                                server.is_healthy() && !server.is_out(now) && server.connections() < most
                            };
                            prop_assert!(!group.servers().iter().any(has_room));
                        }
                    }
                }
                2 if !held.is_empty() => drop(held.swap_remove(usize::from(pick) % held.len())),
                3 if !held.is_empty() => _ = held[usize::from(pick) % held.len()].failed(now),
                _ => group.servers()[usize::from(pick) % 3].set_healthy(pick % 2 == 0),
            }
            for server in group.servers() {
                let count = held.iter().filter(|lease| lease.server().number == server.number).count();
                prop_assert!(server.connections() == count && count <= most);
            }
        }
    }
}
