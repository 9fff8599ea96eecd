//! One fault at a time, planted in the facts of a good endpoint.

use super::super::facts::{
    Address, Answer, Certificate, Certified, Chain, Close, Dns, Facts, Http, Http2, Idle, Offer, OtherAddress,
    Resumption, Scan, Session, Sizes, Staple, Status, Tls, Trouble, TroubleKind, Trust,
};
use super::*;
use tautline::layers::tls::alert::Alert;

/// An endpoint with nothing to complain about.
fn good() -> Facts {
    let offer = |name: &str, answer| Offer { name: name.to_owned(), answer };
    let leaf = Certificate {
        subject: "CN=chat.test".to_owned(),
        issuer: "CN=Authority".to_owned(),
        names: vec!["chat.test".to_owned()],
        days_left: 80,
        ..Certificate::default()
    };
    Facts {
        url: "wss://chat.test/".to_owned(),
        host: "chat.test".to_owned(),
        port: 443,
        secure: true,
        websocket: true,
        dns: Some(Dns { ms: 1.0, error: None }),
        addresses: vec![address("10.0.0.1:443", true), address("10.0.0.2:443", false)],
        tls: Some(Tls { version: "TLSv1.3".to_owned(), ..Tls::default() }),
        chain: Some(Chain {
            certificates: vec![leaf],
            name: "chat.test".to_owned(),
            name_fits: true,
            trust: Trust::Trusted,
            path_holds: true,
            ..Chain::default()
        }),
        resumption: Some(Resumption {
            tickets: 2,
            resumes: Some(true),
            other_address: Some(OtherAddress { address: "10.0.0.2:443".to_owned(), resumes: true }),
            ..Resumption::default()
        }),
        scan: Some(Scan {
            versions: vec![
                offer("TLSv1.3", Answer::Taken),
                offer("TLSv1.2", Answer::Taken),
                offer("TLSv1.1", Answer::Refused),
                offer("TLSv1.0", Answer::Unclear("why".to_owned())),
            ],
            ..Scan::default()
        }),
        http: Some(Http { status: Some(101), upgraded: true, ..Http::default() }),
        session: Some(Session {
            pings_sent: 10,
            pings_ms: vec![1.0; 10],
            key_update: Some(true),
            close: Some(Close { code: Some(1000), tcp_closed: true, ..Close::default() }),
            ..Session::default()
        }),
        sizes: Some(Sizes { accepted: 1 << 20, refused: Some(1 << 21), code: Some(1009) }),
        idle: Some(Idle { asked_s: 90.0, ..Idle::default() }),
        ..Facts::default()
    }
}

fn address(name: &str, main: bool) -> Address {
    Address { address: name.to_owned(), tcp_ms: Some(1.0), main, ..Address::default() }
}

fn trouble(kind: TroubleKind, text: &str) -> Option<Trouble> {
    Some(Trouble { kind, text: text.to_owned() })
}

/// Plants trouble at every address, before anything else could be found.
fn unreachable(facts: &mut Facts, kind: TroubleKind, text: &str) {
    facts.addresses.iter_mut().for_each(|address| address.trouble = trouble(kind, text));
    (facts.tls, facts.chain, facts.resumption, facts.scan) = (None, None, None, None);
    no_socket(facts);
    facts.http = None;
}

fn no_socket(facts: &mut Facts) {
    (facts.session, facts.sizes, facts.idle) = (None, None, None);
}

fn refused(facts: &mut Facts, status: u16) {
    no_socket(facts);
    facts.http = Some(Http { status: Some(status), ..Http::default() });
}

/// The identifiers of the verdicts after a change of the good facts.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<Verdict> {
    let mut facts = good();
    change(&mut facts);
    judge(&facts, &[])
}

/// A fault: its name, a part of its remedy, and how it is planted.
type Planted = (&'static str, &'static str, fn(&mut Facts));

#[test]
fn nothing_is_wrong_with_a_good_endpoint() {
    assert_eq!(found(|_| {}), []);
    assert!(is_usable(&good()));
    let plain = found(|facts| {
        (facts.secure, facts.tls, facts.chain, facts.scan, facts.resumption) = (false, None, None, None, None);
    });
    assert_eq!(plain, []);
}

fn check(planted: &[Planted]) {
    for (id, remedy, plant) in planted {
        let verdicts = found(plant);
        let ids: Vec<&str> = verdicts.iter().map(|verdict| verdict.id).collect();
        assert_eq!(ids, [*id], "{verdicts:?}");
        assert!(verdicts[0].remedy.contains(remedy), "{verdicts:?}");
        assert!(!verdicts[0].title.is_empty(), "{verdicts:?}");
    }
}

#[test]
fn trouble_on_the_way_is_told_apart() {
    check(&[
        ("dns.failed", "dig chat.test", |f| {
            f.dns = Some(Dns { ms: 1.0, error: Some("no such name".to_owned()) });
            f.addresses.clear();
        }),
        ("address.dead", "out of DNS", |f| f.addresses[1].trouble = trouble(TroubleKind::Refused, "refused")),
        ("tcp.refused", "listen at port 443", |f| unreachable(f, TroubleKind::Refused, "refused")),
        ("tcp.timeout", "firewall", |f| {
            unreachable(f, TroubleKind::Timeout, "no answer");
            f.addresses.iter_mut().for_each(|address| address.tcp_ms = None);
        }),
        ("tcp.unreachable", "routes", |f| unreachable(f, TroubleKind::Unreachable, "no route")),
        ("proxy.failed", "--proxy", |f| unreachable(f, TroubleKind::Proxy, "407")),
        ("tls.plain-http", "listen 443 ssl", |f| unreachable(f, TroubleKind::PlainHttp, "HTTP")),
        ("tls.not-tls", "port of the URL", |f| unreachable(f, TroubleKind::NotTls, "SSH-2.0")),
        ("tls.timeout", "PROXY protocol", |f| unreachable(f, TroubleKind::Timeout, "no answer")),
        ("tls.closed", "PROXY protocol", |f| unreachable(f, TroubleKind::Closed, "closed")),
        ("tls.client-certificate", "--cert and --key", |f| unreachable(f, TroubleKind::ClientCertificate, "it")),
        ("tls.alert", "ssl_protocols", |f| unreachable(f, TroubleKind::Alert(Alert::PROTOCOL_VERSION), "it")),
        ("tls.alert", "suite", |f| unreachable(f, TroubleKind::Alert(Alert::HANDSHAKE_FAILURE), "it")),
        ("tls.alert", "correct the URL", |f| unreachable(f, TroubleKind::Alert(Alert::UNRECOGNIZED_NAME), "it")),
        ("tls.failed", "log", |f| unreachable(f, TroubleKind::Other, "bytes")),
        ("address.certificate-differs", "new certificate", |f| f.addresses[1].certificate_matches = Some(false)),
    ]);
}

fn chain(facts: &mut Facts) -> &mut Chain {
    let chain = facts.chain.as_mut().unwrap();
    chain.trust = Trust::Untrusted;
    chain
}

fn leaf(facts: &mut Facts) -> &mut Certificate {
    &mut facts.chain.as_mut().unwrap().certificates[0]
}

#[test]
fn certificates_are_judged_one_fault_at_a_time() {
    check(&[
        ("certificate.name", "chat.test among its names", |f| chain(f).name_fits = false),
        ("certificate.expired", "renew", |f| leaf(f).days_left = -3),
        ("certificate.not-yet-valid", "clocks", |f| leaf(f).days_until_valid = 3),
        ("certificate.expires-soon", "renew", |f| leaf(f).days_left = 3),
        ("certificate.malformed", "PEM", |f| leaf(f).malformed = true),
        ("certificate.weak-key", "P-256", |f| leaf(f).weak_key = true),
        ("certificate.weak-signature", "SHA-256", |f| leaf(f).weak_signature = true),
        ("certificate.must-staple", "stapling", |f| leaf(f).must_staple = true),
        ("certificate.self-signed", "--ca", |f| {
            chain(f).path_holds = false;
            leaf(f).self_issued = true;
        }),
        ("chain.incomplete", "http://a.test/i.der", |f| {
            (chain(f).path_holds, chain(f).missing) = (false, Some("CN=Intermediate".to_owned()));
            leaf(f).issuer_url = Some("http://a.test/i.der".to_owned());
        }),
        ("chain.unknown-issuer", "fullchain", |f| {
            (chain(f).path_holds, chain(f).missing) = (false, Some("CN=Intermediate".to_owned()));
        }),
        ("chain.untrusted", "--ca", |f| {
            chain(f).path_holds = false;
            chain(f).certificates.push(Certificate { self_issued: true, days_left: 9, ..Certificate::default() });
        }),
        ("chain.invalid", "openssl verify", |f| chain(f).path_holds = false),
        ("chain.empty", "certificate", |f| chain(f).certificates.clear()),
        ("tls.signature", "key that belongs", |f| f.tls.as_mut().unwrap().bad_signature = Some("bad".to_owned())),
    ]);
}

/// A good response that was given an hour ago.
fn staple(facts: &mut Facts) -> &mut Staple {
    let now = super::super::certificates::now();
    facts.chain.as_mut().unwrap().ocsp.insert(Staple {
        status: Status::Good,
        this_update: now - 3600,
        next_update: Some(now + 3600),
        certified: Certified::ByIssuer,
        ..Staple::default()
    })
}

#[test]
fn stapled_responses_are_judged() {
    assert_eq!(found(|f| *staple(f) = staple(f).clone()), []);
    assert_eq!(found(|f| leaf(f).must_staple = staple(f).status == Status::Good), [], "it sends what it must");
    check(&[
        ("certificate.revoked", "new key", |f| staple(f).status = Status::Revoked),
        ("ocsp.unknown", "issuer", |f| staple(f).status = Status::Unknown),
        ("ocsp.other-certificate", "load both together", |f| staple(f).status = Status::OtherCertificate),
        ("ocsp.refused", "last good", |f| staple(f).status = Status::Refused("try later".to_owned())),
        ("ocsp.malformed", "DER", |f| staple(f).status = Status::Malformed),
        ("ocsp.expired", "resolver", |f| staple(f).next_update = Some(1)),
        ("ocsp.not-yet-valid", "clocks", |f| staple(f).this_update += 7200),
        ("ocsp.signature", "OCSP URL", |f| staple(f).certified = Certified::Wrong("why".to_owned())),
    ]);
    let unverified = |f: &mut Facts| staple(f).certified = Certified::NotVerified("why".to_owned());
    assert_eq!(found(unverified), [], "a root that is not sent is no fault of the server");
}

#[test]
fn versions_and_resumption_are_judged() {
    check(&[
        ("tls.no-1.3", "TLSv1.3", |f| f.scan.as_mut().unwrap().versions[0].answer = Answer::Refused),
        ("tls.old-version", "RFC 8996", |f| f.scan.as_mut().unwrap().versions[2].answer = Answer::Taken),
        ("resumption.none", "tickets on", |f| f.resumption = Some(Resumption::default())),
        ("resumption.broken", "share the ticket keys", |f| f.resumption.as_mut().unwrap().resumes = Some(false)),
        ("resumption.other-address", "share", |f| {
            f.resumption.as_mut().unwrap().other_address =
                Some(OtherAddress { address: "10.0.0.2:443".to_owned(), resumes: false });
        }),
    ]);
}

fn http(facts: &mut Facts) -> &mut Http {
    facts.http.as_mut().unwrap()
}

#[test]
fn answers_other_than_101_have_their_remedies() {
    check(&[
        ("upgrade.redirected", "--follow", |f| refused(f, 301)),
        ("upgrade.page", "proxy_set_header", |f| refused(f, 200)),
        ("upgrade.forbidden", "--origin", |f| refused(f, 403)),
        ("upgrade.forbidden", "Authorization", |f| refused(f, 401)),
        ("upgrade.not-found", "path", |f| refused(f, 404)),
        ("upgrade.required", "Upgrade and Connection", |f| refused(f, 426)),
        ("upgrade.version", "proxy_http_version 1.1", |f| refused(f, 505)),
        ("upgrade.too-many", "limit", |f| refused(f, 429)),
        ("upgrade.server-error", "log", |f| refused(f, 500)),
        ("upgrade.backend", "behind it", |f| refused(f, 502)),
        ("upgrade.refused", "body", |f| refused(f, 418)),
        ("http.tls-port", "wss://", |f| {
            refused(f, 400);
            http(f).body = "The plain HTTP request was sent to HTTPS port".to_owned();
        }),
        ("http.tls-port", "wss://", |f| {
            refused(f, 400);
            http(f).trouble = trouble(TroubleKind::NotTls, "TLS");
        }),
        ("http.timeout", "hangs", |f| {
            refused(f, 400);
            http(f).trouble = trouble(TroubleKind::Timeout, "no answer");
        }),
        ("http.closed", "PROXY protocol", |f| {
            refused(f, 400);
            http(f).trouble = trouble(TroubleKind::Closed, "closed");
        }),
        ("http.invalid", "port", |f| {
            no_socket(f);
            f.http = Some(Http { error: Some("peer sent a malformed HTTP".to_owned()), ..Http::default() });
        }),
        ("upgrade.accept", "4.2.2", |f| {
            no_socket(f);
            http(f).upgraded = false;
            http(f).error = Some("Sec-WebSocket-Accept does not match our key".to_owned());
        }),
        ("upgrade.invalid", "101", |f| {
            no_socket(f);
            http(f).upgraded = false;
            http(f).error = Some("Upgrade does not name websocket".to_owned());
        }),
        ("upgrade.subprotocol", "--subprotocol", |f| http(f).subprotocols_offered = vec!["chat".to_owned()]),
        ("upgrade.compression", "perMessageDeflate", |f| http(f).deflate_wanted = true),
    ]);
}

#[test]
fn a_page_is_judged_by_its_status() {
    let page = |status| {
        found(|facts| {
            refused(facts, status);
            facts.websocket = false;
        })
    };
    assert_eq!(page(200), []);
    for (status, level) in [(301, Level::Note), (404, Level::Fault), (503, Level::Fault)] {
        let verdicts = page(status);
        assert_eq!((verdicts.len(), verdicts[0].level), (1, level), "{status}");
    }
}

fn session(facts: &mut Facts) -> &mut Session {
    facts.session.as_mut().unwrap()
}

#[test]
fn open_websockets_are_judged() {
    check(&[
        ("session.lost", "log", |f| session(f).lost = Some("it ended".to_owned())),
        ("session.no-pong", "5.5.2", |f| session(f).pings_ms.clear()),
        ("session.key-update", "TLS library", |f| session(f).key_update = Some(false)),
        ("session.no-close-frame", "1006", |f| session(f).close.as_mut().unwrap().code = None),
        ("session.tcp-open", "7.1.1", |f| session(f).close.as_mut().unwrap().tcp_closed = false),
        ("session.message-limit", "maxPayload", |f| f.sizes.as_mut().unwrap().refused = Some(16 << 10)),
        ("idle.closed", "every 30 s", |f| f.idle.as_mut().unwrap().closed_after_s = Some(60.0)),
        ("idle.failed", "again", |f| f.idle.as_mut().unwrap().error = Some("refused".to_owned())),
    ]);
}

#[test]
fn the_gravest_verdict_is_first_and_thresholds_count() {
    let mut facts = good();
    facts.resumption = Some(Resumption::default());
    let slos = ["p50=0.5ms".parse().unwrap(), "p99=2ms".parse().unwrap()];
    let verdicts = judge(&facts, &slos);
    let ids: Vec<&str> = verdicts.iter().map(|verdict| verdict.id).collect();
    assert_eq!(ids, ["threshold", "resumption.none"]);
    refused(&mut facts, 404);
    assert!(!is_usable(&facts));
}

#[test]
fn http2_of_which_a_half_works_is_a_fault() {
    let http2 = || Http2 { offered: true, websockets: Some(true), ..Http2::default() };
    let announced = |facts: &mut Facts| facts.http2 = Some(http2());
    for good in [
        Http2::default(),
        Http2 { websockets: Some(false), ..http2() },
        Http2 { status: Some(200), pong_ms: Some(1.0), ..http2() },
    ] {
        assert_eq!(found(|facts| facts.http2 = Some(good)), []);
    }
    check(&[
        ("http2.broken", "ALPN", |f| f.http2 = Some(Http2 { offered: true, ..Http2::default() })),
        ("http2.websocket", "allow_connect", |f| {
            f.http2 = Some(Http2 { offered: true, websockets: Some(true), status: Some(501), ..Http2::default() });
        }),
        ("http2.websocket", "RFC 8441", |f| {
            let error = Some("the server reset the stream: PROTOCOL_ERROR".to_owned());
            f.http2 = Some(Http2 { offered: true, websockets: Some(true), error, ..Http2::default() });
        }),
    ]);
    let also_by_http1 = found(|facts| {
        announced(facts);
        refused(facts, 403);
    });
    assert_eq!(also_by_http1.iter().map(|verdict| verdict.id).collect::<Vec<_>>(), ["upgrade.forbidden"]);
}
