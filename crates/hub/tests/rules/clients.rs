//! The client: a hub that goes away, tokens that expire, and connections on which nobody answers.

use crate::bench::{Bench, token};
use crate::helpers::{PATIENCE, message, publish, stop, subscribe, target, wait};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tautline::{Address, ClientConfig, Conn, Handler, Message, Server, ServerHandle, Target};
use tautline_hub::{Client, ClientError, ClientOptions, Event, Hub, Session, Subscribe};

const RULES: &str = "
[[namespace]]
topics = \"*\"
users = [\"subscribe\", \"publish\", \"history\"]
kind = \"history\"
";

fn serve(port: u16) -> ServerHandle {
    let server = Server::plain().listen(format!("127.0.0.1:{port}").parse().unwrap()).beside_others(true);
    server.start(Hub::default().handlers()).unwrap()
}

fn connect(target: Target, options: ClientOptions) -> Client {
    Client::connect_with(target, ClientConfig::default(), options).unwrap()
}

fn disconnected(client: &Client) -> u16 {
    wait(client, |event| if let Event::Disconnected(code, _) = event { Some(code) } else { None })
}

#[test]
fn messages_wait_for_a_hub_that_is_away_and_are_bounded() {
    let server = serve(0);
    let Address::Tcp(address) = server.addresses()[0].clone() else { panic!("no port") };
    let client = connect(target(&server), ClientOptions::default().max_unanswered(3));
    publish(&client, "log:a", None, "0");
    subscribe(&client, "log:a", Subscribe::default().after(0, None));
    assert_eq!(message(&client).data, "0");
    stop(server);
    assert_eq!(disconnected(&client), 1012);
    assert!(matches!(client.publish_once("log:a", None, "1"), Err(ClientError::Offline)));
    let ids: Vec<String> = (1..=3).map(|n| client.publish("log:a", None, &n.to_string()).unwrap()).collect();
    assert!(matches!(client.publish("log:a", None, "4"), Err(ClientError::Busy)));
    assert!(matches!(client.publish("log:a", None, "{"), Err(ClientError::NotJson)));
    let server = serve(address.port());
    // The log was of the hub that is gone, and the client is told so.
    let (mut published, mut got, mut is_late) = (Vec::new(), Vec::new(), false);
    while published.len() < 3 || got.len() < 3 {
        match client.next_within(PATIENCE).unwrap() {
            Event::Published(id, Some(at)) => published.push((id, at.offset)),
            Event::Message(message) => got.push(message.data),
            Event::Late(..) => is_late = true,
            Event::Refused(.., reason) => panic!("{reason}"),
            _ => {}
        }
    }
    assert_eq!((got, is_late), (vec!["1".to_owned(), "2".to_owned(), "3".to_owned()], true));
    assert_eq!(published.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>(), ids);
    assert!(published.is_sorted_by(|(_, one), (_, next)| one < next), "{published:?}");
    stop(server);
}

#[test]
fn a_message_of_an_earlier_life_is_stored_once() {
    let server = serve(0);
    let stored = |data: &str| {
        let client = connect(target(&server), ClientOptions::default());
        client.publish_with_id("order-7", "log:a", None, data).unwrap();
        assert!(matches!(client.publish_with_id("order-7", "log:a", None, data), Err(ClientError::Busy)));
        wait(&client, |event| match event {
            Event::Published(id, at) if id == "order-7" => at,
            Event::Refused(.., reason) => panic!("{reason}"),
            _ => None,
        })
    };
    assert_eq!(stored("1"), stored("1"));
    let client = connect(target(&server), ClientOptions::default());
    publish(&client, "log:a", None, "2");
    client.subscribe("log:a", Subscribe::default().after(0, None)).unwrap();
    assert_eq!([message(&client).data, message(&client).data], ["1", "2"]);
    let (offset, epoch) = client.position("log:a").unwrap();
    drop(client);
    let client = connect(target(&server), ClientOptions::default());
    client.subscribe("log:a", Subscribe::default().after(offset, epoch)).unwrap();
    client.publish("log:a", None, "3").unwrap();
    assert_eq!(message(&client).data, "3");
    drop(client);
    stop(server);
}

#[test]
fn a_function_is_asked_for_tokens_by_the_hub_and_at_each_connection() {
    let bench = Bench::new("required = true", RULES);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let options = ClientOptions::default().token(move || match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(token("ann", 3.0, &json!({}))),
        // The hub asks in the middle of a short life, and closes the connection at its end.
        1 => Err("the application is away".into()),
        _ => Ok(token("ann", 600.0, &json!({}))),
    });
    let client = connect(target(&bench.server), options);
    subscribe(&client, "a", Subscribe::default());
    client.publish("a", None, "1").unwrap();
    assert_eq!(message(&client).data, "1");
    assert_eq!(disconnected(&client), 4001);
    client.publish("a", None, "2").unwrap();
    assert_eq!((message(&client).data.as_str(), asked.load(Ordering::Relaxed)), ("2", 3));
    drop(client);
    bench.end();
}

#[test]
fn messages_that_come_while_there_is_no_token_follow_once_there_is_one() {
    let bench = Bench::new("required = true", RULES);
    let (asked, has_token) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
    let has_one = has_token.clone();
    let options = ClientOptions::default().token(move || match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Ok(token("ann", 2.0, &json!({}))),
        _ if has_one.load(Ordering::Relaxed) => Ok(token("ann", 600.0, &json!({}))),
        _ => Err("the application is away".into()),
    });
    let client = connect(target(&bench.server), options);
    let others = ClientOptions::default().token(|| Ok(token("bob", 600.0, &json!({}))));
    let publisher = connect(target(&bench.server), others);
    subscribe(&client, "a", Subscribe::default());
    publish(&publisher, "a", None, "1");
    assert_eq!(message(&client).data, "1");
    assert_eq!(disconnected(&client), 4001);
    (2..6).for_each(|n| _ = publish(&publisher, "a", None, &n.to_string()));
    has_token.store(true, Ordering::Relaxed);
    // A client that has lost its place would be late, which `message` does not take.
    assert_eq!([(); 4].map(|()| message(&client).data), ["2", "3", "4", "5"]);
    drop((client, publisher));
    bench.end();
}

#[test]
fn a_client_whose_token_is_not_accepted_wants_another() {
    let bench = Bench::new("required = true", RULES);
    let client = Client::connect(target(&bench.server), ClientConfig::default()).unwrap();
    client.set_token("a.b.c").unwrap();
    client.subscribe("a", Subscribe::default()).unwrap();
    assert_eq!(disconnected(&client), 4004);
    wait(&client, |event| (event == Event::TokenWanted(0)).then_some(()));
    client.set_token(token("ann", 600.0, &json!({}))).unwrap();
    wait(&client, |event| matches!(event, Event::Subscribed(..)).then_some(()));
    drop(client);
    bench.end();
}

/// A hub that answers nothing.
struct Silent(Arc<AtomicU32>);

impl Handler for Silent {
    type State = ();

    fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
        if message.text() == Some(r#"{"type":"ping"}"#) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_silent_hub_is_asked_and_then_given_up() {
    let pings = Arc::new(AtomicU32::new(0));
    let counted = pings.clone();
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).beside_others(true);
    let server = server.start(move |_| Silent(counted.clone())).unwrap();
    let brief = Duration::from_millis(100);
    let client = connect(target(&server), ClientOptions::default().ping_after(brief).pong_within(brief));
    for _ in 0..2 {
        wait(&client, |event| (event == Event::Connected).then_some(()));
    }
    assert_eq!(pings.load(Ordering::Relaxed), 1);
    drop(client);
    stop(server);
}

#[test]
fn a_session_passes_messages_of_the_application() {
    let direct = Session::new().received(r#"{"type":"direct","data":[7]}"#);
    assert_eq!(direct, Some(Event::Direct("[7]".to_owned())));
}
