//! `taut serve --app hub --rules`, and `taut hub`.

use super::admin::exchange;
use super::faults::signal;
use super::tls::eventually;
use super::{Finished, Home, Served};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
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
fn figures_of_namespaces_are_shown_and_go_on_in_the_process_that_takes_over() {
    let (home, first) = hub();
    assert_eq!(first.stop().code, Some(0));
    let options = ["--plain", "--app", "hub", "--rules", "hub.toml", "--admin", "unix:admin.sock"];
    let mut server = home.serve(&options);
    for number in ["1", "2"] {
        assert_eq!(ask(&home, &server, "publish", &["log:a", number]).code, Some(0));
    }
    let has = |line: &str| exchange(&home.0.join("admin.sock"), "GET /metrics", "").1.contains(line);
    let published = "taut_hub_publications_total{namespace=\"log:*\"} 2\n";
    assert!(has(published) && has("taut_hub_subscribers{namespace=\"(none)\"} 0\n"));
    assert!(has("taut_hub_left_out_total{namespace=\"log:*\"} 0\n"));
    let upgraded = home.run(&["upgrade", &server.pid()]);
    assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
    let mut old = server.child.take().unwrap();
    assert_eq!(old.wait().unwrap().code(), Some(0));
    eventually("the new process has the totals", || has(published));
    let mut lines = BufReader::new(old.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("have moved")).unwrap();
    signal(&super::upgrade::successor(&said), "-KILL");
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
    let all = ask(&home, &server, "connections", &[]);
    assert!(all.code == Some(0) && all.out.contains("\"number\":0"), "{all:?}");
    let of_ann = ask(&home, &server, "connections", &["ann"]);
    assert!(of_ann.code == Some(0) && of_ann.out.contains("\"names\":[]"), "{of_ann:?}");
    let name = "0123456789abcdef/0.1.2";
    let one = ask(&home, &server, "disconnect", &["--connection", name]);
    assert!(one.code == Some(0) && one.out.contains(name), "{one:?}");
    let refused = ask(&home, &server, "disconnect", &["--connection", "ann"]);
    assert!(refused.code == Some(1) && refused.err.contains("take it from `connections`"), "{refused:?}");
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

/// A token of `ann` until the year 2100, signed with `0123456789abcdef0123456789abcdef`: head, claims and signature.
const TOKEN: [&str; 3] = [
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
    "eyJzdWIiOiJhbm4iLCJleHAiOjQxMDI0NDQ4MDB9",
    "QUBG8ORn79WF-qLlBM0DYBJAepMsIRX3NJGSMMdYxBo",
];

#[test]
fn a_token_of_a_query_is_in_no_log_and_no_list() {
    for format in ["text", "json"] {
        let home = Home::new();
        fs::write(home.0.join("app.key"), "0123456789abcdef0123456789abcdef\n").unwrap();
        let tokens = "[tokens]\nsecrets = [\"app.key\"]\nquery = \"token\"\n";
        fs::write(home.0.join("hub.toml"), format!("{tokens}{RULES}")).unwrap();
        let options = ["--plain", "--app", "hub", "--rules", "hub.toml", "--access-log", "access.log"];
        let more = ["--admin", "unix:admin.sock", "--log-format", format];
        let log = fs::File::create(home.0.join("server.log")).unwrap();
        let server = home.serve_with(&[&options[..], &more].concat(), |command| {
            command.env("RUST_LOG", "trace").stderr(log);
        });
        let token = TOKEN.join(".");
        let mut client = tautline::connect(&format!("{}/in?token={token}", server.url)).unwrap();
        client.text(r#"{"type":"subscribe","topic":"log:a"}"#).unwrap();
        assert!(client.receive().unwrap().data().starts_with(b"{\"type\":\"subscribed\""));
        // A token that is refused, one of a stream of events, and one of a request that the hub does not take.
        assert!(tautline::connect(&format!("{}/refused?token={token}x", server.url)).is_err());
        for (path, status) in [("/events?topic=log:a&", "200"), ("/other?", "404")] {
            let mut stream = TcpStream::connect(server.url.strip_prefix("ws://").unwrap()).unwrap();
            write!(stream, "GET {path}token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut head = String::new();
            BufReader::new(stream).read_line(&mut head).unwrap();
            assert!(head.contains(status), "{head}");
        }
        let (_, listed) = exchange(&home.0.join("admin.sock"), "GET /connections", "");
        assert!(listed.contains("/in"), "{listed}");
        drop(client);
        let read = |name: &str| fs::read_to_string(home.0.join(name)).unwrap();
        eventually("all have a line", || {
            ["/in", "/refused", "/events", "/other"].iter().all(|path| read("access.log").contains(path))
        });
        assert_eq!(server.stop().code, Some(0));
        let logged = read("server.log");
        assert!(logged.len() > 1_000, "the log has every step: {logged}");
        for (name, text) in [("access log", read("access.log")), ("log", logged), ("list", listed)] {
            let part = TOKEN.iter().find(|part| text.contains(**part));
            assert_eq!(part, None, "the {name} in {format} has the token: {text}");
        }
    }
}

#[test]
fn a_hub_without_rules_gives_events_to_pages_of_this_machine_only() {
    for (options, rules, host, status) in [
        (&[][..], "", "localhost:1", "200"),
        (&[], "", "127.0.0.1", "200"),
        (&[], "", "evil.example", "403"),
        (&["--origin", "https://hub.example"], "", "hub.example", "200"),
        (&["--origin", "https://hub.example"], "", "evil.example", "403"),
        // Rules say what anyone may read.
        (&["--rules", "hub.toml"], RULES, "hub.example", "200"),
    ] {
        let home = Home::new();
        fs::write(home.0.join("app.key"), "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::write(home.0.join("hub.toml"), rules).unwrap();
        let server = home.serve(&[&["--plain", "--app", "hub"], options].concat());
        let mut stream = TcpStream::connect(server.url.strip_prefix("ws://").unwrap()).unwrap();
        write!(stream, "GET /events?topic=log:a HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut head = String::new();
        BufReader::new(stream).read_line(&mut head).unwrap();
        assert!(head.contains(status), "{options:?} {host}: {head}");
    }
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
