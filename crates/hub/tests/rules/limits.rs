//! Bounds for users, topics and addresses.

use crate::api::request;
use crate::bench::{API_KEY, Bench, send, subscribe, token};
use serde_json::json;
use std::time::Instant;

const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\", \"publish\"]

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"statistics\"]
";

/// Number of refusals for a bound, by its name.
pub(crate) fn met(bench: &Bench, name: &str) -> u64 {
    bench.hub.bounds_met().into_iter().find(|(own, _)| *own == name).unwrap().1
}

#[test]
fn an_address_that_guesses_keys_is_refused_and_a_key_still_works() {
    let bench = Bench::new("", &format!("[limits]\nbad-keys = 5\n{RULES}"));
    let with = |key: &str| {
        let head = format!("POST /api/statistics HTTP/1.1\r\nAuthorization: Bearer {key}");
        request(&bench, &head, "{}")
    };
    let begin = Instant::now();
    let statuses: Vec<u16> = (0..40).map(|number| with(&format!("{number:032}")).0).collect();
    assert!(statuses[..5].iter().all(|status| *status == 401), "{statuses:?}");
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused > 0 || begin.elapsed().as_secs() > 55, "{statuses:?}");
    assert_eq!(met(&bench, "bad-keys"), refused as u64);
    assert_eq!(with(API_KEY).0, 200, "others at this address go on");
    if begin.elapsed().as_secs() < 55 {
        let (_, said) = with("x");
        assert_eq!(said["error"]["code"], json!("too-many-bad-keys"), "{said}");
    }
    bench.end();
}

#[test]
fn rates_hold_over_all_connections_of_a_user_a_topic_and_an_address() {
    for (name, users, topics) in [("user", 1, 9), ("topic", 9, 1), ("address", 9, 9)] {
        let bench = Bench::new("", &format!("[limits]\npublishes-per-{name} = 3\n{RULES}"));
        let mut refused = 0;
        for round in 0..8 {
            for number in 0..9 {
                let user = format!("user{}", number % users);
                let mut socket = bench.connect(&token(&user, 60.0, &json!({})));
                for _ in 0..3 {
                    let said = send(&mut socket, &format!("t{}", number % topics));
                    refused += u64::from(said.contains("in a second than this"));
                }
            }
            if refused > 0 {
                break;
            }
            assert!(round < 7, "27 messages are more than three a second: {name}");
        }
        assert_eq!(met(&bench, &format!("publishes-per-{name}")), refused);
        bench.end();
    }
}

#[test]
fn rates_of_subscriptions_hold_for_a_user_and_an_address() {
    for name in ["user", "address"] {
        let bench = Bench::new("", &format!("[limits]\nsubscriptions-per-{name} = 3\n{RULES}"));
        let mut sockets = [(); 2].map(|()| bench.connect(&token("ann", 60.0, &json!({}))));
        let said: Vec<String> =
            (0..200).map(|number| subscribe(&mut sockets[number % 2], &format!("t{}", number % 9))).collect();
        let refused = said.iter().filter(|text| text.contains("in a second than this hub takes")).count();
        assert!(refused > 0, "200 are more than three a second");
        assert_eq!(met(&bench, &format!("subscriptions-per-{name}")), refused as u64);
        bench.end();
    }
}
