//! The admin listener of `taut serve`, and the log whose level it changes.

use super::tls::eventually;
use super::{Home, Served};
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

/// A server that trusts its mask lets nobody in for a moment: the file never has a wider mode than its last one.
#[test]
fn the_admin_socket_is_made_with_its_mode() {
    let home = Home::new();
    let admin = home.0.join("admin.sock");
    let (at, watched) = (format!("unix:{}", admin.display()), admin.clone());
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let watched_over = over.clone();
    let watching = std::thread::spawn(move || {
        let mut seen = std::collections::BTreeSet::new();
        while !watched_over.load(std::sync::atomic::Ordering::Relaxed) {
            if let Ok(file) = std::fs::metadata(&watched) {
                seen.insert(std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777);
            }
        }
        seen
    });
    for _ in 0..5 {
        let server = home.serve_by(Path::new("/bin/sh"), &[], |command| {
            let taut = env!("CARGO_BIN_EXE_taut");
            let run = format!("umask 000; exec {taut} serve --plain --listen 127.0.0.1:0 --admin {at}");
            *command = home.command(Path::new("/bin/sh"), &["-c", &run]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        });
        assert_eq!(exchange(&admin, "GET /readyz", "").0, 200);
        assert_eq!(server.stop().code, Some(0));
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(watching.join().unwrap().into_iter().collect::<Vec<_>>(), [0o660]);
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

fn signal(server: &Served, signal: &str) {
    assert!(std::process::Command::new("kill").args([signal, &server.pid()]).status().unwrap().success());
}

#[test]
fn a_delayed_drain_accepts_connections_that_a_load_balancer_still_sends() {
    let home = Home::new();
    let admin = home.0.join("admin.sock");
    let at = format!("unix:{}", admin.display());
    let server = home.serve(&["--plain", "--admin", &at, "--drain-delay", "3600"]);
    assert_eq!(exchange(&admin, "GET /readyz", "").0, 200);
    signal(&server, "-TERM");
    eventually("it is not ready", || exchange(&admin, "GET /readyz", "").0 == 503);
    assert_eq!(exchange(&admin, "GET /healthz", "").0, 200);
    let said = home.run_with(&["connect", "--wait", "5", &server.url], "hello\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{said:?}");
    // The second signal ends it at once.
    let said = server.stop();
    assert!(said.code == Some(1) && said.err.contains("not ready any more"), "{said:?}");
}

#[test]
fn connections_are_closed_after_the_delay() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--drain-delay", "0.3"]);
    let connected = home.taut(&["connect", &server.url]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(server.stop().code, Some(0));
    assert!(connected.wait_with_output().unwrap().status.success(), "closed with 1001");
}

#[test]
fn a_public_admin_listener_needs_a_token_in_a_file() {
    let home = Home::new();
    let public = ["serve", "--plain", "--admin", "0.0.0.0:0", "--admin-public"];
    let said = home.run(&public);
    assert!(said.code == Some(2) && said.err.contains("--admin-token-file"), "{said:?}");
    let file = home.0.join("token");
    std::fs::write(&file, "short\n").unwrap();
    let name = file.to_str().unwrap();
    for command in ["serve", "check"] {
        let said = home.run(&[&[command][..], &public[1..], &["--admin-token-file", name]].concat());
        assert!(said.code == Some(2) && said.err.contains("openssl rand"), "{said:?}");
    }
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
    let said = home.run(&["check", "--plain", "--admin", "0.0.0.0:0", "--admin-token-file", name]);
    assert!(said.code == Some(2) && said.err.contains("--admin-public"), "{said:?}");
    let log = home.0.join("log");
    let options = [&public[1..], &["--admin-token-file", name]].concat();
    let _server = home.serve_with(&options, |command| {
        command.stderr(std::fs::File::create(&log).unwrap());
    });
    // The line of the log may come later than the server's.
    let port = || -> Option<u16> {
        let said = std::fs::read_to_string(&log).unwrap();
        said.split_once("http://0.0.0.0:")?.1.split_once('/')?.0.parse().ok()
    };
    eventually("it has named its address", || port().is_some());
    let port = port().unwrap();
    for (login, status) in [("", "401"), ("Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n", "200")] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: node\r\n{login}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

#[test]
fn connections_have_their_paths_and_can_be_closed() {
    let home = Home::new();
    let admin = home.0.join("admin.sock");
    let at = format!("unix:{}", admin.display());
    let server = home.serve(&["--plain", "--admin", &at]);
    let mut connected = home.taut(&["connect", &format!("{}/room?token=secret", server.url)]);
    let connected = connected.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let listed = || -> Value { serde_json::from_str(&exchange(&admin, "GET /connections", "").1).unwrap() };
    eventually("it is open", || listed()["connections"][0]["state"] == "open");
    let one = listed()["connections"][0].clone();
    assert_eq!(one["path"], "/room", "{one}");
    assert!(one["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{one}");
    let id = one["id"].as_str().unwrap();
    assert_eq!(exchange(&admin, &format!("DELETE /connections/{id}?code=4000"), "").0, 200);
    let said = connected.wait_with_output().unwrap();
    assert!(String::from_utf8(said.stderr).unwrap().contains("4000"));
}
