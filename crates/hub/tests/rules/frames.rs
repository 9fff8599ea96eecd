//! Versions of the protocol, and several messages in a frame.

use crate::bench::{ask, next};
use crate::helpers::{client, publish, stop, target};
use serde_json::{Value, json};
use tautline::{ClientConfig, Server, ServerHandle, Socket};
use tautline_hub::{Event, Hub, Session, Subscribe};

fn serve() -> ServerHandle {
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(1).beside_others(true);
    server.start(Hub::default().handlers()).unwrap()
}

fn socket(server: &ServerHandle) -> Socket {
    Socket::connect(target(server), ClientConfig::default(), tautline::Config::default()).unwrap()
}

/// The messages of a frame.
fn messages(text: &str) -> Vec<Value> {
    match serde_json::from_str(text).unwrap() {
        Value::Array(all) => all,
        one => vec![one],
    }
}

#[test]
fn an_unknown_version_is_refused_and_none_is_the_first() {
    let server = serve();
    for version in [json!(0), json!(3), json!(u64::MAX)] {
        let mut newer = socket(&server);
        let refused = ask(&mut newer, &json!({ "type": "hello", "version": version }));
        assert!(refused.contains("speaks versions 1 and 2") && refused.contains(r#""versions":[1,2]"#), "{refused}");
        let end = next(&mut newer);
        assert!(end.contains("4006") && end.contains("speaks versions 1 and 2"), "{end}");
    }
    let mut old = socket(&server);
    assert!(ask(&mut old, &json!({ "type": "hello" })).contains("without `version`"));
    old.text(r#"[{"type":"ping"}]"#).unwrap();
    assert!(next(&mut old).contains("no JSON object"), "arrays are those of the second version");
    assert_eq!(ask(&mut old, &json!({ "type": "hello", "version": 1 })), r#"{"type":"hello","version":1}"#);
    assert_eq!(ask(&mut old, &json!({ "type": "ping" })), r#"{"type":"pong"}"#);
    stop(server);
}

#[test]
fn a_burst_is_one_frame_for_those_who_take_it_and_single_messages_for_others() {
    let server = serve();
    let hello = json!({ "type": "hello", "version": 2 });
    let (mut many, mut single, mut publisher) = (socket(&server), socket(&server), socket(&server));
    assert_eq!(ask(&mut many, &hello), r#"{"type":"hello","version":2,"most":256}"#);
    ask(&mut publisher, &hello);
    for topic in ["room", "log:a"] {
        for socket in [&mut many, &mut single] {
            assert!(ask(socket, &json!({ "type": "subscribe", "topic": topic })).contains("subscribed"));
        }
        let burst: Vec<Value> =
            (0..200).map(|n| json!({ "type": "publish", "topic": topic, "data": [n, "a\n\"[]"] })).collect();
        publisher.text(&Value::from(burst).to_string()).unwrap();
        let (mut got, mut frames) = (Vec::new(), 0);
        while got.len() < 200 {
            got.extend(messages(&next(&mut many)));
            frames += 1;
        }
        // The log of a connection has one message at a time, so some leave alone.
        assert!(frames <= if topic == "room" { 8 } else { 200 }, "{frames} frames for {topic}");
        for (n, message) in got.iter().enumerate() {
            assert_eq!((&message["type"], &message["data"][0]), (&json!("message"), &json!(n)));
            let alone: Value = serde_json::from_str(&next(&mut single)).unwrap();
            assert_eq!(alone, *message, "the same messages, each in a frame");
        }
    }
    stop(server);
}

#[test]
fn history_comes_in_frames_of_many_messages() {
    let server = serve();
    let publisher = client(&server);
    for n in 0..1_000 {
        publish(&publisher, "log:a", None, &n.to_string());
    }
    let mut many = socket(&server);
    ask(&mut many, &json!({ "type": "hello", "version": 2 }));
    let answer = ask(&mut many, &json!({ "type": "subscribe", "topic": "log:a", "after": 0 }));
    assert!(answer.contains("subscribed"), "{answer}");
    let (mut got, mut frames) = (Vec::new(), 0);
    while got.len() < 1_000 {
        let text = next(&mut many);
        assert!(text.len() < 80 << 10, "{}", text.len());
        got.extend(messages(&text));
        frames += 1;
    }
    assert!(frames < 20, "{frames}");
    assert!(got.iter().enumerate().all(|(n, message)| message["data"] == json!(n)));
    stop(server);
}

#[test]
fn a_frame_of_a_client_is_bounded_and_each_message_is_answered() {
    let server = serve();
    let mut socket = socket(&server);
    ask(&mut socket, &json!({ "type": "hello", "version": 2 }));
    let ping = json!({ "type": "ping", "id": "i" });
    socket.text(&Value::from(vec![ping.clone(); 256]).to_string()).unwrap();
    let mut pongs = 0;
    while pongs < 256 {
        pongs += messages(&next(&mut socket)).iter().filter(|message| message["type"] == json!("pong")).count();
    }
    for wrong in [Value::from(vec![ping.clone(); 257]).to_string(), "[{\"type\":\"ping\"}".to_owned()] {
        socket.text(&wrong).unwrap();
        assert!(next(&mut socket).contains("no JSON array of at most 256 messages"));
    }
    socket.text(&json!([7, ping, []]).to_string()).unwrap();
    let answers: Vec<String> = (0..3).map(|_| next(&mut socket)).collect();
    assert!(answers[0].contains("no JSON object") && answers[1].contains("pong"), "{answers:?}");
    assert!(answers[2].contains("no JSON object"), "{answers:?}");
    stop(server);
}

#[test]
fn a_message_is_an_object_and_no_array_of_its_members_values() {
    let server = serve();
    let mut socket = socket(&server);
    let ping = r#"["ping"]"#;
    socket.text(ping).unwrap();
    assert!(next(&mut socket).contains("no JSON object"), "a frame of the first version");
    ask(&mut socket, &json!({ "type": "hello", "version": 2 }));
    socket.text(&format!("[{ping},{{\"type\":\"ping\"}}]")).unwrap();
    let answers = [next(&mut socket), next(&mut socket)];
    assert!(answers[0].contains("no JSON object") && answers[1].contains("pong"), "{answers:?}");
    stop(server);
}

/// Lists that a client asks for at a time, and the members of each: more bytes than may wait for a slow reader.
const LISTS: usize = 250;
const MEMBERS: usize = 200;

#[test]
fn a_client_that_asks_for_many_lists_reads_them_one_after_the_other() {
    let server = serve();
    let member = |number: usize| {
        let mut member = socket(&server);
        let name = format!("{number:0250}");
        let join = json!({ "type": "subscribe", "topic": "room", "as": name });
        assert!(ask(&mut member, &join).contains("subscribed"));
        member
    };
    let _members: Vec<Socket> = (0..MEMBERS).map(member).collect();
    let list = json!({ "type": "subscribe", "topic": "room", "presence": true });
    let publish = |id: &str| json!({ "type": "publish", "topic": "log:a", "data": 1, "id": id });
    for version in [1, 2] {
        let mut reader = socket(&server);
        ask(&mut reader, &json!({ "type": "hello", "version": version }));
        let mut asks = vec![list.clone(); LISTS];
        asks.push(publish("first"));
        match version {
            1 => asks.iter().for_each(|ask| reader.text(&ask.to_string()).unwrap()),
            _ => reader.text(&Value::from(asks).to_string()).unwrap(),
        }
        // Those of later frames come behind them, too.
        reader.text(&publish("second").to_string()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let (mut lists, mut members, mut stored) = (0, 0, Vec::new());
        while stored.len() < 2 {
            for message in messages(&next(&mut reader)) {
                match message["type"].as_str().unwrap() {
                    "subscribed" => lists += 1,
                    "members" => members += message["members"].as_array().unwrap().len(),
                    "published" => stored.push(message["id"].clone()),
                    other => assert_eq!(other, "members", "{message}"),
                }
            }
        }
        assert_eq!((lists, members), (LISTS, LISTS * MEMBERS), "version {version}");
        assert_eq!(stored, [json!("first"), json!("second")]);
        assert_eq!(ask(&mut reader, &json!({ "type": "ping" })), r#"{"type":"pong"}"#);
    }
    stop(server);
}

#[test]
fn a_session_says_its_version_and_sends_arrays_to_those_who_take_them() {
    let mut session = Session::new().with_arrays();
    session.subscribe("log:a", Subscribe::default().with_count());
    session.opened();
    assert_eq!(session.next_frame().unwrap(), r#"{"type":"hello","version":2}"#);
    assert_eq!(session.next_frame().unwrap(), r#"{"type":"subscribe","topic":"log:a","count":true}"#);
    assert_eq!(session.received_all(r#"{"type":"hello","version":2,"most":256}"#), []);
    let publish = |session: &mut Session, number: usize| {
        (0..number).for_each(|n| session.publish_once("a", None, &n.to_string()).unwrap());
        std::iter::from_fn(|| session.next_frame()).collect::<Vec<_>>()
    };
    let frames = publish(&mut session, 100);
    assert_eq!(frames.iter().map(|frame| messages(frame).len()).collect::<Vec<_>>(), [64, 36]);
    assert_eq!(publish(&mut session, 1), [r#"{"type":"publish","topic":"a","data":0}"#]);
    let message = |n: u64| format!(r#"{{"type":"message","topic":"log:a","offset":{n},"data":{n}}}"#);
    let events = session.received_all(&format!("[{},{},{}]", message(1), message(2), message(2)));
    assert_eq!(events.len(), 2, "one is known");
    let counted = session.received_all(r#"[{"type":"count","topic":"log:a","number":7}]"#);
    assert_eq!(counted, [Event::Counted("log:a".into(), 7)]);
    // A hub of before refuses the `hello`, and gets one message in each frame.
    session.closed();
    session.opened();
    let old = r#"{"type":"error","reason":"this type of message is not known: write subscribe or publish"}"#;
    assert_eq!(session.received_all(old), []);
    while session.next_frame().is_some() {}
    assert_eq!(publish(&mut session, 3).len(), 3);
}
