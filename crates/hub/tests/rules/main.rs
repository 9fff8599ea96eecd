//! Rules over loopback: tokens, rights, expiry, and rules that change.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod api;
#[cfg(feature = "hooks")]
mod app;
mod bench;
mod clients;
mod counts;
mod events;
mod frames;
#[path = "../helpers/mod.rs"]
mod helpers;
#[cfg(feature = "hooks")]
mod hooks;
mod hosts;
mod limits;
mod namespaces;
mod protocols;
mod pusher;

use bench::{Bench, RULES, ask, next, send, subscribe, token, until};
use helpers::{PATIENCE, client, message, publish, stop, target};
use serde_json::json;
use tautline::{ClientConfig, Server, Socket};
use tautline_hub::{Hub, Rules, Subscribe};

#[test]
fn without_a_token_only_what_anyone_may() {
    let bench = Bench::new("", RULES);
    let mut socket = bench.try_connect("/", &[]).unwrap();
    assert!(subscribe(&mut socket, "news:a").starts_with(r#"{"type":"subscribed""#));
    for topic in ["News:a", "news", "log:a", "room", "*", "news\u{ff1a}a", " news:a", "\u{feff}news:a"] {
        assert!(subscribe(&mut socket, topic).contains("no right to subscribe"), "{topic}");
    }
    for topic in ["news:a", "log:a", "room"] {
        assert!(send(&mut socket, topic).contains("no right to publish"), "{topic}");
    }
    let member = json!({ "type": "subscribe", "topic": "news:a", "as": "ann" });
    assert!(ask(&mut socket, &member).contains("no right to the presence"));
    let watcher = json!({ "type": "subscribe", "topic": "news:a", "presence": true });
    assert!(ask(&mut socket, &watcher).contains("no right to the presence"));
    bench.end();
}

#[test]
fn tokens_come_in_header_query_cookie_and_first_message() {
    let bench = Bench::new("cookie = \"session\"\nquery = \"token\"", RULES);
    let token = token("ann", 60.0, &json!({ "room:*": ["subscribe", "publish"] }));
    let mut ways = vec![
        bench.connect(&token),
        bench.try_connect(&format!("/?token={token}"), &[]).unwrap(),
        bench.try_connect("/", &[("cookie", &format!("a=b; session={token}"))]).unwrap(),
        bench.try_connect("/", &[]).unwrap(),
    ];
    let welcome = ask(&mut ways[3], &json!({ "type": "token", "token": token }));
    assert!(welcome.starts_with(r#"{"type":"welcome","user":"ann""#), "{welcome}");
    for socket in &mut ways {
        assert!(subscribe(socket, "room:1").starts_with(r#"{"type":"subscribed""#));
        assert!(subscribe(socket, "log:a").starts_with(r#"{"type":"subscribed""#));
        assert!(subscribe(socket, "other").contains("no right to subscribe"));
        let history = json!({ "type": "subscribe", "topic": "log:a", "after": 0 });
        assert!(ask(socket, &history).contains("no right to the history"));
    }
    let foreign = [("cookie", &*format!("session={token}")), ("origin", "https://evil.example")];
    assert!(bench.try_connect("/", &foreign).is_err());
    for bad in ["", "x", &format!("{token}x"), &self::token("ann", -1.0, &json!({}))] {
        let error = bench.try_connect("/", &[("authorization", &format!("Bearer {bad}"))]).unwrap_err();
        assert!(error.contains("401"), "{error}");
    }
    bench.end();
}

#[test]
fn a_connection_has_few_tokens_looked_at_in_a_second() {
    let bench = Bench::new("", RULES);
    let mut socket = bench.try_connect("/", &[]).unwrap();
    ask(&mut socket, &json!({ "type": "hello", "version": 2 }));
    let begin = std::time::Instant::now();
    let one = json!({ "type": "token", "token": token("ann", 60.0, &json!({})) });
    socket.text(&serde_json::Value::from(vec![one.clone(); 200]).to_string()).unwrap();
    let said: Vec<String> = (0..200).map(|_| next(&mut socket)).collect();
    let (accepted, refused): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.contains("\"welcome\""));
    assert!(accepted.len() as u64 <= 4 * (1 + begin.elapsed().as_secs()), "{} of them", accepted.len());
    assert!(refused.iter().all(|said| said.contains("more tokens in a second")), "{refused:?}");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert!(ask(&mut socket, &one).contains("\"welcome\""));
    bench.end();
}

#[test]
fn a_required_token_has_to_come_first_and_in_time() {
    let bench = Bench::new("required = true\nlogin-within = 1", RULES);
    let mut late = bench.try_connect("/", &[]).unwrap();
    assert!(subscribe(&mut late, "news:a").contains("needs a token"));
    assert!(until(&mut late, "4003").contains("no token came"));
    let mut forged = bench.try_connect("/", &[]).unwrap();
    let said = ask(&mut forged, &json!({ "type": "token", "token": "a.b.c" }));
    assert!(said.contains("4004"), "{said}");
    let mut good = bench.try_connect("/", &[]).unwrap();
    let welcome = ask(&mut good, &json!({ "type": "token", "token": token("ann", 60.0, &json!({})) }));
    assert!(welcome.contains("welcome"), "{welcome}");
    assert!(subscribe(&mut good, "news:a").contains("subscribed"));
    bench.end();
}

#[test]
fn a_connection_without_a_token_stays_once_rules_need_none() {
    let bench = Bench::new("required = true\nlogin-within = 2", RULES);
    let mut socket = bench.try_connect("/", &[]).unwrap();
    assert!(subscribe(&mut socket, "news:a").contains("needs a token"));
    bench.reload("", RULES);
    let begin = std::time::Instant::now();
    while !subscribe(&mut socket, "news:a").contains("subscribed") {
        assert!(begin.elapsed() < PATIENCE);
    }
    bench.end();
}

#[test]
fn a_client_is_asked_for_a_fresh_token_and_closed_without_one() {
    let bench = Bench::new("refresh-before = 3600", RULES);
    let grants = json!({ "room": ["subscribe"], "hall": ["subscribe"] });
    let mut socket = bench.connect(&token("ann", 2.0, &grants));
    assert!(until(&mut socket, r#"{"type":"token""#).contains("expires"));
    subscribe(&mut socket, "room");
    subscribe(&mut socket, "hall");
    // A fresh one with fewer rights ends the rest.
    let fewer = token("ann", 3.0, &json!({ "hall": ["subscribe"] }));
    let welcome = ask(&mut socket, &json!({ "type": "token", "token": fewer }));
    assert!(welcome.contains("welcome"), "{welcome}");
    let ended = until(&mut socket, "unsubscribed");
    assert!(ended.contains(r#""topic":"room""#) && ended.contains("no right"), "{ended}");
    assert!(until(&mut socket, "4001").contains("expired"));
    // One of another user is none.
    let mut other = bench.connect(&token("ann", 60.0, &grants));
    let said = ask(&mut other, &json!({ "type": "token", "token": token("bob", 60.0, &grants) }));
    assert!(said.contains("welcome") || said.contains(r#""type":"token""#) || said.contains("4004"), "{said}");
    until(&mut other, "4004");
    bench.end();
}

#[test]
fn tokens_with_short_lives_are_not_asked_for_again_and_again() {
    let bench = Bench::new("", RULES);
    let begin = std::time::Instant::now();
    // They end sooner than the time before an end at which a fresh one is asked for.
    let mut socket = bench.connect(&token("ann", 4.0, &json!({})));
    for _ in 0..2 {
        assert!(until(&mut socket, r#"{"type":"token""#).contains("expires"));
        let fresh = json!({ "type": "token", "token": token("ann", 4.0, &json!({})) });
        assert!(ask(&mut socket, &fresh).contains("welcome"));
    }
    assert!(begin.elapsed().as_secs_f64() > 3.5, "each is asked for after half of its life");
    bench.end();
}

#[test]
fn without_the_right_to_history_a_client_that_returns_goes_on_from_now() {
    let bench = Bench::new("", RULES);
    let mut writer = bench.connect(&token("bob", 60.0, &json!({})));
    let mut socket = bench.connect(&token("ann", 60.0, &json!({})));
    assert!(send(&mut writer, "log:a").contains("offset"));
    let first: serde_json::Value = serde_json::from_str(&subscribe(&mut socket, "log:a")).unwrap();
    let returns = json!({
        "type": "subscribe", "topic": "log:a", "after": first["offset"], "epoch": first["epoch"]
    });
    // It has missed nothing.
    assert!(ask(&mut socket, &returns).starts_with(r#"{"type":"subscribed""#));
    for number in 0..3 {
        let message = json!({ "type": "publish", "topic": "log:a", "data": number, "id": number.to_string() });
        assert!(ask(&mut writer, &message).contains("offset"));
    }
    let mut socket = bench.connect(&token("ann", 60.0, &json!({})));
    let late: serde_json::Value = serde_json::from_str(&ask(&mut socket, &returns)).unwrap();
    assert_eq!((&late["type"], late["offset"].as_u64()), (&json!("late"), first["offset"].as_u64().map(|n| n + 3)));
    let other = json!({ "type": "subscribe", "topic": "log:a", "after": 1, "epoch": "another" });
    assert!(ask(&mut socket, &other).starts_with(r#"{"type":"late""#));
    let message = json!({ "type": "publish", "topic": "log:a", "data": "new", "id": "n" });
    assert!(ask(&mut writer, &message).contains("offset"));
    assert!(next(&mut socket).contains(r#""data":"new""#), "nothing of before");
    bench.end();
}

#[test]
fn without_the_right_to_history_a_client_returns_to_a_topic_that_was_empty() {
    let bench = Bench::new("", RULES);
    let mut socket = bench.connect(&token("ann", 60.0, &json!({})));
    let first: serde_json::Value = serde_json::from_str(&subscribe(&mut socket, "log:a")).unwrap();
    let returns = json!({ "type": "subscribe", "topic": "log:a", "after": 0, "epoch": first["epoch"] });
    assert_eq!(first["offset"], json!(0));
    assert!(ask(&mut socket, &returns).starts_with(r#"{"type":"subscribed""#));
    let mut writer = bench.connect(&token("bob", 60.0, &json!({})));
    assert!(send(&mut writer, "log:a").contains("offset"));
    assert!(next(&mut socket).contains("message"));
    assert!(ask(&mut socket, &returns).starts_with(r#"{"type":"late""#), "nothing of before");
    bench.end();
}

#[test]
fn a_right_to_history_that_is_gone_ends_what_is_under_way() {
    let with = |rights: &str| format!("[[namespace]]\ntopics = \"log:*\"\nanyone = [\"publish\", {rights}]\n");
    let bench = Bench::new("", &with("\"subscribe\", \"history\""));
    let mut writer = bench.try_connect("/", &[]).unwrap();
    let data = "x".repeat(32 << 10);
    // More than the sockets hold.
    for number in 0..1_000 {
        let message = json!({ "type": "publish", "topic": "log:a", "data": data, "id": number.to_string() });
        assert!(ask(&mut writer, &message).contains("offset"));
    }
    let mut reader = bench.try_connect("/", &[]).unwrap();
    let all = json!({ "type": "subscribe", "topic": "log:a", "after": 0 });
    assert!(ask(&mut reader, &all).contains("subscribed"));
    let mut live = bench.try_connect("/", &[]).unwrap();
    assert!(ask(&mut live, &all).contains("subscribed"));
    for _ in 0..1_000 {
        assert!(next(&mut live).contains("message"));
    }
    bench.reload("", &with("\"subscribe\""));
    // The last messages of all are on their way meanwhile.
    assert!(send(&mut writer, "log:a").contains("offset"));
    assert!(next(&mut live).contains(r#""data":1"#), "one that has all of it goes on");
    let mut messages = 0;
    let ended = loop {
        let text = next(&mut reader);
        if text.contains("unsubscribed") {
            break text;
        }
        messages += 1;
        assert!(messages < 1_001, "all of the history came");
    };
    assert!(ended.contains("no right to the history"), "{ended}");
    bench.end();
}

#[test]
fn a_key_that_is_replaced_does_not_count_for_later_tokens_and_harms_no_earlier_one() {
    let bench = Bench::new("", RULES);
    let old = token("ann", 600.0, &json!({ "room": ["subscribe"] }));
    let mut socket = bench.connect(&old);
    std::fs::write(bench.folder.join("secret"), "another secret of 32 bytes or more").unwrap();
    bench.reload("", RULES);
    let error = bench.try_connect("/", &[("authorization", &format!("Bearer {old}"))]).unwrap_err();
    assert!(error.contains("401"), "{error}");
    assert!(subscribe(&mut socket, "room").contains("subscribed"));
    bench.end();
}

#[test]
fn rules_that_change_end_subscriptions_and_revoked_users() {
    let bench = Bench::new("", RULES);
    let mut anyone = bench.try_connect("/", &[]).unwrap();
    let grants = json!({ "room": ["subscribe", "publish"] });
    let mut ann = bench.connect(&token("ann", 600.0, &grants));
    let mut bob = bench.connect(&token("bob", 600.0, &grants));
    for socket in [&mut ann, &mut bob] {
        assert!(subscribe(socket, "room").contains("subscribed"));
        assert!(subscribe(socket, "log:a").contains("subscribed"));
        assert!(subscribe(socket, "news:a").contains("subscribed"));
    }
    assert!(subscribe(&mut anyone, "news:a").contains("subscribed"));
    assert!(send(&mut bob, "log:a").contains("offset"));
    bench.reload("", "");
    assert!(until(&mut anyone, "unsubscribed").contains("no right to subscribe"));
    for _ in 0..2 {
        assert!(!until(&mut ann, "unsubscribed").contains("room"), "the token gives it");
        assert!(!until(&mut bob, "unsubscribed").contains("room"), "the token gives it");
    }
    assert!(send(&mut bob, "log:a").contains("no right to publish"), "resolved rights are resolved anew");
    published(&mut ann, "room");
    let file = bench.folder.join("hub.toml");
    std::fs::write(&file, "revoked = [\"bob\"]\n[tokens]\nsecrets = [\"secret\"]\n").unwrap();
    bench.hub.set_rules(Rules::load(&file).unwrap());
    assert!(until(&mut bob, "4002").contains("revoked"));
    let fresh = token("bob", 600.0, &grants);
    assert!(bench.try_connect("/", &[("authorization", &format!("Bearer {fresh}"))]).is_err());
    published(&mut ann, "room");
    bench.end();
}

/// Publishes, and waits for the answer. Messages of before may come first.
fn published(socket: &mut Socket, topic: &str) {
    socket.text(&json!({ "type": "publish", "topic": topic, "data": 1, "id": "i" }).to_string()).unwrap();
    until(socket, r#"{"type":"published""#);
}

#[test]
fn a_topic_that_changes_its_kind_ends_and_begins_anew() {
    let space = |kind: &str| {
        format!("[[namespace]]\ntopics = \"t\"\nkind = \"{kind}\"\nanyone = [\"subscribe\", \"publish\"]\n")
    };
    let bench = Bench::new("", &space("plain"));
    let mut socket = bench.try_connect("/", &[]).unwrap();
    assert!(!subscribe(&mut socket, "t").contains("offset"));
    bench.reload("", &space("history"));
    assert!(until(&mut socket, "unsubscribed").contains("kind"));
    assert!(until_subscribed(&mut socket).contains("offset"));
    assert!(send(&mut socket, "t").contains("offset"));
    bench.reload("", &space("plain"));
    assert!(until(&mut socket, "unsubscribed").contains("kind"));
    assert!(!until_subscribed(&mut socket).contains("offset"));
    bench.end();
}

fn until_subscribed(socket: &mut Socket) -> String {
    socket.text(&json!({ "type": "subscribe", "topic": "t" }).to_string()).unwrap();
    until(socket, r#"{"type":"subscribed""#)
}

#[test]
fn namespaces_bound_messages_and_members() {
    let bench = Bench::new(
        "",
        "[[namespace]]\ntopics = \"a\"\nanyone = [\"publish\", \"subscribe\", \"presence\"]\nmax-message = 10\nmax-members = 1\n\
         [[namespace]]\ntopics = \"b\"\nanyone = [\"publish\"]\npublish-rate = 2\n",
    );
    let mut socket = bench.try_connect("/", &[]).unwrap();
    let long = json!({ "type": "publish", "topic": "a", "data": "x".repeat(20) });
    assert!(ask(&mut socket, &long).contains("longer"));
    let publications: Vec<String> = (0..60).map(|_| send(&mut socket, "b")).collect();
    let refused = publications.iter().filter(|answer| answer.contains("more messages in a second")).count();
    assert!(refused > 0, "60 messages are more than two a second for all the time of a test");
    let member = json!({ "type": "subscribe", "topic": "a", "as": "one" });
    assert!(ask(&mut socket, &member).contains("subscribed"));
    let mut other = bench.try_connect("/", &[]).unwrap();
    assert!(ask(&mut other, &member).contains("too many members"));
    bench.end();
}

#[test]
fn a_rate_holds_for_all_topics_of_a_namespace_and_over_fresh_tokens() {
    let bench = Bench::new("", "[[namespace]]\ntopics = \"b:*\"\nusers = [\"publish\"]\npublish-rate = 2\n");
    let of_ann = token("ann", 600.0, &json!({}));
    let mut socket = bench.connect(&of_ann);
    let (begin, mut taken) = (std::time::Instant::now(), 0);
    for number in 0..100 {
        taken += u64::from(send(&mut socket, &format!("b:{number}")).contains("published"));
        let said = ask(&mut socket, &json!({ "type": "token", "token": of_ann }));
        assert!(said.contains("welcome") || said.contains("more tokens in a second"), "{said}");
    }
    // A second begins with the first message after the last one.
    assert!(taken <= 2 * (1 + begin.elapsed().as_secs()), "{taken} messages");
    bench.end();
}

#[test]
fn members_have_the_name_of_their_user_and_users_few_connections() {
    let bench = Bench::new("", "[limits]\nsessions-per-user = 2\n");
    let grants = json!({ "room": ["subscribe", "presence"] });
    let mut watcher = bench.connect(&token("watcher", 60.0, &grants));
    ask(&mut watcher, &json!({ "type": "subscribe", "topic": "room", "presence": true }));
    let mut ann = bench.connect(&token("ann", 60.0, &grants));
    ask(&mut ann, &json!({ "type": "subscribe", "topic": "room", "as": "bob" }));
    assert!(until(&mut watcher, "join").contains(r#""name":"ann""#));
    let mut second = bench.connect(&token("ann", 60.0, &grants));
    assert!(subscribe(&mut second, "room").contains("subscribed"));
    let mut third = bench.connect(&token("ann", 60.0, &grants));
    assert!(next(&mut third).contains("4005"));
    drop(ann);
    // A place is free once the hub has seen the end of another.
    let begin = std::time::Instant::now();
    loop {
        let mut again = bench.connect(&token("ann", 60.0, &grants));
        // One too many may be closed before it sends anything.
        if again.text(&json!({ "type": "ping" }).to_string()).is_ok() && next(&mut again).contains("pong") {
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    bench.end();
}

#[test]
fn a_user_joins_with_the_first_connection_and_leaves_with_the_last() {
    let bench = Bench::new("", "");
    let grants = json!({ "room": ["subscribe", "presence"] });
    let mut watcher = bench.connect(&token("watcher", 60.0, &grants));
    ask(&mut watcher, &json!({ "type": "subscribe", "topic": "room", "presence": true }));
    let member = json!({ "type": "subscribe", "topic": "room", "as": "x" });
    let of_ann = token("ann", 60.0, &grants);
    let (mut first, mut second) = (bench.connect(&of_ann), bench.connect(&of_ann));
    assert!(ask(&mut first, &member).contains("subscribed"));
    assert!(ask(&mut second, &member).contains("subscribed"));
    // Again on one connection is no second one.
    assert!(ask(&mut second, &member).contains("subscribed"));
    assert!(until(&mut watcher, "join").contains("\"user:ann\""));
    assert!(ask(&mut first, &json!({ "type": "unsubscribe", "topic": "room" })).contains("unsubscribed"));
    let mut bob = bench.connect(&token("bob", 60.0, &grants));
    assert!(ask(&mut bob, &member).contains("subscribed"));
    let next = until(&mut watcher, "user:");
    assert!(
        next.contains(r#""type":"join""#) && next.contains("\"user:bob\""),
        "the second connection of ann is there: {next}"
    );
    drop(second);
    let next = until(&mut watcher, "user:");
    assert!(next.contains(r#""type":"leave""#) && next.contains("\"user:ann\""), "{next}");
    bench.end();
}

#[test]
fn an_open_hub_lets_everybody_do_everything() {
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(1).beside_others(true);
    let server = server.start(Hub::default().handlers()).unwrap();
    let one = client(&server);
    helpers::subscribe(&one, "log:a", Subscribe::default().as_member("x").after(0, None));
    publish(&client(&server), "log:a", None, "1");
    assert_eq!(message(&one).data, "1");
    let mut socket = Socket::connect(target(&server), ClientConfig::default(), tautline::Config::default()).unwrap();
    assert!(ask(&mut socket, &json!({ "type": "token", "token": "x" })).contains("takes no tokens"));
    stop(server);
}
