//! The application is asked about connections, subscriptions and messages.

use crate::api::post;
use crate::app::{Answer, App, Asked};
use crate::bench::{Bench, ask, named_token, next, subscribe, token, until};
use crate::helpers::PATIENCE;
use serde_json::{Value, json};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Bridge, MemoryBroker, Socket};

const ROOM: &str = "
[[namespace]]
topics = \"room:*\"
anyone = [\"subscribe\", \"publish\", \"presence\"]
asks = [\"subscribe\", \"publish\"]
tells = [\"unsubscribe\", \"presence\"]

[[namespace]]
topics = \"log:*\"
anyone = [\"subscribe\", \"publish\", \"history\"]
asks = [\"publish\"]

[[namespace]]
topics = \"free\"
anyone = [\"subscribe\", \"publish\"]
";

pub(crate) fn allow(value: &Value) -> Answer {
    let mut value = value.clone();
    value["allow"] = true.into();
    Some(("", value.to_string()))
}

pub(crate) fn refuse(reason: &str) -> Answer {
    Some(("", json!({ "allow": false, "reason": reason }).to_string()))
}

fn bench(app: &App, more: &str) -> Bench {
    Bench::new("", &format!("{ROOM}{}", app.rules(more)))
}

fn publish(socket: &mut Socket, topic: &str, data: &Value, id: &str) -> String {
    ask(socket, &json!({ "type": "publish", "topic": topic, "data": data, "id": id }))
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_application_names_the_user_of_a_connection() {
    let app = App::new(|asked| match asked.body["headers"]["cookie"].as_str() {
        Some("session=ann") => allow(&json!({ "user": "ann", "topics": { "own:*": ["subscribe"] }, "expires": 600 })),
        Some("session=short") => allow(&json!({ "user": "short", "expires": 1 })),
        Some("session=poor") => Some(("", json!({ "allow": false, "status": 402, "reason": "pay first" }).to_string())),
        Some(_) => refuse("who are you"),
        None => allow(&json!({})),
    });
    let bench = bench(&app, "asks = [\"connect\"]\nheaders = [\"cookie\"]");
    let with = |cookie: &str| bench.try_connect("/in?a=b", &[("cookie", cookie)]);
    let mut ann = with("session=ann").unwrap();
    assert!(subscribe(&mut ann, "own:1").contains("subscribed"));
    assert!(subscribe(&mut ann, "other").contains("no right to subscribe"));
    let error = with("session=poor").unwrap_err();
    assert!(error.contains("402"), "{error}");
    assert!(with("session=eve").unwrap_err().contains("403"));
    let mut nobody = bench.try_connect("/", &[]).unwrap();
    assert!(subscribe(&mut nobody, "own:1").contains("no right to subscribe"));
    let mut short = with("session=short").unwrap();
    assert!(until(&mut short, "4001").contains("expired"));
    // The user of a token is told, and stays if the application names none.
    let mut bob = bench.connect(&token("bob", 60.0, &json!({ "own:2": ["subscribe"] })));
    assert!(subscribe(&mut bob, "own:2").contains("subscribed"));
    let asked = app.asked("connect");
    assert_eq!((&asked[0].body["path"], &asked[0].body["query"]), (&json!("/in"), &json!("a=b")));
    assert!(asked[0].body["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(asked.last().unwrap().body["user"], json!("bob"));
    let names: std::collections::HashSet<_> = asked.iter().map(|asked| asked.body["id"].to_string()).collect();
    assert_eq!(names.len(), asked.len(), "each question has a name of its own");
    // A token that is not accepted is refused without a question.
    assert!(bench.try_connect("/", &[("authorization", "Bearer a.b.c")]).unwrap_err().contains("401"));
    assert_eq!(app.asked("connect").len(), asked.len());
    bench.end();
}

#[test]
fn the_application_decides_about_subscriptions_and_messages() {
    let app = App::new(|asked| match asked.body["data"].as_str() {
        Some("bad") => refuse("no such words"),
        Some("shout") => allow(&json!({ "data": { "said": "quietly" } })),
        _ if asked.body["topic"] == "room:secret" => refuse("members only"),
        _ => allow(&json!({})),
    });
    let bench = bench(&app, "");
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    assert!(subscribe(&mut ann, "room:secret").contains("members only"));
    assert!(subscribe(&mut ann, "room:1").contains("subscribed"));
    assert!(publish(&mut ann, "room:1", &json!("bad"), "1").contains("no such words"));
    ann.text(&json!({ "type": "publish", "topic": "room:1", "data": "shout" }).to_string()).unwrap();
    assert!(next(&mut ann).contains(r#""data":{"said":"quietly"}"#));
    ann.text(&json!({ "type": "publish", "topic": "room:1", "data": 1.25 }).to_string()).unwrap();
    assert!(next(&mut ann).contains(r#""data":1.25"#));
    assert!(publish(&mut ann, "log:a", &json!("shout"), "2").contains("offset"));
    let all = json!({ "type": "subscribe", "topic": "log:a", "after": 0 });
    assert!(ask(&mut ann, &all).contains("subscribed"));
    assert!(next(&mut ann).contains("quietly"), "the log has the other data");
    // No right is no question.
    assert!(subscribe(&mut ann, "closed").contains("no right"));
    let asked = app.asked("publish");
    assert_eq!((&asked[0].body["user"], &asked[0].body["topic"]), (&json!("ann"), &json!("room:1")));
    assert_eq!(app.asked("subscribe").len(), 2);
    bench.end();
}

#[test]
fn the_messages_of_a_client_keep_their_order_while_the_application_thinks() {
    let app = App::new(|asked| {
        // The earlier, the slower.
        let number = asked.body["data"].as_u64().unwrap_or_default();
        std::thread::sleep(Duration::from_millis(20_u64.saturating_sub(number)));
        allow(&json!({}))
    });
    let bench = bench(&app, "");
    let mut watcher = bench.try_connect("/", &[]).unwrap();
    assert!(subscribe(&mut watcher, "room:1").contains("subscribed"));
    assert!(subscribe(&mut watcher, "free").contains("subscribed"));
    let mut writer = bench.try_connect("/", &[]).unwrap();
    for number in 0..100 {
        let topic = if number % 3 == 0 { "free" } else { "room:1" };
        writer.text(&json!({ "type": "publish", "topic": topic, "data": number }).to_string()).unwrap();
    }
    for number in 0..100 {
        let text = next(&mut watcher);
        assert!(text.contains(&format!(r#""data":{number}"#)), "{text} instead of {number}");
    }
    bench.end();
}

#[test]
fn a_ping_is_answered_while_a_message_waits_and_an_unsubscription_comes_behind_it() {
    let (let_go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let app = App::new(move |_| {
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        allow(&json!({}))
    });
    let bench = bench(&app, "within = 30");
    let mut writer = bench.try_connect("/", &[]).unwrap();
    writer.text(&json!({ "type": "publish", "topic": "room:1", "data": 1, "id": "i" }).to_string()).unwrap();
    writer.text(&json!({ "type": "unsubscribe", "topic": "room:1" }).to_string()).unwrap();
    assert!(ask(&mut writer, &json!({ "type": "ping", "id": "p" })).contains("pong"));
    let_go.send(()).unwrap();
    assert!(next(&mut writer).contains(r#"{"type":"published","id":"i""#));
    assert!(next(&mut writer).contains("unsubscribed"), "it has waited");
    drop(let_go);
    bench.end();
}

#[test]
fn without_an_answer_nothing_is_allowed() {
    let app = App::new(|asked| match asked.body["data"].as_str() {
        Some("500") => Some(("HTTP/1.1 500 No\r\n", r#"{"allow":true}"#.to_owned())),
        Some("redirect") => Some(("HTTP/1.1 307 There\r\nLocation: /elsewhere\r\n", r#"{"allow":true}"#.to_owned())),
        Some("204") => Some(("HTTP/1.1 204 Nothing\r\n", String::new())),
        Some("garbage") => Some(("", "yes".to_owned())),
        Some("empty") => Some(("", "{}".to_owned())),
        Some("long") => Some(("", format!(r#"{{"allow":true,"reason":"{}"}}"#, "x".repeat(2 << 20)))),
        Some("hangs up") => None,
        _ => allow(&json!({})),
    });
    let bench = bench(&app, "asks = [\"connect\"]");
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    for data in ["500", "redirect", "204", "garbage", "empty", "long", "hangs up"] {
        let said = publish(&mut ann, "room:1", &json!(data), "i");
        assert!(said.contains(r#""type":"error""#) && said.contains("the application"), "{data}: {said}");
        assert!(publish(&mut ann, "room:1", &json!("fine"), "i").contains("published"), "after {data}");
    }
    assert_eq!(app.asked("publish").len(), 14, "what was sent is not sent again");
    let counts = bench.hub.hook_counts();
    assert_eq!((counts.failures, counts.calls), (7, 15));
    assert_eq!(counts.times.iter().map(|(_, number)| number).sum::<u64>(), 15);
    // Nobody listens any more.
    let address = app.address;
    drop(app);
    eventually("the application is gone", || std::net::TcpStream::connect(address).is_err());
    bench.reload(
        "",
        &format!(
            "{ROOM}[hooks]\nurl = \"http://{address}/\"\nsecret = \"hook.secret\"\nwithin = 1\nasks = [\"connect\"]"
        ),
    );
    let error = bench.try_connect("/", &[]).unwrap_err();
    assert!(error.contains("503"), "{error}");
    assert!(publish(&mut ann, "room:1", &json!("fine"), "i").contains("the application did not answer"));
    assert!(publish(&mut ann, "free", &json!("fine"), "i").contains("published"), "topics that ask nobody go on");
    bench.end();
}

#[test]
fn a_request_that_was_not_sent_is_sent_once_the_application_listens() {
    let place = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap();
    drop(place);
    let hooks = format!("[hooks]\nurl = \"http://{address}/\"\nsecret = \"hook.secret\"\nwithin = 30\n");
    let bench = Bench::new("", &format!("{ROOM}{hooks}"));
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    ann.text(&json!({ "type": "publish", "topic": "room:1", "data": 1, "id": "i" }).to_string()).unwrap();
    eventually("it is asked", || bench.hub.hook_counts().calls == 1);
    let app = App::at(address, |_| allow(&json!({})));
    assert!(next(&mut ann).contains("published"));
    assert_eq!((app.asked("publish").len(), bench.hub.hook_counts().failures), (1, 0));
    bench.end();
}

#[test]
fn an_application_that_hangs_holds_up_only_those_who_ask_it() {
    let (let_go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let app = App::new(move |_| {
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        None
    });
    let bench = bench(&app, "within = 3\nat-once = 2\nwaiting = 4");
    let mut sockets: Vec<Socket> = (0..20).map(|_| bench.try_connect("/", &[]).unwrap()).collect();
    for socket in &mut sockets {
        socket.text(&json!({ "type": "publish", "topic": "room:1", "data": 1, "id": "i" }).to_string()).unwrap();
    }
    let mut free = bench.try_connect("/", &[]).unwrap();
    let begin = Instant::now();
    assert!(publish(&mut free, "free", &json!(1), "i").contains("published"));
    let mut said: Vec<String> = sockets.iter_mut().map(next).collect();
    assert!(begin.elapsed() < PATIENCE);
    said.sort();
    let full = said.iter().filter(|text| text.contains("too many questions wait")).count();
    let silent = said.iter().filter(|text| text.contains("did not answer")).count();
    // Two are asked and four wait.
    assert!(full + silent == 20 && silent >= 6 && full > 0, "{said:?}");
    let counts = bench.hub.hook_counts();
    assert_eq!((counts.full, counts.failures, counts.waiting), (full as u64, silent as u64, 0));
    drop(let_go);
    bench.end();
}

#[test]
fn a_client_that_sends_without_end_waits_and_is_not_stored_without_end() {
    let (let_go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let app = App::new(move |_| {
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        allow(&json!({}))
    });
    let bench = bench(&app, "within = 30");
    let message = json!({ "type": "publish", "topic": "room:1", "data": "x".repeat(64 << 10) }).to_string();
    let bench = Arc::new(bench);
    let of_writer = bench.clone();
    // More than the sockets hold.
    let writing = std::thread::spawn(move || {
        let mut writer = of_writer.try_connect("/", &[]).unwrap();
        (0..300).for_each(|_| writer.text(&message).unwrap());
        ask(&mut writer, &json!({ "type": "publish", "topic": "room:1", "data": 1, "id": "last" }))
    });
    eventually("it is asked", || app.asked("publish").len() == 1);
    let mut other = bench.try_connect("/", &[]).unwrap();
    for _ in 0..50 {
        assert!(publish(&mut other, "free", &json!(1), "i").contains("published"));
    }
    assert!(!writing.is_finished(), "it is not read any more");
    drop(let_go);
    let said = writing.join().unwrap();
    assert!(said.contains("published") || said.contains("too many messages wait for the application"), "{said}");
    Arc::into_inner(bench).unwrap().end();
}

#[test]
fn an_answer_is_used_again_as_long_as_it_says_and_for_its_user_and_topic() {
    let app = App::new(|asked| match asked.body["topic"].as_str() {
        Some("room:no") => {
            Some(("Cache-Control: max-age=600\r\n", json!({ "allow": false, "reason": "no" }).to_string()))
        }
        Some("room:other") => Some(("Cache-Control: max-age=600\r\n", json!({ "allow": true, "data": 2 }).to_string())),
        Some("room:never") => Some(("Cache-Control: no-store, max-age=600\r\n", json!({ "allow": true }).to_string())),
        _ => Some(("Cache-Control: max-age=600\r\n", json!({ "allow": true }).to_string())),
    });
    let bench = bench(&app, "");
    let of = |user: &str| bench.connect(&token(user, 60.0, &json!({})));
    let (mut ann, mut again, mut bob, mut anyone) =
        (of("ann"), of("ann"), of("bob"), bench.try_connect("/", &[]).unwrap());
    let mut asked = 0;
    let mut expect = |socket: &mut Socket, topic: &str, more: usize, part: &str| {
        let said = publish(socket, topic, &json!(1), "i");
        assert!(said.contains(part), "{said}");
        asked += more;
        assert_eq!(app.asked("publish").len(), asked, "{topic}");
    };
    expect(&mut ann, "room:1", 1, "published");
    expect(&mut ann, "room:1", 0, "published");
    expect(&mut again, "room:1", 0, "published");
    expect(&mut ann, "room:2", 1, "published");
    expect(&mut bob, "room:1", 1, "published");
    for _ in 0..2 {
        // Nobody in particular may be anybody.
        expect(&mut anyone, "room:1", 1, "published");
        // Data in place of those of one message are not those of another.
        expect(&mut ann, "room:other", 1, "published");
        expect(&mut ann, "room:never", 1, "published");
    }
    expect(&mut ann, "room:no", 1, "no");
    expect(&mut again, "room:no", 0, "no");
    assert_eq!(bench.hub.hook_counts().cached, 3);
    // Other rules ask anew.
    bench.reload("", &format!("{ROOM}{}", app.rules("")));
    eventually("the rules are others", || {
        publish(&mut ann, "room:1", &json!(1), "i");
        app.asked("publish").len() > asked
    });
    bench.end();
}

#[test]
fn the_application_is_told_of_ends_and_members() {
    let app = App::new(|_| allow(&json!({})));
    let bench = bench(&app, "tells = [\"disconnect\"]");
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    let mut second = bench.connect(&token("ann", 60.0, &json!({})));
    let member = json!({ "type": "subscribe", "topic": "room:1", "as": "x" });
    assert!(ask(&mut ann, &member).contains("subscribed"));
    assert!(ask(&mut second, &member).contains("subscribed"));
    assert!(ask(&mut second, &json!({ "type": "unsubscribe", "topic": "room:1" })).contains("unsubscribed"));
    eventually("it is told", || app.asked("unsubscribe").len() == 1);
    drop(ann);
    eventually("it is told", || app.asked("disconnect").len() == 1);
    eventually("it is told", || app.asked("presence").len() == 2);
    let mut changes: Vec<String> = app.asked("presence").iter().map(|asked| asked.body["change"].to_string()).collect();
    changes.sort();
    assert_eq!(changes, ["\"join\"", "\"leave\""], "once for each user");
    assert_eq!(app.asked("disconnect")[0].body["user"], json!("ann"));
    bench.end();
}

#[test]
fn the_application_is_told_of_a_user_once_by_each_host_and_ends_a_connection_by_its_name() {
    let app = App::new(|_| allow(&json!({})));
    let broker = MemoryBroker::new();
    let key = "[[key]]\nname = \"app\"\nfile = \"api.key\"\nscopes = [\"users\"]\n";
    let host = || {
        let bridge = Bridge::start(broker.clone()).unwrap();
        Bench::on(Some(bridge), "", &format!("{ROOM}{key}{}", app.rules("asks = [\"connect\"]")))
    };
    let (one, two) = (host(), host());
    let mut tabs = [&one, &two, &two].map(|host| host.connect(&token("ann", 60.0, &json!({}))));
    let member = json!({ "type": "subscribe", "topic": "room:1", "as": "x" });
    tabs.iter_mut().for_each(|tab| assert!(ask(tab, &member).contains("subscribed")));
    let host_of = |name: &Value| name.as_str().unwrap().split_once('/').unwrap().0.to_owned();
    let names: Vec<Value> = app.asked("connect").iter().map(|asked| asked.body["connection"].clone()).collect();
    let hosts = [host_of(&names[0]), host_of(&names[1])];
    assert!(hosts[0] != hosts[1] && host_of(&names[2]) == hosts[1], "{names:?}");
    // Each change, and the host that tells it.
    let told = |number: usize| {
        eventually("it is told", || app.asked("presence").len() >= number);
        let told: Vec<(Value, String)> = app.asked("presence")[number - 1..]
            .iter()
            .map(|asked| (asked.body["change"].clone(), host_of(&asked.body["connection"])))
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].clone()
    };
    eventually("both have told", || app.asked("presence").len() >= 2);
    let mut joins: Vec<String> = app.asked("presence").iter().map(|asked| host_of(&asked.body["connection"])).collect();
    joins.sort();
    assert_eq!(joins, std::collections::BTreeSet::from(hosts.clone()).into_iter().collect::<Vec<_>>());
    assert!(app.asked("presence").iter().all(|asked| asked.body["change"] == "join"), "the second tab is none");
    // The application ends connections by the names that it was told, by another host.
    let [mut first, mut second, mut third] = tabs;
    let end = |name: &Value| assert_eq!(post(&one, "disconnect", &json!({ "connection": name })).0, 200);
    eventually("the hosts hear each other", || {
        end(&names[1]);
        app.asked("unsubscribe").len() == 1
    });
    until(&mut second, "4002");
    assert!(ask(&mut third, &json!({ "type": "ping" })).contains("pong"));
    end(&names[2]);
    until(&mut third, "4002");
    assert_eq!(told(3), (json!("leave"), hosts[1].clone()), "the first of its two tabs was no leave");
    end(&names[0]);
    until(&mut first, "4002");
    assert_eq!(told(4), (json!("leave"), hosts[0].clone()));
    one.end();
    two.end();
}

#[test]
fn a_user_that_is_revoked_while_the_application_thinks_does_not_come_in() {
    let (let_go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let app = App::new(move |_: &Asked| {
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        allow(&json!({ "user": "ann" }))
    });
    let key = "[[key]]\nname = \"app\"\nfile = \"api.key\"\nscopes = [\"users\"]\n";
    let hooks = app.rules("asks = [\"connect\"]\nwithin = 30");
    let bench = Arc::new(Bench::new("", &format!("{ROOM}{key}{hooks}")));
    let other = bench.clone();
    let connecting = std::thread::spawn(move || other.try_connect("/", &[]).map(drop));
    eventually("it is asked", || app.asked("connect").len() == 1);
    assert_eq!(post(&bench, "revoke", &json!({ "user": "ann", "seconds": 600 })).0, 200);
    let_go.send(()).unwrap();
    assert!(connecting.join().unwrap().unwrap_err().contains("401"));
    Arc::into_inner(bench).unwrap().end();
}

#[test]
fn an_answer_about_a_subscription_says_nothing_about_one_that_asks_for_more() {
    let app = App::new(|asked| {
        let allow = asked.body["presence"] == false && asked.body["history"] == false;
        Some(("Cache-Control: max-age=600\r\n", json!({ "allow": allow, "reason": "less" }).to_string()))
    });
    let bench = bench(&app, "");
    let mut ann = bench.connect(&token("ann", 60.0, &json!({ "room:*": ["history"] })));
    let mut asked = 0;
    for (more, number, part) in [
        (json!({}), 1, "subscribed"),
        (json!({ "presence": true }), 1, "less"),
        (json!({ "after": 0 }), 1, "less"),
        (json!({ "after": 0, "as": "ann" }), 1, "less"),
        (json!({}), 0, "subscribed"),
        (json!({ "presence": true }), 0, "less"),
    ] {
        let mut request = json!({ "type": "subscribe", "topic": "room:1" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let said = ask(&mut ann, &request);
        assert!(said.contains(part), "{request} {said}");
        asked += number;
        assert_eq!(app.asked("subscribe").len(), asked, "{request}");
    }
    bench.end();
}

#[test]
fn an_answer_that_was_under_way_at_a_disconnection_is_not_kept() {
    let (let_go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let app = App::new(move |asked: &Asked| {
        let is_first = asked.body["data"] == 1;
        if is_first {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        }
        Some(("Cache-Control: max-age=600\r\n", json!({ "allow": is_first, "reason": "banned" }).to_string()))
    });
    let key = "[[key]]\nname = \"app\"\nfile = \"api.key\"\nscopes = [\"users\"]\n";
    let bench = bench(&app, &format!("within = 30\n{key}"));
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    ann.text(&json!({ "type": "publish", "topic": "room:1", "data": 1, "id": "i" }).to_string()).unwrap();
    eventually("it is asked", || app.asked("publish").len() == 1);
    assert_eq!(post(&bench, "disconnect", &json!({ "user": "ann" })).0, 200);
    until(&mut ann, "4002");
    let_go.send(()).unwrap();
    eventually("the answer has come", || {
        bench.hub.hook_counts().times.iter().map(|(_, number)| number).sum::<u64>() == 1
    });
    let mut ann = bench.connect(&token("ann", 60.0, &json!({})));
    let said = publish(&mut ann, "room:1", &json!(2), "j");
    assert!(said.contains("banned"), "{said}");
    bench.end();
}

#[test]
fn a_token_that_is_revoked_ends_also_a_connection_whose_user_the_application_names() {
    let app = App::new(|_| allow(&json!({ "user": "ann" })));
    let key = "[[key]]\nname = \"app\"\nfile = \"api.key\"\nscopes = [\"users\"]\n";
    let bench = bench(&app, &format!("asks = [\"connect\"]\n{key}"));
    let mut ann = bench.connect(&named_token("other", "7f3a"));
    assert!(subscribe(&mut ann, "free").contains("subscribed"));
    assert_eq!(post(&bench, "connections", &json!({ "user": "ann" })).1["connections"], json!(1));
    assert_eq!(post(&bench, "revoke", &json!({ "token": "7f3a", "seconds": 600 })).0, 200);
    until(&mut ann, "4002");
    bench.end();
}

#[test]
fn clients_that_come_and_go_without_end_do_not_keep_others_from_being_asked_about() {
    let app = App::new(|asked| {
        if asked.body["type"] == "unsubscribe" {
            std::thread::sleep(Duration::from_millis(100));
        }
        allow(&json!({}))
    });
    let flap = "[[namespace]]\ntopics = \"flap\"\nanyone = [\"subscribe\"]\ntells = [\"unsubscribe\"]\n";
    let bench = bench(&app, &format!("at-once = 2\nwaiting = 10\n{flap}"));
    let (mut flapper, mut bob) = (bench.try_connect("/", &[]).unwrap(), bench.try_connect("/", &[]).unwrap());
    for number in 0..300 {
        for kind in ["subscribe", "unsubscribe"] {
            ask(&mut flapper, &json!({ "type": kind, "topic": "flap" }));
        }
        if number % 30 == 29 {
            let said = publish(&mut bob, "room:1", &json!(1), &number.to_string());
            assert!(said.contains("published"), "{said}");
        }
    }
    assert!(bench.hub.hook_counts().full > 100 && !app.asked("unsubscribe").is_empty());
    bench.end();
}
