//! Pusher's protocol and server-sent events with an application that is asked, with revocation and with bounds.

use crate::api;
use crate::app::{Answer, App, Asked};
use crate::bench::{Bench, token};
use crate::events::Events;
use crate::hooks::{allow, eventually, refuse};
use crate::limits::met;
use crate::pusher::{Client, assert_subscribed, parsed, post};
use serde_json::{Value, json};

const APP: &str = "
[[namespace]]
topics = \"*\"
anyone = [\"subscribe\", \"publish\"]
max-message = 2000
asks = [\"subscribe\", \"publish\"]
tells = [\"unsubscribe\", \"presence\"]

[[app]]
id = \"7\"
key = \"shop-key\"
file = \"other.key\"
prefix = \"shop:\"
client-events = true

[[key]]
name = \"app\"
file = \"api.key\"
scopes = [\"users\", \"publish\"]
topics = [\"*\"]
";

/// Without questions to an application.
fn unasked() -> String {
    APP.lines().filter(|line| !line.starts_with("asks") && !line.starts_with("tells")).collect::<Vec<_>>().join("\n")
}

fn answer(asked: &Asked) -> Answer {
    let body = &asked.body;
    match body["headers"]["cookie"].as_str().or_else(|| body["topic"].as_str()) {
        Some("session=ann") => allow(&json!({ "user": "ann", "expires": 600 })),
        Some("session=eve") => refuse("who are you"),
        Some("shop:private-closed" | "closed") => refuse("members only"),
        _ if body["data"] == "bad" => refuse("no such words"),
        _ if body["data"] == "shout" => allow(&json!({ "data": "quietly" })),
        _ => allow(&json!({})),
    }
}

#[test]
fn the_application_decides_about_connections_and_messages_of_pusher_in_their_order() {
    let app = App::new(answer);
    let hooks = app.rules("asks = [\"connect\"]\ntells = [\"disconnect\"]\nheaders = [\"cookie\"]");
    let bench = Bench::new("", &format!("{APP}{hooks}"));
    let mut eve = bench.try_connect("/app/shop-key?protocol=7", &[("cookie", "session=eve")]).unwrap();
    let error = parsed(&crate::bench::next(&mut eve));
    assert_eq!(error["data"]["code"], json!(4009), "{error}");
    let (mut ann, mut bob) = (Client::new(&bench), Client::new(&bench));
    assert_eq!(app.asked("connect").len(), 3);
    assert_eq!(app.asked("connect")[0].body["path"], json!("/app/shop-key"));
    let refused = ann.subscribe("private-closed", None);
    assert_eq!((&refused["event"], &refused["data"]["status"]), (&json!("pusher:subscription_error"), &json!(403)));
    assert_eq!(refused["data"]["error"], json!("members only"));
    for client in [&mut ann, &mut bob] {
        assert_subscribed(&client.subscribe("private-x", None));
    }
    // All of them wait for the answers before them.
    for data in [json!(1), json!("bad"), json!("shout"), json!(4)] {
        ann.client_event("private-x", &data);
    }
    ann.send(&json!({ "event": "pusher:unsubscribe", "data": { "channel": "private-x" } }));
    let got: Vec<Value> = (0..3).map(|_| bob.next()["data"].clone()).collect();
    assert_eq!(got, [json!(1), json!("quietly"), json!(4)]);
    assert!(ann.next()["data"]["message"].as_str().unwrap().contains("no such words"));
    let asked = app.asked("publish");
    assert_eq!(asked.len(), 4);
    assert_eq!((&asked[0].body["topic"], &asked[0].body["event"]), (&json!("shop:private-x"), &json!("client-moved")));
    assert_subscribed(&ann.subscribe("presence-y", Some(&json!({ "user_id": "ann" }))));
    assert_eq!(app.asked("subscribe").last().unwrap().body["user"], json!("ann"));
    drop(ann);
    eventually("the application is told of the end", || {
        !app.asked("disconnect").is_empty() && app.asked("unsubscribe").len() == 2 && app.asked("presence").len() == 2
    });
    bench.end();
}

#[test]
fn the_application_decides_about_streams_of_events_and_their_topics() {
    let app = App::new(answer);
    let bench =
        Bench::new("required = true", &format!("{APP}{}", app.rules("asks = [\"connect\"]\nheaders = [\"cookie\"]")));
    let with = |cookie: &str, topics: &str| {
        Events::get(&bench, &format!("/events?{topics}"), &format!("Cookie: {cookie}\r\n"))
    };
    let eve = with("session=eve", "topic=a");
    assert_eq!(eve.status(), 403, "{}", eve.head);
    // Allowed without a user, it still needs a token.
    assert_eq!(with("session=none", "topic=a").status(), 401);
    let mut ann = with("session=ann", "topic=a&topic=closed&topic=b");
    assert_eq!(ann.status(), 200, "{}", ann.head);
    let events: Vec<(String, Value)> =
        (0..3).map(|_| ann.next().map(|(event, _, data)| (event, data["topic"].clone())).unwrap()).collect();
    let expected = [("subscribed", "a"), ("refused", "closed"), ("subscribed", "b")];
    assert_eq!(events, expected.map(|(event, topic)| (event.to_owned(), json!(topic))));
    let asked = app.asked("subscribe");
    assert_eq!(asked.iter().map(|asked| asked.body["topic"].clone()).collect::<Vec<_>>(), ["a", "closed", "b"]);
    assert_eq!(asked[0].body["user"], json!("ann"));
    assert_eq!(api::post(&bench, "publish", &json!({ "topic": "b", "data": 7 })).0, 200);
    assert_eq!(ann.next().unwrap().2["data"], json!(7));
    bench.end();
}

#[test]
fn ends_and_revocations_reach_connections_of_pusher_and_streams() {
    let bench = Bench::new("query = \"token\"", &unasked());
    let ended = |operation: &str, body: &Value, client: &mut Client, events: &mut Events| {
        assert_eq!(api::post(&bench, operation, body).0, 200);
        let end = client.next();
        assert!(end.as_str().is_some_and(|end| end.contains("4009")), "{end}");
        let last = std::iter::from_fn(|| events.next()).last().unwrap();
        assert_eq!((&*last.0, &last.2["code"]), ("close", &json!(4002)));
    };
    let open = || {
        let (mut client, path) =
            (Client::new(&bench), format!("/events?topic=a&token={}", token("ann", 60.0, &json!({}))));
        assert_eq!(client.sign_in("ann")["event"], "pusher:signin_success");
        let mut events = Events::get(&bench, &path, "");
        assert_eq!(events.next().unwrap().0, "subscribed");
        (client, events)
    };
    let (mut client, mut events) = open();
    let (_, answer) = api::post(&bench, "publish", &json!({ "user": "ann", "data": { "n": 1 } }));
    assert_eq!(answer["connections"], json!(2));
    let direct = client.next();
    assert_eq!((&direct["channel"], &direct["data"]), (&json!("#server-to-user-ann"), &json!("{\"n\":1}")));
    ended("disconnect", &json!({ "user": "ann" }), &mut client, &mut events);
    let (mut client, mut events) = open();
    ended("revoke", &json!({ "user": "ann", "seconds": 600 }), &mut client, &mut events);
    let mut again = Client::new(&bench);
    assert_eq!(again.sign_in("ann")["data"]["code"], json!(4009), "a user who is revoked");
    assert_eq!(
        Events::get(&bench, &format!("/events?topic=a&token={}", token("ann", 60.0, &json!({}))), "").status(),
        401
    );
    bench.end();
}

#[test]
fn bounds_count_subscriptions_and_messages_of_pusher_and_streams() {
    let limits = "[limits]\nsubscriptions-per-address = 3\npublishes-per-topic = 3\n";
    let bench = Bench::new("", &format!("{limits}{}", unasked()));
    let mut client = Client::new(&bench);
    let mut refused = 0;
    for number in 0..60 {
        let answer = client.subscribe(&format!("c{number}"), None);
        refused += u64::from(answer["data"]["error"].as_str().is_some_and(|reason| reason.contains("in a second")));
    }
    assert!(refused > 0, "60 are more than three a second");
    assert_eq!(met(&bench, "subscriptions-per-address"), refused);
    // A stream that asks for too much ends, and its client comes back later.
    eventually("a stream is refused", || {
        let topics: Vec<String> = (0..32).map(|number| format!("topic=t{number}")).collect();
        let mut events = Events::get(&bench, &format!("/events?{}", topics.join("&")), "");
        std::iter::from_fn(|| events.next()).take(33).any(|(event, ..)| event == "close")
    });
    assert!(met(&bench, "subscriptions-per-address") > refused);
    let publish = |data: &str| post(&bench, "/apps/7/events", &json!({ "name": "e", "channel": "c", "data": data })).0;
    eventually("requests of servers are refused", || publish("1") == 429);
    eventually("and come through later", || publish("1") == 200);
    assert_eq!(publish(&"x".repeat(2_001)), 413, "the namespace takes 2,000 bytes");
    let before = met(&bench, "publishes-per-topic");
    eventually("the channel takes a subscriber", || {
        client.subscribe("private-x", None)["event"] == "pusher_internal:subscription_succeeded"
    });
    for _ in 0..9 {
        client.client_event("private-x", &json!(1));
    }
    let error = client.next();
    assert_eq!((&error["event"], &error["data"]["code"]), (&json!("pusher:error"), &json!(4301)), "{error}");
    assert!(met(&bench, "publishes-per-topic") > before);
    bench.end();
}
