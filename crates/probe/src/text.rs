//! Facts and verdicts as text.

use super::facts::{
    Answer, Certified, Chain, Facts, Http, Http2, Offer, Resumption, Scan, Session, Staple, Status, Tls, Trust,
    WithoutName, quantile,
};
use super::verdict::{Level, Verdict};
use crate::layout::Layout;

/// The whole report.
pub fn report(facts: &Facts, verdicts: &[Verdict], width: usize) -> String {
    let mut out = Layout::new(width);
    out.line(&facts.url);
    for from in &facts.redirected_from {
        out.row("redirected", &format!("from {from}"));
    }
    addresses(&mut out, facts);
    if let Some(tls) = &facts.tls {
        out.heading("TLS");
        negotiated(&mut out, tls);
    }
    facts.scan.iter().for_each(|scan| scanned(&mut out, scan));
    facts.resumption.iter().for_each(|one| resumption(&mut out, one));
    if let Some(found) = &facts.chain {
        out.heading("Certificates");
        chain(&mut out, found);
    }
    if let Some(found) = &facts.http2 {
        out.heading("HTTP/2");
        http2(&mut out, found);
    }
    if let Some(answer) = &facts.http {
        out.heading("HTTP");
        http(&mut out, answer, facts.websocket);
    }
    if let Some(open) = &facts.session {
        out.heading("WebSocket");
        session(&mut out, open);
        sizes_and_silence(&mut out, facts);
    }
    out.heading("Verdicts");
    for verdict in verdicts {
        let label = match verdict.level {
            Level::Fault => "FAULT",
            Level::Warning => "warning",
            Level::Note => "note",
        };
        out.row(label, &format!("{} ({})", verdict.title, verdict.id));
        out.row("", &format!("→ {}", verdict.remedy));
    }
    if verdicts.is_empty() {
        out.row("good", "nothing is wrong with what was looked at");
    }
    out.into_text()
}

fn ms(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0} ms"),
        10.0.. => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

fn addresses(out: &mut Layout, facts: &Facts) {
    out.heading("Connection");
    if let Some(proxy) = &facts.proxy {
        out.row("proxy", proxy);
    }
    if let Some(dns) = &facts.dns {
        out.row("DNS", &dns.error.clone().unwrap_or_else(|| ms(dns.ms)));
    }
    for address in &facts.addresses {
        let mut parts = vec![address.address.clone()];
        parts.extend(address.tcp_ms.map(|time| format!("TCP {}", ms(time))));
        parts.extend(address.tls_ms.map(|time| format!("TLS {}", ms(time))));
        parts.extend(address.trouble.as_ref().map(|trouble| trouble.text.clone()));
        out.row("address", &parts.join(", "));
    }
}

/// The negotiated values of a connection.
pub(crate) fn negotiated(out: &mut Layout, tls: &Tls) {
    out.row("negotiated", &format!("{}, {}, {}", tls.version, tls.suite, tls.group));
    out.row("ALPN", tls.alpn.as_deref().unwrap_or("none"));
}

fn scanned(out: &mut Layout, scan: &Scan) {
    out.row("versions", &offers(&scan.versions));
    out.row("suites", &offers(&scan.suites));
    out.row("groups", &offers(&scan.groups));
    let alpn = scan.alpn_with_h2.as_deref().unwrap_or("none");
    out.row("ALPN with h2", alpn);
    out.row(
        "without SNI",
        match scan.without_name {
            Some(WithoutName::SameCertificate) => "the same certificate",
            Some(WithoutName::OtherCertificate) => "another certificate",
            Some(WithoutName::Refused) => "refused",
            None => "unclear",
        },
    );
}

/// The offers that were taken, then those that were refused, then the others.
fn offers(offers: &[Offer]) -> String {
    let named = |wanted: fn(&Answer) -> bool| -> String {
        let names = offers.iter().filter(|offer| wanted(&offer.answer)).map(|offer| offer.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    for (word, names) in [
        ("taken:", named(|answer| *answer == Answer::Taken)),
        ("refused:", named(|answer| *answer == Answer::Refused)),
        ("unclear:", named(|answer| matches!(answer, Answer::Unclear(_)))),
    ] {
        if !names.is_empty() {
            parts.push(format!("{word} {names}"));
        }
    }
    parts.join("; ")
}

fn resumption(out: &mut Layout, found: &Resumption) {
    let again = match found.resumes {
        Some(true) => "a second connection resumes",
        Some(false) => "a second connection does not resume",
        None => "no second connection could resume",
    };
    let other = found.other_address.as_ref().map_or_else(String::new, |other| {
        format!(", {} {}", other.address, if other.resumes { "resumes too" } else { "does not" })
    });
    out.row("sessions", &format!("{} offered, {again}{other}", found.tickets));
    let times = [("full", &found.full_ms), ("resumed", &found.resumed_ms)];
    let times = times.iter().filter_map(|(name, times)| Some(format!("{name} {}", ms(quantile(times, 0.5)?))));
    out.row("handshakes", &times.collect::<Vec<_>>().join(", "));
}

/// The certificates of a chain.
pub(crate) fn chain(out: &mut Layout, chain: &Chain) {
    for (index, one) in chain.certificates.iter().enumerate() {
        let label = (index + 1).to_string();
        if one.malformed {
            out.row(&label, "it cannot be read");
            continue;
        }
        let signed = format!("{}, signed by {} ({})", one.key, one.issuer, one.signature);
        out.row(&label, &one.subject);
        if !one.names.is_empty() {
            out.row("", &format!("names {}", one.names.join(" ")));
        }
        out.row("", &signed);
        out.row("", &format!("valid {} ({} days left)", one.valid, one.days_left));
    }
    let trust = match chain.trust {
        Trust::Trusted => "yes, and for this name",
        Trust::Untrusted => chain.error.as_deref().unwrap_or("no"),
        Trust::NotVerified => "not verified",
    };
    out.row("trusted", trust);
    if let Some(missing) = &chain.missing {
        out.row("missing", missing);
    }
    if let Some(staple) = &chain.ocsp {
        stapled(out, staple);
    }
}

fn stapled(out: &mut Layout, staple: &Staple) {
    let status = match &staple.status {
        Status::Good => "good".to_owned(),
        Status::Revoked => {
            let reason = staple.reason.map_or_else(String::new, |reason| format!(", {reason}"));
            format!("revoked on {}{reason}", staple.revoked.as_deref().unwrap_or("an unknown date"))
        }
        Status::Unknown => "unknown to the responder".to_owned(),
        Status::OtherCertificate => "about another certificate".to_owned(),
        Status::Refused(why) => format!("an error of the responder: {why}"),
        Status::Malformed => "no OCSP response".to_owned(),
    };
    out.row("OCSP", &format!("{status} ({} bytes are stapled)", staple.bytes));
    if matches!(staple.status, Status::Good | Status::Revoked | Status::Unknown) {
        out.row("", &format!("valid {}", staple.valid));
        let certified = match &staple.certified {
            Certified::ByIssuer => "signed by the issuer".to_owned(),
            Certified::ByResponder(name) => format!("signed by the issuer's responder {name}"),
            Certified::Wrong(why) => format!("wrong signature: {why}"),
            Certified::NotVerified(why) => format!("signature not verified: {why}"),
        };
        out.row("", &certified);
    }
}

fn http2(out: &mut Layout, found: &Http2) {
    out.row("offered", if found.offered { "yes" } else { "no" });
    let limits = [
        ("streams at once", found.max_streams),
        ("window", found.window),
        ("frame", found.max_frame),
        ("fields", found.max_fields),
    ];
    let limits = limits.iter().filter_map(|(name, limit)| Some(format!("{name} {}", (*limit)?)));
    let limits = limits.collect::<Vec<_>>().join(", ");
    if !limits.is_empty() {
        out.row("limits", &limits);
    }
    match found.websockets {
        Some(true) => out.row("WebSockets", "announced (ENABLE_CONNECT_PROTOCOL)"),
        Some(false) => out.row("WebSockets", "not announced"),
        None => {}
    }
    if let Some((status, time)) = found.status.zip(found.ms) {
        out.row("answer", &format!("{status} after {}", ms(time)));
    }
    if let Some(time) = found.pong_ms {
        out.row("ping", &format!("answered after {}", ms(time)));
    }
    if let Some(error) = &found.error {
        out.row("problem", error);
    }
}

fn http(out: &mut Layout, http: &Http, websocket: bool) {
    if let Some(status) = http.status {
        out.row("answer", &format!("{} {status} after {}", http.version, ms(http.ms)));
    }
    for problem in http.trouble.iter().map(|trouble| &trouble.text).chain(&http.error) {
        out.row("problem", problem);
    }
    for (name, value) in &http.headers {
        out.row("", &format!("{name}: {value}"));
    }
    if websocket && http.upgraded {
        let offered = http.subprotocols_offered.join(", ");
        let taken = http.subprotocol.as_deref().unwrap_or("none");
        out.row("subprotocol", &if offered.is_empty() { taken.to_owned() } else { format!("{taken} of {offered}") });
        out.row("offered", &http.extensions_offered);
        out.row("extensions", http.deflate.as_deref().unwrap_or("none"));
    }
    if http.body_bytes > 0 || !http.body.is_empty() {
        out.row("body", &format!("{} bytes", http.body_bytes));
        for line in http.body.lines().take(12) {
            out.row("", &format!("| {line}"));
        }
    }
}

fn session(out: &mut Layout, session: &Session) {
    let first = session.first_message_ms.map_or_else(|| "none while it was open".to_owned(), ms);
    out.row("first message", &first);
    if session.messages > 0 {
        out.row("messages", &format!("{} with {} bytes", session.messages, session.bytes));
    }
    let at = |share| quantile(&session.pings_ms, share).map_or_else(|| "-".to_owned(), ms);
    let answered = format!("{} of {} answered", session.pings_ms.len(), session.pings_sent);
    out.row("pings", &format!("{answered}; p50 {}, p90 {}, p99 {}, max {}", at(0.5), at(0.9), at(0.99), at(1.0)));
    if let Some(survives) = session.key_update {
        out.row("new keys", if survives { "the connection goes on" } else { "the connection breaks" });
    }
    if let Some(lost) = &session.lost {
        out.row("lost", lost);
    }
    if let Some(close) = &session.close {
        let code =
            close.code.map_or_else(|| "no close frame".to_owned(), |code| format!("code {code} {}", close.reason));
        let notify = match close.close_notify {
            Some(true) => ", TLS ended",
            Some(false) => ", no close_notify",
            None => "",
        };
        let tcp = if close.tcp_closed { ", TCP closed" } else { ", TCP still open" };
        out.row("close", &format!("{} after {}{notify}{tcp}", code.trim(), ms(close.ms)));
    }
}

fn sizes_and_silence(out: &mut Layout, facts: &Facts) {
    if let Some(sizes) = &facts.sizes {
        let accepted = crate::layout::bytes(sizes.accepted);
        let refused = sizes.refused.map_or_else(
            || "nothing announced was refused".to_owned(),
            |size| {
                let code = sizes.code.map_or_else(|| "no close frame".to_owned(), |code| format!("code {code}"));
                format!("{} is refused ({code})", crate::layout::bytes(size))
            },
        );
        let accepted = if sizes.accepted > 0 { format!("{accepted} is accepted, ") } else { String::new() };
        out.row("message size", &format!("{accepted}{refused}"));
    }
    if let Some(idle) = &facts.idle {
        let text = match (&idle.error, idle.closed_after_s) {
            (Some(error), _) => error.clone(),
            (None, Some(after)) => format!("the server ended it after {after:.1} s"),
            (None, None) => format!("{:.0} s are accepted, {} pings by the server", idle.asked_s, idle.server_pings),
        };
        out.row("silence", &text);
    }
}
