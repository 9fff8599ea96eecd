//! The admin listener of `taut serve`, and the log whose level it changes.

use super::Home;
use super::tls::eventually;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Sends a request to the admin listener, and returns the status and the body.
pub(super) fn exchange(admin: &Path, request: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(admin).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: taut\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(stream, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_admin_listener_shows_a_hardened_server_until_its_end() {
    let home = Home::new();
    let admin = home.0.join("admin.sock");
    let at = format!("unix:{}", admin.display());
    let options: &[&str] = if cfg!(feature = "harden") { &["--harden"] } else { &[] };
    let server = home.serve(&[&["--admin", &at, "--stages"], options].concat());
    let get = |path: &str| exchange(&admin, &format!("GET {path}"), "");
    assert_eq!(get("/readyz"), (200, "ok\n".to_owned()));
    assert_eq!(get("/healthz"), (200, "ok\n".to_owned()));
    let said = home.run_with(&["connect", "--wait", "2", &server.url], "hello\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"));
    eventually("the connection is closed", || {
        get("/metrics").1.contains("tautline_websockets_closed_total{code=\"1000\"} 1\n")
    });
    let metrics = get("/metrics").1;
    for line in [
        "tautline_messages_total{direction=\"received\"} 1\n",
        "tautline_stage_seconds_count{stage=\"app\"} 1\n",
        "tautline_tls_handshake_seconds_count{kind=\"full\"} 1\n",
        "tautline_certificate_expiry_timestamp_seconds{name=\"localhost\"",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    assert_eq!(get("/connections").0, 200);
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn the_log_is_json_and_changes_its_level_while_the_server_runs() {
    let home = Home::new();
    let admin = home.0.join("admin.sock");
    let at = format!("unix:{}", admin.display());
    let server = home.serve(&["--plain", "--admin", &at, "--log-format", "json"]);
    assert_eq!(exchange(&admin, "GET /log", ""), (200, "warn\n".to_owned()));
    let refused = || {
        let mut stream = TcpStream::connect(server.url.strip_prefix("ws://").unwrap()).unwrap();
        // A page of another site asks for a WebSocket.
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Origin: https://evil.example\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    };
    refused();
    assert_eq!(exchange(&admin, "PUT /log", "tautline_engine=info").0, 200);
    refused();
    assert_eq!(exchange(&admin, "PUT /log", "loud").0, 400);
    let err = server.stop().err;
    let lines: Vec<Value> = err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let refusals: Vec<&Value> = lines.iter().filter(|line| line["target"] == "tautline_engine::peer_log").collect();
    assert_eq!(refusals.len(), 1, "{err}");
    assert_eq!(refusals[0]["level"], "info");
    assert!(refusals[0]["time"].as_str().unwrap().ends_with('Z'), "{err}");
    assert!(refusals[0]["message"].as_str().unwrap().contains("origin"), "{err}");
}

#[test]
fn addresses_that_others_reach_are_refused() {
    let home = Home::new();
    for address in ["0.0.0.0:0", "9100", "unix:"] {
        let run = home.run(&["serve", "--plain", "--admin", address]);
        assert!(run.code == Some(2) && run.err.contains("--admin"), "{address}: {run:?}");
    }
}
