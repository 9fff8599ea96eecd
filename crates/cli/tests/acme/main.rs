//! Certificates by themselves against pebble, an authority for tests, with its faults on: `cargo xtask acme`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod harness;

use harness::{Faults, Place, echo, mode, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use tautline::layers::io::machine;

/// Connections that live through renewals.
const CONNECTIONS: usize = 1000;

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn the_first_certificate_comes_in_seconds_and_renewals_cut_nothing() {
    machine::raise_nofile_limit().unwrap();
    let place = Place::new();
    let faults = Faults { nonces: 15, slow: 2, life: Duration::from_secs(12), ..Faults::default() };
    let _authority = place.authority(&faults);
    let start = Instant::now();
    let server = place.serve("server", if cfg!(feature = "harden") { &["--harden"] } else { &[] });
    let (status, why) = server.ask("/readyz");
    assert!(status == 503 && why.contains("there is no certificate yet"), "{status} {why}");
    until("the first certificate", || server.is_ready());
    println!("the first certificate came in {:?}", start.elapsed());
    let folder = place.path.join("folder");
    let modes = ["", "account.json", "certificate.pem", "lock"].map(|name| mode(&folder.join(name)));
    assert_eq!(modes, [0o700, 0o600, 0o600, 0o600]);
    let mut sockets: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    echo(&mut sockets, "before");
    let before = server.metric("tautline_acme_orders_total", "");
    let first = server.certificate();
    until("three renewals", || server.metric("tautline_acme_orders_total", "") >= before + 3.0);
    echo(&mut sockets, "after");
    assert_ne!(server.certificate(), first);
    // That of the look at the certificate ends a moment later.
    until("they alone are left", || server.metric("tautline_connections{", "state=\"open\"") == 1000.0);
    assert_eq!(server.metric("tautline_reloads_total{", "failed"), 0.0);
    println!("{} orders in {:?}", place.orders(), start.elapsed());
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn processes_that_share_a_folder_order_once() {
    let place = Place::new();
    let _authority = place.authority(&Faults { slow: 2, ..Faults::default() });
    let one = place.serve("one", &[]);
    let two = place.serve_at(0, "two", &[]);
    until("both have a certificate", || one.is_ready() && two.is_ready());
    until("both use it", || one.certificate() == two.certificate());
    assert_eq!(place.orders(), 1);
    let keeps = |server: &harness::Server| server.metric("tautline_acme_orders_itself", "") > 0.0;
    assert!(keeps(&one) != keeps(&two));
    // The end of the process that orders makes the other one go on.
    let (orders, other) = if keeps(&one) { (one, two) } else { (two, one) };
    drop(orders);
    until("the other one goes on", || keeps(&other));
    assert_eq!((place.orders(), other.is_ready()), (1, true));
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn an_upgrade_goes_on_with_an_order() {
    let place = Place::new();
    let _authority = place.authority(&Faults { slow: 8, ..Faults::default() });
    let server = place.serve("server", &[]);
    let mut sockets: Vec<_> = (0..20).map(|_| server.connect()).collect();
    echo(&mut sockets, "before");
    let order = place.path.join("folder/order.json");
    until("an order is in progress", || fs::read_to_string(&order).is_ok_and(|order| order.contains("token")));
    let _successor = server.upgrade(&place);
    echo(&mut sockets, "after");
    until("a certificate", || server.is_ready());
    echo(&mut sockets, "with a certificate");
    assert_eq!(place.orders(), 1, "{}", server.log());
    assert!(!order.exists());
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn an_expired_certificate_serves_until_the_outage_is_over() {
    let place = Place::new();
    let life = Duration::from_secs(8);
    let authority = place.authority(&Faults { nonces: 5, life, ..Faults::default() });
    let server = place.serve("server", &[]);
    until("the first certificate", || server.is_ready());
    drop(authority);
    let mut sockets = [server.connect()];
    until("the certificate has expired", || {
        let expiry = server.metric("tautline_acme_expiry_timestamp_seconds", "");
        expiry < std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
    });
    until("failures are counted", || server.metric("tautline_acme_failures_total{", "network") > 0.0);
    let expired = server.certificate();
    assert!(server.is_ready() && server.log().contains("cannot reach the authority"));
    // It has forgotten the account, and has other roots.
    let over = Instant::now();
    let _authority = place.authority(&Faults { nonces: 5, ..Faults::default() });
    until("a new certificate", || server.certificate() != expired);
    println!("replaced {:?} after the outage", over.elapsed());
    assert!(server.log().contains("a new account is made"));
    echo(&mut sockets, "after the outage");
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_folder_that_is_moved_away_leaves_the_server_ready() {
    let place = Place::new();
    let _authority = place.authority(&Faults::default());
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
    let expiry = || server.metric("tautline_acme_expiry_timestamp_seconds", "");
    let (before, certificate) = (expiry(), server.certificate());
    let errors = |log: &str| log.lines().filter(|line| line.contains("certificate.pem cannot be used")).count();
    fs::rename(place.path.join("folder"), place.path.join("away")).unwrap();
    until("it is told", || server.log().contains("the certificate in use stays"));
    std::thread::sleep(Duration::from_secs(3));
    assert!(server.is_ready() && before > 0.0, "{}", server.log());
    assert_eq!((expiry(), server.metric("tautline_acme_failures_total{", "")), (before, 0.0));
    assert!(server.certificate() == certificate && errors(&server.log()) == 1, "{}", server.log());
    // The next process tells which certificate serves.
    fs::rename(place.path.join("away"), place.path.join("folder")).unwrap();
    drop(server);
    let server = place.serve("server", &[]);
    let words = "the certificate for one.example, two.example in folder is valid until ";
    until("it is named", || server.log().contains(words));
    assert!(server.is_ready() && place.orders() == 1);
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn failed_orders_are_told_and_not_repeated_by_restarts() {
    let place = Place::new();
    let authority = place.authority(&Faults { is_lost: true, ..Faults::default() });
    let server = place.serve("server", &[]);
    until("a failure", || server.metric("tautline_acme_failures_total{", "validation") > 0.0);
    let (status, why) = server.ask("/readyz");
    assert!(status == 503 && why.contains("the authority says: ") && why.contains("TLS-ALPN-01"), "{status} {why}");
    assert!(server.log().contains("no certificate (validation): validation of "), "{}", server.log());
    let doctor = place.taut(&["doctor", "--acme-folder", "folder"]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        doctor.contains("failed orders fix: 1 since the last success") && doctor.contains("the authority says"),
        "{doctor}"
    );
    let checked = place.taut(&["check"]).args(place.options()).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stderr).contains("--acme: a server waits "), "{checked:?}");
    assert_eq!(place.orders(), 1);
    drop(server);
    let server = place.serve("server", &[]);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((place.orders(), server.is_ready()), (1, false));
    until("the pause is told", || server.log().contains("acme: waits "));
    assert!(server.ask("/readyz").1.contains("the next attempt is in "));
    drop((server, authority));
    // The operator has found the fault, and does not want to wait.
    fs::remove_file(place.path.join("folder/failures.json")).unwrap();
    let _authority = place.authority(&Faults::default());
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn http_challenges_are_answered_and_other_requests_redirected() {
    let place = Place::new();
    let _authority = place.authority(&Faults { is_lost: true, binding: true, ..Faults::default() });
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    fs::write(place.path.join("binding"), format!("kid-1 {key}\n")).unwrap();
    let http = format!("127.0.0.1:{}", place.ports.http);
    let server = place.serve("server", &["--acme-http", &http, "--acme-eab", "binding"]);
    until("a certificate", || server.is_ready());
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(&http).unwrap();
        write!(stream, "{request}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.to_ascii_lowercase()
    };
    let redirected = ask("GET /a?b HTTP/1.1\r\nHost: one.example");
    let place = format!("location: https://one.example:{}/a?b", server.port);
    assert!(redirected.starts_with("http/1.1 301") && redirected.contains(&place), "{redirected}");
    assert!(ask("GET / HTTP/1.1\r\nHost: elsewhere.example").starts_with("http/1.1 404"));
    assert!(ask("POST / HTTP/1.1\r\nHost: one.example\r\nContent-Length: 0").starts_with("http/1.1 405"));
    for host in ["one.example", "elsewhere.example"] {
        let unknown = ask(&format!("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: {host}"));
        assert!(unknown.starts_with("http/1.1 404"), "{unknown}");
    }
}

/// A port of loopback, free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_response_is_fetched_and_stapled_and_shared_by_processes() {
    let place = Place::new();
    let port = free_port();
    let _authority = place.authority(&Faults { responder: Some(port), ..Faults::default() });
    let servers = [place.serve("one", &[]), place.serve_at(0, "two", &[])];
    let sum = |result: &str| -> f64 {
        servers.iter().map(|server| server.metric("tautline_acme_ocsp_responses_total", result)).sum()
    };
    until("both have a certificate", || servers.iter().all(harness::Server::is_ready));
    until("a failure without a responder", || sum("failed") > 0.0);
    assert!(!servers.iter().any(harness::Server::staples));
    let _responder = place.responder(port);
    for server in &servers {
        until("a response", || server.metric("tautline_acme_ocsp_expiry_timestamp_seconds", "") > 0.0);
        until("it is stapled", || server.staples());
    }
    let doctor = place.taut(&["doctor", "--acme-folder", "folder"]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("OCSP response") && doctor.contains("stapled, "), "{doctor}");
    assert_eq!((place.orders(), sum("done")), (1, 1.0), "one of them ordered, and one fetched");
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn an_upgrade_takes_the_stapled_response_along() {
    let place = Place::new();
    let port = free_port();
    let _authority = place.authority(&Faults { responder: Some(port), ..Faults::default() });
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
    let responder = place.responder(port);
    until("it is stapled", || server.staples());
    let certificate = server.certificate();
    // A new process that asked would fail, and count that.
    drop(responder);
    let mut sockets = [server.connect()];
    let _successor = server.upgrade(&place);
    assert!(server.staples(), "{}", server.log());
    assert_eq!(server.certificate(), certificate);
    echo(&mut sockets, "after");
    until("the new process answers", || server.metric("tautline_acme_orders_itself", "") > 0.0);
    for (name, count) in [("ocsp_responses", 0.0), ("orders", 0.0), ("failures", 0.0)] {
        assert_eq!(server.metric(&format!("tautline_acme_{name}_total"), ""), count, "{name}");
    }
    assert!(server.staples() && place.orders() == 1);
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_certificate_that_must_be_stapled_serves_only_with_a_response() {
    let place = Place::new();
    let port = free_port();
    let _authority = place.authority(&Faults { responder: Some(port), ..Faults::default() });
    if !place.is_recent("must-staple") {
        return;
    }
    let server = place.serve("server", &["--acme-must-staple"]);
    until("a failure without a responder", || server.metric("tautline_acme_failures_total{", "authority") > 0.0);
    let (status, why) = server.ask("/readyz");
    assert!(status == 503 && why.contains("must be stapled") && why.contains("no response yet"), "{status} {why}");
    let placeholder = server.certificate();
    let _responder = place.responder(port);
    until("a certificate", || server.certificate() != placeholder);
    assert!(server.staples(), "{}", server.log());
    until("it is ready", || server.is_ready());
    let text = Command::new("openssl")
        .args(["x509", "-noout", "-text", "-in", "folder/certificate.pem"])
        .current_dir(&place.path)
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let words = ["TLS Feature", "status_request", "prime256v1", "DNS:one.example, DNS:two.example"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert_eq!(place.orders(), 1, "the order goes on, and is not repeated");
    // An engine that cannot staple would serve a certificate that clients reject.
    #[cfg(feature = "mbedtls")]
    for command in ["check", "serve"] {
        let refused = place.taut(&[command, "--tls", "mbedtls", "--acme-http", "127.0.0.1:0"]);
        let said = refusal(refused, &place);
        assert!(said.contains("must be stapled") || said.contains("OCSP response is stapled"), "{command}: {said}");
        assert!(said.contains("--tls fused"), "{command}: {said}");
    }
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_certificate_that_must_be_stapled_but_names_no_responder_is_refused() {
    let place = Place::new();
    let _authority = place.authority(&Faults::default());
    if !place.is_recent("must-staple") {
        return;
    }
    let server = place.serve("server", &["--acme-must-staple"]);
    until("a failure", || server.metric("tautline_acme_failures_total{", "certificate") > 0.0);
    let (status, why) = server.ask("/readyz");
    assert!(status == 503 && why.contains("names no responder"), "{status} {why}");
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn the_authority_suggests_when_to_renew() {
    const DAY: f64 = 24.0 * 60.0 * 60.0;
    let place = Place::new();
    let _authority = place.authority(&Faults::default());
    if !place.is_recent("ARI") {
        return;
    }
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
    let expiry = server.metric("tautline_acme_expiry_timestamp_seconds", "");
    let due = |server: &harness::Server| server.metric("tautline_acme_renewal_timestamp_seconds", "");
    // Pebble's window is two thirds of 90 days, a day earlier or later.
    until("the authority's suggestion", || server.log().contains("the authority suggests renewal between"));
    assert!((29.0 * DAY..=31.0 * DAY).contains(&(expiry - due(&server))), "{} {expiry}", due(&server));
    let first = server.certificate();
    // As before a mass revocation: the window is over.
    place.suggest("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    drop(server);
    let server = place.serve("server", &[]);
    until("another certificate", || server.certificate() != first);
    until("no further one is due", || due(&server) > expiry - 31.0 * DAY);
    let log = place.authority_log();
    assert!(log.contains("ARI: order ") && log.contains(" is a replacement of "), "{log}");
    assert_eq!(place.orders(), 2);
}

/// Engines of this build that answer HTTP-01 only.
#[cfg(feature = "libssl")]
const HTTP_ENGINES: [(&str, bool); 4] = [
    ("openssl", cfg!(feature = "openssl")),
    ("aws-lc", cfg!(feature = "aws-lc")),
    ("boringssl", cfg!(feature = "boringssl")),
    ("mbedtls", cfg!(feature = "mbedtls")),
];

#[cfg(feature = "libssl")]
#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn other_engines_order_over_http_staple_and_renew() {
    for (engine, _) in HTTP_ENGINES.into_iter().filter(|(_, is_built)| *is_built) {
        let place = Place::new();
        let port = free_port();
        let life = Duration::from_secs(15);
        let authority = place.authority(&Faults { responder: Some(port), life, ..Faults::default() });
        let http = format!("127.0.0.1:{}", place.ports.http);
        let server = place.serve("server", &["--tls", engine, "--acme-http", &http]);
        until("a certificate", || server.is_ready());
        let mut sockets: Vec<_> = (0..20).map(|_| server.connect()).collect();
        echo(&mut sockets, "before");
        let first = server.certificate();
        until("a renewal", || server.metric("tautline_acme_orders_total", "") >= 2.0);
        until("it is in use", || server.certificate() != first);
        echo(&mut sockets, "after");
        assert_eq!(server.metric("tautline_acme_failures_total{", ""), 0.0, "{}", server.log());
        // The responder knows one certificate, which must stay.
        drop(authority);
        let _authority = place.authority(&Faults { responder: Some(port), ..Faults::default() });
        let day = 24.0 * 60.0 * 60.0;
        let expiry = server.metric("tautline_acme_expiry_timestamp_seconds", "");
        until("a long life", || server.metric("tautline_acme_expiry_timestamp_seconds", "") > expiry + day);
        let _responder = place.responder(port);
        if engine != "mbedtls" {
            until("it is stapled", || server.staples());
        }
        println!("{engine}: {} orders", place.orders());
    }
}

#[cfg(feature = "libssl")]
#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn other_engines_refuse_tls_alpn_and_name_the_remedy() {
    let place = Place::new();
    for (engine, _) in HTTP_ENGINES.into_iter().filter(|(_, is_built)| *is_built) {
        for command in ["check", "serve"] {
            let said = refusal(place.taut(&[command, "--tls", engine]), &place);
            let words = [&format!("the TLS engine {engine} cannot answer TLS-ALPN-01"), "--acme-http", "--tls fused"];
            assert!(words.iter().all(|word| said.contains(*word)), "{command} {engine}: {said}");
        }
    }
    assert!(!place.path.join("folder").exists());
}

#[test]
fn must_staple_is_refused_where_it_cannot_work() {
    let folder = std::env::temp_dir().join(format!("taut-must-staple-{}", std::process::id()));
    let check = |more: &[&str]| {
        let mut taut = Command::new(env!("CARGO_BIN_EXE_taut"));
        taut.args(["check", "--acme", "one.example", "--acme-must-staple", "--acme-folder"]).arg(&folder).args(more);
        let said = taut.output().unwrap();
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    let (code, said) = check(&[]);
    assert!(
        code == Some(2) && said.contains("Let's Encrypt has no OCSP") && said.contains("--acme-directory"),
        "{said}"
    );
    let other = ["--acme-directory", "https://localhost:1/dir"];
    assert_eq!(check(&other).0, Some(0));
    if cfg!(feature = "mbedtls") {
        let (code, said) = check(&[&other[..], &["--tls", "mbedtls", "--acme-http"]].concat());
        assert!(code == Some(2) && said.contains("cannot staple") && said.contains("--tls fused"), "{said}");
    }
    assert!(!folder.exists());
}

#[test]
fn addresses_that_no_authority_reaches_are_told() {
    let folder = std::env::temp_dir().join(format!("taut-acme-addresses-{}", std::process::id()));
    let taut = |command: &str, more: &[&str]| {
        let mut taut = Command::new(env!("CARGO_BIN_EXE_taut"));
        taut.args([command, "--acme", "one.example", "--acme-folder"]).arg(&folder).args(more).env_remove("RUST_LOG");
        let said = taut.output().unwrap();
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    for command in ["check", "serve"] {
        for (listen, http) in [("127.0.0.1:8080", "127.0.0.1:8080"), ("127.0.0.1:8080", ":8080"), (":80", ":80")] {
            let (code, said) = taut(command, &["--listen", listen, "--acme-http", http]);
            assert!(
                code == Some(2) && said.contains("--acme-http: the server itself listens at "),
                "{command}: {said}"
            );
        }
    }
    const NEAR: [&str; 2] = ["--acme-directory", "https://localhost:14000/dir"];
    for (more, warned) in [
        (&[][..], Some("127.0.0.1:8443")),
        (&["--listen", "127.0.0.1:1", "--listen", "[::1]:2"], Some("127.0.0.1:1, [::1]:2")),
        (&["--acme-http", "127.0.0.1:8080"], Some("127.0.0.1:8443")),
        (&["--acme-http"], None),
        (&["--listen", ":8443"], None),
        (&NEAR, None),
    ] {
        let (code, said) = taut("check", more);
        assert_eq!(code, Some(0), "{more:?}: {said}");
        let words = format!("--acme: no authority reaches {}: --listen :443\n", warned.unwrap_or_default());
        assert_eq!(said.contains("no authority reaches"), warned.is_some(), "{more:?}: {said}");
        assert!(warned.is_none() || said.contains(&words), "{more:?}: {said}");
    }
    assert!(!folder.exists());
}

/// The reason for which `taut` refuses to start with the options of a place.
#[cfg(feature = "libssl")]
fn refusal(mut taut: Command, place: &Place) -> String {
    let said = taut.args(place.options()).output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    String::from_utf8(said.stderr).unwrap()
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_probe_finds_nothing_but_the_authority() {
    let place = Place::new();
    let _authority = place.authority(&Faults::default());
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
    let address = format!("127.0.0.1:{}", server.port);
    let url = format!("wss://one.example:{}/", server.port);
    let probed = place.taut(&["probe", &url, "--address", &address, "--json"]).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&probed.stdout).unwrap();
    let verdicts = said["verdicts"].as_array().unwrap();
    let names: Vec<&str> = verdicts.iter().map(|verdict| verdict["id"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["chain.unknown-issuer"], "{verdicts:#?}");
}
