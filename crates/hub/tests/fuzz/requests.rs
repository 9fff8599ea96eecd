//! Lines of three clients to a hub with small bounds: requests, valid or not, and clients that leave and come back.
//!
//! A line begins with the client's number and `t` for a text, `b` for binary data, `d` for an end without a close frame, `c`
//! for a close, or `a` for a time without events. The hub's messages are valid, the offsets of a subscription grow, and
//! afterwards the hub serves a client as if nothing had been.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tautline::CloseCode;
use tautline::testing::{App, Client, Event};
use tautline_hub::{Config, Hub, HubHandler, MemoryLog, Retention};

/// Lines of an input that count.
const LINES: usize = 64;

/// A client, and its last offset of each topic.
struct Member {
    client: Client,
    is_over: bool,
    offsets: HashMap<String, u64>,
}

impl Member {
    fn connect(app: &App<HubHandler>) -> Self {
        let client = app.connect("/");
        assert_eq!(client.next(), Some(Event::Open(None)));
        Self { client, is_over: false, offsets: HashMap::new() }
    }

    /// Reads what the hub has sent. Returns the last message.
    fn read(&mut self) -> Option<Value> {
        let mut last = None;
        while let Some(event) = self.client.next() {
            match event {
                Event::Text(text) => last = Some(self.take(&text)),
                Event::Closed(..) => self.is_over = true,
                other => panic!("{other:?}"),
            }
        }
        last
    }

    fn take(&mut self, text: &str) -> Value {
        let message: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let topic = || message["topic"].as_str().expect("a topic").to_owned();
        match (message["type"].as_str().expect("a type"), message["offset"].as_u64()) {
            ("message", Some(offset)) => {
                let last = self.offsets.insert(topic(), offset);
                assert!(last.is_none_or(|last| last < offset), "{offset} after {last:?} of {text}");
            }
            // A new subscription may begin earlier than the last one ended.
            ("subscribed" | "late" | "resync", _) => drop(self.offsets.remove(&topic())),
            ("message" | "published" | "members" | "join" | "leave" | "unsubscribed" | "error", _) => {}
            _ => panic!("{text}"),
        }
        message
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut config = Config::default();
    (config.max_name, config.max_topics, config.max_subscriptions, config.max_members) = (12, 32, 4, 2);
    (config.max_unanswered, config.max_unanswered_bytes, config.max_lag) = (3, 64, 4096);
    let mut retention = Retention::default();
    (retention.entries, retention.bytes, retention.ids) = (4, 4096, 2);
    let hub = Hub::with_log(config, Arc::new(MemoryLog::new(retention)), None);
    let app = App::new(hub.handler()).expect("random numbers");
    let mut members = [(); 3].map(|()| Member::connect(&app));
    for line in data.split(|byte| *byte == b'\n').take(LINES) {
        let [number @ b'0'..=b'2', action, content @ ..] = line else { continue };
        let member = &mut members[usize::from(number - b'0')];
        match (action, std::str::from_utf8(content)) {
            (b't', Ok(text)) => member.client.text(text),
            (b'b', _) => member.client.binary(content),
            (b'd', _) => {
                member.client.disconnect();
                member.is_over = true;
            }
            (b'c', _) => member.client.close(CloseCode::NORMAL, ""),
            (b'a', _) => app.advance(Duration::from_secs(20)),
            _ => {}
        }
        for member in &mut members {
            member.read();
            if member.is_over {
                *member = Member::connect(&app);
            }
        }
    }
    for member in &members {
        member.client.disconnect();
    }
    app.advance(Duration::from_secs(60));
    let mut last = Member::connect(&app);
    last.client.text(r#"{"type":"subscribe","topic":"log:end"}"#);
    let subscribed = last.read().expect("an answer");
    assert_eq!(subscribed["type"], "subscribed", "{subscribed}");
    last.client.text(r#"{"type":"publish","topic":"log:end","data":[1],"id":"end"}"#);
    let (texts, mut types) = (last.client.texts(), Vec::new());
    texts.iter().for_each(|text| types.push(last.take(text)["type"].as_str().map(str::to_owned)));
    types.sort();
    assert_eq!(types, ["message", "published"].map(|name| Some(name.to_owned())), "{texts:?}");
}
