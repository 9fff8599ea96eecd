//! `taut serve --app hub --rules`, and `taut hub`.

use super::tls::eventually;
use super::{Finished, Home, Served};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

const RULES: &str = "
[[namespace]]
topics = \"log:*\"
anyone = [\"subscribe\", \"history\"]

[[key]]
name = \"app\"
file = \"app.key\"
scopes = [\"publish\", \"history\", \"users\"]
topics = [\"log:*\"]
";

/// A folder with rules, and a hub that has them.
fn hub() -> (Home, Served) {
    let home = Home::new();
    fs::write(home.0.join("app.key"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(home.0.join("hub.toml"), RULES).unwrap();
    let server = home.serve(&["--plain", "--app", "hub", "--rules", "hub.toml"]);
    (home, server)
}

/// Runs `taut hub` with the key.
fn ask(home: &Home, server: &Served, operation: &str, rest: &[&str]) -> Finished {
    let url = server.url.replacen("ws://", "http://", 1);
    home.run(&[&["hub", operation, &url, "--key-file", "app.key"], rest].concat())
}

#[test]
fn taut_hub_publishes_and_reads() {
    let (home, server) = hub();
    for number in ["1", "2"] {
        let said = ask(&home, &server, "publish", &["log:a", number]);
        assert!(said.code == Some(0) && said.out.contains("\"offset\""), "{said:?}");
    }
    let all = ask(&home, &server, "history", &["log:a"]);
    assert!(all.code == Some(0) && all.out.contains("\"data\":1") && all.out.contains("\"data\":2"), "{all:?}");
    let later = ask(&home, &server, "history", &["log:a", "--after", "1"]);
    assert!(!later.out.contains("\"data\":1") && later.out.contains("\"data\":2"), "{later:?}");
    for _ in 0..2 {
        let said = ask(&home, &server, "publish", &["--idempotency-key", "k", "log:a", "3"]);
        assert!(said.out.contains("\"offset\":3"), "{said:?}");
    }
    for (operation, rest) in [("disconnect", &["ann"][..]), ("revoke", &["ann", "60"])] {
        let said = ask(&home, &server, operation, rest);
        assert!(said.code == Some(0) && said.out.contains("\"connections\":0"), "{said:?}");
    }
    let refused = ask(&home, &server, "publish", &["room", "1"]);
    assert!(refused.code == Some(1) && refused.err.contains("`topics` of the key"), "{refused:?}");
    fs::write(home.0.join("app.key"), "another key that the hub does not know").unwrap();
    let refused = ask(&home, &server, "publish", &["log:a", "1"]);
    assert!(refused.code == Some(1) && refused.err.contains("401"), "{refused:?}");
}

#[test]
fn a_reload_ends_the_subscription_of_a_live_connection() {
    let (home, server) = hub();
    let mut client = home.taut(&["connect", &server.url]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    writeln!(input, r#"{{"type":"subscribe","topic":"log:a","after":0}}"#).unwrap();
    assert!(next().contains("subscribed"));
    ask(&home, &server, "publish", &["log:a", "1"]);
    assert!(next().contains("\"data\":1"));
    // A file with a fault changes nothing.
    let hup = || assert!(Command::new("kill").args(["-HUP", &server.pid()]).status().unwrap().success());
    fs::write(home.0.join("new.toml"), "[[namespce]]\n").unwrap();
    fs::rename(home.0.join("new.toml"), home.0.join("hub.toml")).unwrap();
    hup();
    ask(&home, &server, "publish", &["log:a", "2"]);
    assert!(next().contains("\"data\":2"));
    fs::write(home.0.join("new.toml"), RULES.replace("anyone", "users")).unwrap();
    fs::rename(home.0.join("new.toml"), home.0.join("hub.toml")).unwrap();
    hup();
    assert!(next().contains("no right to subscribe"));
    // A change is seen without a signal, too.
    fs::write(home.0.join("hub.toml"), RULES).unwrap();
    eventually("the rules are read again", || {
        writeln!(input, r#"{{"type":"subscribe","topic":"log:a","after":2}}"#).unwrap();
        next().contains(r#"{"type":"subscribed""#)
    });
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(server.stop().err.contains("the rules of the hub stay as they were"));
}

/// An application that answers each request on a connection of its own.
fn application(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            let length =
                head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            assert!(head.to_ascii_lowercase().contains("tautline-signature: t="), "{head}");
            let length = answer.len();
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}");
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_server_asks_its_application_also_when_it_is_hardened() {
    let subscribe = r#"{"type":"subscribe","topic":"log:a"}"#;
    let home = Home::new();
    fs::write(home.0.join("app.key"), "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(home.0.join("hook.secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let table = [
        (r#"{"allow":true,"user":"ann"}"#, &["--harden"][..], "\"subscribed\""),
        (r#"{"allow":false,"status":402,"reason":"pay first"}"#, &[], "402"),
    ];
    for (answer, options, expected) in table {
        let url = application(answer);
        let hooks = format!("[hooks]\nurl = \"{url}\"\nsecret = \"hook.secret\"\nasks = [\"connect\"]\nwithin = 30\n");
        fs::write(home.0.join("hub.toml"), format!("{hooks}{RULES}")).unwrap();
        let server = home.serve(&[&["--plain", "--app", "hub", "--rules", "hub.toml"], options].concat());
        let mut client = home.taut(&["connect", "--wait", "30", &server.url]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that is refused reads nothing.
        let _ = writeln!(client.stdin.take().unwrap(), "{subscribe}");
        let mut said = String::new();
        let mut output = BufReader::new(client.stdout.take().unwrap());
        if output.read_line(&mut said).unwrap() == 0 {
            client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        }
        client.kill().unwrap();
        client.wait().unwrap();
        assert!(said.contains(expected), "{said}");
    }
}
