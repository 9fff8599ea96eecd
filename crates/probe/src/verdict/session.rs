//! The open WebSocket.

use super::super::facts::{Close, Facts, Idle, Session, Sizes};
use super::judgement::{Verdict, fault, warning};

/// The size of messages below which a limit surprises applications.
const USUAL_MESSAGE: u64 = 64 << 10;

pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    let mut verdicts = facts.session.as_ref().map_or_else(Vec::new, open);
    verdicts.extend(facts.sizes.as_ref().and_then(limit));
    verdicts.extend(facts.idle.as_ref().and_then(silence));
    verdicts
}

fn open(session: &Session) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let Some(reason) = &session.lost {
        let title = format!("the connection did not stay open: {reason}");
        verdicts.push(fault(
            "session.lost",
            title,
            "look into the server's log; it may demand a message or a log-in first",
        ));
    } else if session.pings_sent > 0 && session.pings_ms.is_empty() {
        let remedy = "let the server answer pings (RFC 6455, section 5.5.2): clients that send them take it for dead";
        verdicts.push(fault("session.no-pong", "the server does not answer pings within a second", remedy));
    } else if session.key_update == Some(false) {
        let remedy =
            "update the TLS library of the server or the proxy: long connections need new keys (RFC 8446, 4.6.3)";
        verdicts.push(warning("session.key-update", "the connection does not survive new TLS keys", remedy));
    }
    if let Some(close) = session.close.as_ref().filter(|_| session.lost.is_none()) {
        verdicts.extend(closing(close));
    }
    verdicts
}

fn closing(close: &Close) -> Option<Verdict> {
    if close.code.is_none() {
        let title = if close.tcp_closed {
            "the server ends the connection without a close frame"
        } else {
            "the server does not answer a close frame"
        };
        let remedy = "let the server answer with a close frame (RFC 6455, section 5.5.1): clients report code 1006 \
                      otherwise, and reconnect as after a failure";
        return Some(warning("session.no-close-frame", title, remedy));
    }
    let remedy = "let the server close TCP first (RFC 6455, section 7.1.1): such connections pile up until a timeout";
    let title = "the server keeps the TCP connection open after the closing handshake";
    (!close.tcp_closed).then(|| warning("session.tcp-open", title, remedy))
}

fn limit(sizes: &Sizes) -> Option<Verdict> {
    let refused = sizes.refused.filter(|&size| size <= USUAL_MESSAGE)?;
    let title = format!("messages of {refused} bytes are refused");
    let remedy = "raise the limit of the server (ws: maxPayload; websockets: max_size; taut serve: --max-message), or \
                  send smaller messages";
    Some(warning("session.message-limit", title, remedy))
}

fn silence(idle: &Idle) -> Option<Verdict> {
    if let Some(error) = &idle.error {
        let title = format!("silence could not be measured: {error}");
        return Some(warning("idle.failed", title, "try again: the endpoint worked a moment before"));
    }
    let after = idle.closed_after_s?;
    let by = match idle.code {
        Some(code) => format!("with code {code}: the server itself does not accept silence"),
        None => "without a close frame: a proxy or a firewall on the way ends silent connections".to_owned(),
    };
    let title = format!("a silent connection ends after {after:.1} s, {by}");
    // Half, so that a ping that is late is not too late.
    let remedy = format!(
        "send pings at least every {:.0} s, or raise the timeout (nginx: proxy_read_timeout; HAProxy: timeout tunnel)",
        (after / 2.0).max(1.0).floor()
    );
    Some(fault("idle.closed", title, remedy))
}
