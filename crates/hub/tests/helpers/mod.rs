//! A client's steps in the tests of hubs, also of those on NATS.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

use std::time::Duration;
use tautline::{ClientConfig, CloseCode, ServerHandle, Target};
use tautline_hub::{Client, Event, Received, Subscribe};

/// Longest wait. A test that waits longer fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn stop(server: ServerHandle) {
    server.drain(CloseCode::SERVICE_RESTART, "", Duration::from_secs(5));
    server.join().unwrap();
}

pub(crate) fn target(server: &ServerHandle) -> Target {
    Target::new(&format!("ws://{}/", server.addresses()[0])).unwrap()
}

pub(crate) fn client(server: &ServerHandle) -> Client {
    Client::connect(target(server), ClientConfig::default()).unwrap()
}

/// The next event that `pick` takes.
pub(crate) fn wait<T>(client: &Client, mut pick: impl FnMut(Event) -> Option<T>) -> T {
    loop {
        if let Some(picked) = pick(client.next_within(PATIENCE).unwrap()) {
            return picked;
        }
    }
}

pub(crate) fn message(client: &Client) -> Received {
    wait(client, |event| match event {
        Event::Message(message) => Some(message),
        Event::Refused(.., reason) => panic!("{reason}"),
        Event::Late(topic, offset) => panic!("{topic} is late: {offset}"),
        _ => None,
    })
}

pub(crate) fn subscribe(client: &Client, topic: &str, how: Subscribe) {
    client.subscribe(topic, how).unwrap();
    wait(client, |event| matches!(event, Event::Subscribed(..) | Event::Late(..)).then_some(()));
}

pub(crate) fn publish(client: &Client, topic: &str, key: Option<&str>, data: &str) -> Option<u64> {
    let id = client.publish(topic, key, data).unwrap();
    wait(client, |event| match event {
        Event::Published(other, at) if other == id => Some(at.map(|at| at.offset)),
        Event::Refused(.., reason) => panic!("{reason}"),
        _ => None,
    })
}
