//! `taut probe`. `cargo xtask probe` has it find faults in endpoints of other software.

use super::{Finished, Home};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Serves one connection with `answer`, and returns the request's lines.
fn answer(listener: TcpListener, answer: &'static str) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        lines
    })
}

pub(crate) fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn ids(out: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(out).unwrap();
    report["verdicts"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_good_endpoint_has_no_verdict() {
    let home = Home::new();
    let server = home.serve(&["--deflate", "--subprotocol", "chat"]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let options =
        ["--deflate", "--subprotocol", "chat", "--idle", "300ms", "--slo", "message=1MiB", "--slo", "days=14"];
    let address = server.url.trim_start_matches("wss://").trim_end_matches('/');
    let said = home.run(&[&["probe", "--json", "--strict", "--address", address, &url], &options[..]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(ids(&said.out), [""; 0], "{}", said.out);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let facts = &report["facts"];
    assert_eq!((&facts["resumption"]["resumes"], &facts["session"]["key_update"]), (&true.into(), &true.into()));
    assert_eq!(facts["sizes"]["accepted"], 1 << 20, "{}", facts["sizes"]);
    assert_eq!(facts["http"]["subprotocol"], "chat");
    assert_eq!(facts["session"]["close"]["code"], 1000);
}

#[test]
fn the_plan_bounds_what_is_sent() {
    let home = Home::new();
    let (silent, address) = listener();
    let said = home.run(&["probe", "--plan", "--idle", "90s", &format!("ws://{address}/")]);
    assert!(said.code == Some(0) && said.out.contains("at most") && said.out.contains("no message"), "{said:?}");
    // Nobody connected.
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_err());
    let server = home.serve(&[]);
    let said = home.run(&["probe", "--plan", &server.url]);
    let planned: Vec<u64> = said.out.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let report: Value = serde_json::from_str(&home.run(&["probe", "--json", &server.url]).out).unwrap();
    let names = ["connections", "requests", "pings", "message_headers"];
    let sent = names.map(|name| report["facts"]["sent"][name].as_u64().unwrap());
    assert!(
        planned.len() == sent.len() && sent.iter().zip(&planned).all(|(sent, most)| sent <= most),
        "{planned:?} {sent:?}"
    );
    assert!(sent.iter().all(|&count| count > 0), "{sent:?}");
}

#[test]
fn requests_go_only_to_trusted_servers() {
    let (home, stranger) = (Home::new(), Home::new());
    let server = stranger.serve(&[]);
    drop(home.serve(&[]));
    let said = home.run(&["probe", "--json", "-H", "Authorization: secret", &server.url]);
    assert_eq!(said.code, Some(3), "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&report["facts"]["sent"]["requests"], &report["facts"]["http"]), (&0.into(), &Value::Null));
    assert_eq!(report["verdicts"][0]["level"], "fault");
    let said = home.run(&["probe", "--insecure", "--json", &server.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_refusal_is_shown_without_commands_for_the_terminal() {
    let home = Home::new();
    let (listening, address) = listener();
    let server = answer(listening, "HTTP/1.1 403 No\r\nX-Why: \u{9b}31m\r\nContent-Length: 12\r\n\r\n\x1b[2J go away");
    let said = home.run(&["probe", "-H", "Cookie: a=b", &format!("ws://{address}/path?q")]);
    let request = server.join().unwrap();
    assert_eq!(request[0], "GET /path?q HTTP/1.1");
    assert!(request.iter().any(|line| line.eq_ignore_ascii_case("cookie: a=b")), "{request:?}");
    assert_eq!(said.code, Some(3), "{said:?}");
    for text in ["HTTP/1.1 403", "go away", "upgrade.forbidden", "--origin"] {
        assert!(said.out.contains(text), "{text} is missing in {}", said.out);
    }
    assert!(!said.out.contains(['\x1b', '\u{9b}']) && said.err.contains("403"), "{said:?}");
}

/// As by Ctrl-Z and `fg`, which end the kernel's wait for an answer.
#[test]
fn a_probe_that_was_stopped_goes_on() {
    let home = Home::new();
    let (listening, address) = listener();
    let mut probe = home.taut(&["probe", "--json", &format!("ws://{address}/")]);
    let probe = probe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stream, _) = listening.accept().unwrap();
    let mut request = BufReader::new(&stream).lines();
    while !request.next().unwrap().unwrap().is_empty() {}
    for signal in ["-STOP", "-CONT"] {
        assert!(Command::new("kill").args([signal, &probe.id().to_string()]).status().unwrap().success());
        thread::sleep(Duration::from_millis(100));
    }
    (&stream).write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").unwrap();
    let said = Finished::of(probe.wait_with_output().unwrap());
    assert_eq!((said.code, ids(&said.out)), (Some(3), vec!["upgrade.forbidden".to_owned()]), "{said:?}");
}

#[test]
fn redirections_take_no_headers_to_other_hosts() {
    let home = Home::new();
    let (second, to) = listener();
    let (first, address) = listener();
    let location = format!("HTTP/1.1 302 Found\r\nLocation: http://{to}/new\r\nContent-Length: 0\r\n\r\n");
    let first = answer(first, location.leak());
    let second = answer(second, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let url = format!("ws://{address}/");
    let said = home.run(&["probe", "--json", "--follow", "-H", "Authorization: secret", &url]);
    assert!(first.join().unwrap().iter().any(|line| line.contains("secret")));
    let request = second.join().unwrap();
    assert!(request[0].contains("/new") && !request.iter().any(|line| line.contains("secret")), "{request:?}");
    assert_eq!((said.code, ids(&said.out)), (Some(3), vec!["upgrade.not-found".to_owned()]));
}

#[test]
fn the_way_leads_through_a_proxy() {
    let home = Home::new();
    let server = home.serve(&[]);
    let (listening, address) = listener();
    // A proxy for as many tunnels as come. It ends with the test.
    thread::spawn(move || {
        for client in listening.incoming().map_while(Result::ok) {
            thread::spawn(move || tunnel(client));
        }
    });
    let proxy = format!("http://{address}");
    let said = home.run(&["probe", "--json", "--proxy", &proxy, &server.url]);
    assert_eq!((said.code, ids(&said.out)), (Some(0), Vec::new()), "{said:?}");
    let said = home.run(&["probe", "--json", "--proxy", &proxy, "wss://127.0.0.1:1/"]);
    assert_eq!((said.code, ids(&said.out)), (Some(3), vec!["proxy.failed".to_owned()]), "{said:?}");
}

/// Answers one CONNECT, and copies both directions.
pub(crate) fn tunnel(mut client: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let Ok(server) = TcpStream::connect(head.split_whitespace().nth(1)?) else {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").ok();
    };
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let copy = |mut from: TcpStream, mut to: TcpStream| {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let (back, forth) = (server.try_clone().ok()?, client.try_clone().ok()?);
    thread::spawn(move || copy(back, forth));
    copy(client, server);
    Some(())
}

#[test]
fn bad_arguments_are_refused() {
    let home = Home::new();
    for arguments in [
        &["probe", "ftp://localhost/"][..],
        &["probe", "localhost"],
        &["probe", "--slo", "p95=1ms", "wss://localhost/"],
        &["probe", "--idle", "90", "wss://localhost/"],
        &["probe", "--subprotocol", "a b", "wss://localhost/"],
        &["probe", "-H", "Host: other", "wss://localhost/"],
        &["probe", "https://user:pw@localhost/"],
    ] {
        let said = home.run(arguments);
        assert!(said.code == Some(2) && said.err.lines().count() == 1, "{said:?}");
    }
}
