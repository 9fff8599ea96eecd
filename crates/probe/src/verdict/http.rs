//! The answer to the request.

use super::super::facts::{Facts, Http, TroubleKind};
use super::connection::{EXPECTS_PROXY, client_certificate};
use super::judgement::{Verdict, fault, note, warning};

/// The lines of nginx that pass an upgrade on. Without the first it speaks HTTP/1.0 to the server.
const NGINX: &str = "(nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \
                     upgrade)";

/// HTTP/2 of which a half works: browsers use what SETTINGS announce, and do not try again by HTTP/1.1.
pub(super) fn judge_http2(facts: &Facts) -> Option<Verdict> {
    let found = facts.http2.as_ref().filter(|found| found.offered)?;
    let Some(websockets) = found.websockets else {
        let error = found.error.as_deref().unwrap_or("no SETTINGS came");
        let remedy = "take h2 out of the server's ALPN, or correct the backend of that protocol: browsers prefer h2";
        return Some(fault("http2.broken", format!("the server offers h2 and does not speak it: {error}"), remedy));
    };
    // A fault of both versions is no matter of HTTP/2.
    let upgrades = facts.http.as_ref().is_some_and(|http| http.upgraded);
    if !websockets || !upgrades || found.pong_ms.is_some() {
        return None;
    }
    let what = match (&found.error, found.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) if (200..300).contains(&status) => return None,
        (None, status) => format!("it answers {}", status.map_or_else(|| "nothing".to_owned(), |it| it.to_string())),
    };
    let title = format!("the server announces WebSockets over HTTP/2, and opens none: {what}");
    let remedy = "let the application behind it take extended CONNECT (RFC 8441), or stop announcing it (HAProxy: \
                  h2-workaround-bogus-websocket-clients; Envoy: no allow_connect; Go: GODEBUG=http2xconnect=0): \
                  browsers do not fall back to HTTP/1.1";
    Some(fault("http2.websocket", title, remedy))
}

pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    let Some(http) = &facts.http else { return Vec::new() };
    if let Some(trouble) = &http.trouble {
        return vec![match trouble.kind {
            TroubleKind::NotTls => fault(
                "http.tls-port",
                format!("port {} speaks TLS, but the URL does not", facts.port),
                format!("write {}:// in the URL", if facts.websocket { "wss" } else { "https" }),
            ),
            TroubleKind::ClientCertificate => client_certificate(),
            TroubleKind::Timeout => fault(
                "http.timeout",
                "the server does not answer the request",
                "look whether the application behind it hangs; --timeout waits longer",
            ),
            _ => fault(
                "http.closed",
                format!("the connection ends before an answer: {}", trouble.text),
                format!("look into the server's log for this request{EXPECTS_PROXY}"),
            ),
        }];
    }
    if let Some(error) = &http.error {
        return vec![broken(http, error)];
    }
    if let Some(status) = http.status.filter(|_| !http.upgraded) {
        return if facts.websocket { vec![refused(facts, http, status)] } else { page(http, status) };
    }
    options(http)
}

/// A 101 that breaks the rules, or no HTTP at all.
fn broken(http: &Http, error: &str) -> Verdict {
    if error.contains("Sec-WebSocket-Accept") {
        return fault(
            "upgrade.accept",
            "the answer's Sec-WebSocket-Accept does not fit the key of the request",
            "let the server compute it from the key of each request (RFC 6455, section 4.2.2); a cache may have \
             answered in its place",
        );
    }
    if http.status == Some(101) {
        return fault(
            "upgrade.invalid",
            error,
            "correct the server's 101, or the proxy that changes it (RFC 6455, section 4.2.2)",
        );
    }
    fault(
        "http.invalid",
        format!("the answer is no HTTP: {error}"),
        "correct the port of the URL: another service has it",
    )
}

/// An answer other than 101.
fn refused(facts: &Facts, http: &Http, status: u16) -> Verdict {
    let title = format!("the server answers {status} instead of 101");
    let text_of_proxy = http.body.contains("plain HTTP request was sent to HTTPS port");
    match status {
        301 | 302 | 303 | 307 | 308 => {
            let to = http.location.as_deref().unwrap_or("nowhere");
            fault(
                "upgrade.redirected",
                format!("the server redirects ({status}) to {to}"),
                "use that URL; WebSocket clients of browsers do not follow redirections (--follow does)",
            )
        }
        400 if text_of_proxy => fault(
            "http.tls-port",
            format!("port {} speaks TLS, but the URL does not", facts.port),
            "write wss:// in the URL",
        ),
        200..=299 => fault(
            "upgrade.page",
            format!("{title}: a page, so the request did not arrive as an upgrade"),
            format!("correct the path; or let the proxy pass the upgrade on {NGINX}"),
        ),
        401 | 403 => fault(
            "upgrade.forbidden",
            title,
            "pass what the server demands: a token (-H 'Authorization: …'), a cookie, or an --origin that it permits",
        ),
        404 => fault("upgrade.not-found", title, "correct the path of the URL: no WebSocket is served there"),
        426 => fault(
            "upgrade.required",
            format!("{title}: it demands an upgrade that it did not see"),
            format!("let the proxy pass the headers Upgrade and Connection on {NGINX}"),
        ),
        429 => fault("upgrade.too-many", title, "wait, or raise the server's limit of connections per client"),
        502 | 504 => fault(
            "upgrade.backend",
            title,
            "the proxy works and the server behind it does not: start it, or correct its address",
        ),
        505 => fault(
            "upgrade.version",
            format!("{title}: a proxy passes the request on in HTTP/1.0, which has no upgrade"),
            format!("let the proxy speak HTTP/1.1 to the server, and pass the upgrade on {NGINX}"),
        ),
        500..=599 => fault("upgrade.server-error", title, "look into the server's log"),
        _ => fault("upgrade.refused", title, "read the body of the answer, and the server's log"),
    }
}

/// The answer to a plain GET.
fn page(http: &Http, status: u16) -> Vec<Verdict> {
    match status {
        300..=399 => {
            let to = http.location.as_deref().unwrap_or("nowhere");
            let title = format!("the server redirects ({status}) to {to}");
            vec![note("http.redirected", title, "use that URL, or pass --follow")]
        }
        400..=499 => {
            vec![fault("http.status", format!("the server answers {status}"), "correct the path, or log in (-H)")]
        }
        500..=599 => vec![fault("http.status", format!("the server answers {status}"), "look into the server's log")],
        _ => Vec::new(),
    }
}

/// Offers that were not taken.
fn options(http: &Http) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if !http.subprotocols_offered.is_empty() && http.subprotocol.is_none() {
        let title = format!("the server takes none of the subprotocols {}", http.subprotocols_offered.join(", "));
        let remedy = "correct the spelling of --subprotocol, or add it to the server: browsers end such a connection";
        verdicts.push(fault("upgrade.subprotocol", title, remedy));
    }
    if http.deflate_wanted && http.deflate.is_none() {
        let title = "the server does not take compression (permessage-deflate)";
        let remedy = "turn it on at the server (ws: perMessageDeflate; taut serve: --deflate), or do without";
        verdicts.push(warning("upgrade.compression", title, remedy));
    }
    verdicts
}
