//! Certificates by themselves against pebble, an authority for tests, with its faults on: `cargo xtask acme`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod harness;

use harness::{Faults, Place, echo, mode, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
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
    assert_eq!(server.metric("tautline_connections{", "state=\"open\""), 1000.0);
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
    let pid = server.running.0.id().to_string();
    let upgraded = place.taut(&["upgrade", &pid]).output().unwrap();
    assert!(upgraded.status.success(), "{upgraded:?}");
    echo(&mut sockets, "after");
    until("a certificate", || server.is_ready());
    echo(&mut sockets, "with a certificate");
    assert_eq!(place.orders(), 1, "{}", server.log());
    assert!(!order.exists());
    let said = server.log();
    let successor = said.split_once("to process ").unwrap().1.split(' ').next().unwrap().to_owned();
    let killed = Command::new("kill").args(["-KILL", &successor]).status().unwrap();
    assert!(killed.success());
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
    assert_eq!(place.orders(), 1);
    drop(server);
    let server = place.serve("server", &[]);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((place.orders(), server.is_ready()), (1, false));
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
    assert!(ask("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: elsewhere.example").starts_with("http/1.1 404"));
}

#[test]
#[ignore = "needs pebble: cargo xtask acme"]
fn a_response_is_fetched_and_stapled() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _authority = place.authority(&Faults { responder: Some(port), ..Faults::default() });
    let server = place.serve("server", &[]);
    until("a certificate", || server.is_ready());
    until("a failure without a responder", || server.metric("tautline_acme_ocsp_responses_total", "failed") > 0.0);
    let stapled = || {
        let address = format!("127.0.0.1:{}", server.port);
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &address, "-servername", "one.example", "-status"]);
        let said = openssl.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&said.stdout).contains("Cert Status: good")
    };
    assert!(!stapled());
    let _responder = place.responder(port);
    until("a response", || server.metric("tautline_acme_ocsp_expiry_timestamp_seconds", "") > 0.0);
    until("it is stapled", stapled);
    let doctor = place.taut(&["doctor", "--acme-folder", "folder"]).output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("OCSP response") && doctor.contains("stapled, "), "{doctor}");
    assert_eq!(place.orders(), 1);
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
