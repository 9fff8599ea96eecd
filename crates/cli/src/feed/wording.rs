//! Notices in words, and as events for programs.

use crate::failure::printable;
use serde_json::{Value, json};
use tautline_feed::{Channel, LinkId, Notice, SymbolId};

/// A notice, ready to be told.
#[derive(Debug)]
pub(super) struct Told {
    /// The name of the event.
    pub(super) kind: &'static str,
    pub(super) symbol: Option<SymbolId>,
    /// One line without control characters.
    pub(super) text: String,
    /// The fields of the event beside its name, its time and its symbol.
    pub(super) fields: Value,
}

impl Told {
    fn symbol(kind: &'static str, symbol: SymbolId, text: String, fields: Value) -> Self {
        Self { kind, symbol: Some(symbol), text, fields }
    }

    /// A notice about a connection, whose number is added.
    pub(super) fn link(kind: &'static str, link: LinkId, text: &str, mut fields: Value) -> Self {
        let link = link.number();
        fields["connection"] = json!(link);
        Self { kind, symbol: None, text: format!("connection {link}{text}"), fields }
    }
}

/// Channels as the arguments name them.
const fn name_of(channel: Channel) -> &'static str {
    match channel {
        Channel::Trades => "trade",
        Channel::Book => "depth",
    }
}

/// The words for a notice. Second copies have none: they are counted, since there is one for each message.
pub(super) fn words(notice: &Notice<'_>) -> Option<Told> {
    Some(match *notice {
        Notice::Second { .. } => return None,
        Notice::Rebuilding { symbol, fault } => {
            let reason = fault.to_string();
            Told::symbol("rebuilding", symbol, format!("the book is rebuilt: {reason}"), json!({"reason": reason}))
        }
        Notice::Live { symbol } => Told::symbol("live", symbol, "the book is up to date".to_owned(), json!({})),
        Notice::CopyRebuilding { symbol, link, fault } => {
            let (link, reason) = (link.number(), fault.to_string());
            let text = format!("the copy of the book on connection {link} is rebuilt: {reason}");
            Told::symbol("copy rebuilding", symbol, text, json!({"connection": link, "reason": reason}))
        }
        Notice::MissingTrades { symbol, ref numbers } => {
            let (first, last) = (numbers.start(), numbers.end());
            let text = format!("trades {first} to {last} are missing");
            Told::symbol("gap", symbol, text, json!({"first": first, "last": last}))
        }
        Notice::SnapshotFailed { symbol, reason } => {
            let text = format!("no snapshot: {}", printable(reason));
            Told::symbol("no snapshot", symbol, text, json!({"reason": reason}))
        }
        Notice::Unrecorded { events, error } => {
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            let text = format!("the recording lacks {events} events{error}");
            let fields = json!({"events": events, "reason": text});
            Told { kind: "unrecorded", symbol: None, text, fields }
        }
        Notice::Stale { .. } | Notice::Unconfirmed { .. } | Notice::Rejected { .. } => return of_stream(notice),
        ref other => return of_link(other),
    })
}

/// Notices about subscriptions.
fn of_stream(notice: &Notice<'_>) -> Option<Told> {
    Some(match *notice {
        Notice::Stale { symbol, channel, link, silent } => {
            let (link, channel, silent) = (link.number(), name_of(channel), silent.as_secs_f64());
            let text = format!("{channel} is silent for {silent:.1} s on connection {link}, and is subscribed again");
            Told::symbol("stale", symbol, text, json!({"channel": channel, "connection": link, "silent": silent}))
        }
        Notice::Unconfirmed { symbol, channel, link } => {
            let (link, channel) = (link.number(), name_of(channel));
            let text = format!("{channel} was not confirmed in time on connection {link}, and is requested again");
            Told::symbol("unconfirmed", symbol, text, json!({"channel": channel, "connection": link}))
        }
        Notice::Rejected { symbol, link, reason } => {
            let text = format!(": a subscription was rejected: {}", printable(reason));
            Told { symbol, ..Told::link("rejected", link, &text, json!({"reason": reason})) }
        }
        _ => return None,
    })
}

/// Notices about connections.
fn of_link(notice: &Notice<'_>) -> Option<Told> {
    Some(match *notice {
        Notice::MissingMessages { link, expected, got } => {
            let text = format!(": message {expected} had to follow, and {got} came");
            Told::link("missing messages", link, &text, json!({"expected": expected, "got": got}))
        }
        Notice::Undecodable { link, error, message } => {
            let start = String::from_utf8_lossy(&message[..message.len().min(200)]);
            let text = format!(": {error}: {}", printable(&start));
            Told::link("undecodable", link, &text, json!({"reason": error.to_string(), "message": start}))
        }
        Notice::Connected { link } => Told::link("open", link, " is open", json!({})),
        Notice::Disconnected { link } => Told::link("close", link, " has ended", json!({})),
        Notice::Silent { link } => Told::link("silent", link, " is silent, and is replaced", json!({})),
        Notice::Replacing { link } => {
            Told::link("replacing", link, " goes on until its successor delivers all streams", json!({}))
        }
        Notice::Replaced { link, by } => {
            let by = by.number();
            Told::link("replaced", link, &format!(" was replaced by connection {by}"), json!({"by": by}))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::words;
    use serde_json::json;
    use std::time::Duration;
    use tautline_feed::{Action, Channel, DecodeError, Fault, Feed, FeedConfig, Kraken, Listener, Notice, Time};

    struct Nothing;

    impl Listener for Nothing {}

    #[test]
    fn notices_have_words_for_people_and_fields_for_programs() {
        let mut feed = Feed::new(Kraken::new(), FeedConfig::default());
        let symbol = feed.declare("BTC/USD", None);
        feed.subscribe(symbol, Channel::Book, Time::ZERO);
        feed.handle_timeout(Time::ZERO, &mut Nothing);
        let link = match feed.poll_action() {
            Some(Action::Connect { link, .. }) => link,
            other => panic!("{other:?}"),
        };
        let (channel, silent, reason) = (Channel::Book, Duration::from_millis(30_040), "no\u{1b}[2J");
        let error = DecodeError::Field("checksum");
        for (notice, kind, fields) in [
            (
                Notice::CopyRebuilding { symbol, link, fault: Fault::Lost },
                "copy rebuilding",
                json!({"connection": 1, "reason": "its connection was lost"}),
            ),
            (Notice::MissingTrades { symbol, numbers: 4..=6 }, "gap", json!({"first": 4, "last": 6})),
            (
                Notice::Stale { symbol, channel, link, silent },
                "stale",
                json!({"channel": "depth", "connection": 1, "silent": 30.04}),
            ),
            (
                Notice::Unconfirmed { symbol, channel: Channel::Trades, link },
                "unconfirmed",
                json!({"channel": "trade", "connection": 1}),
            ),
            (
                Notice::Rejected { symbol: Some(symbol), link, reason },
                "rejected",
                json!({"connection": 1, "reason": reason}),
            ),
            (
                Notice::MissingMessages { link, expected: 7, got: 9 },
                "missing messages",
                json!({"connection": 1, "expected": 7, "got": 9}),
            ),
            (
                Notice::Undecodable { link, error, message: b"\xff\x1b" },
                "undecodable",
                json!({"connection": 1, "reason": error.to_string(), "message": "\u{fffd}\u{1b}"}),
            ),
            (Notice::Silent { link }, "silent", json!({"connection": 1})),
            (Notice::Replacing { link }, "replacing", json!({"connection": 1})),
            (Notice::Replaced { link, by: link }, "replaced", json!({"connection": 1, "by": 1})),
        ] {
            let told = words(&notice).unwrap();
            assert_eq!((told.kind, &told.fields), (kind, &fields), "{notice:?}");
            let is_plain = !told.text.contains(['{', '}', '\u{1b}']) || told.text.contains("\\u{1b}");
            assert!(is_plain && !told.text.contains("Link"), "{}", told.text);
        }
        assert!(words(&Notice::Second { symbol, channel, first: link, second: link, behind: silent }).is_none());
    }
}
