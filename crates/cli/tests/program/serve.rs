use super::Home;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn a_development_certificate_is_made_once_and_reported() {
    let home = Home::new();
    let first = home.serve(&[]);
    let said = first.stop();
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("a development certificate for localhost is used"), "{}", said.err);
    let authority = std::fs::read(home.0.join("tautline/ca.pem")).unwrap();
    assert_eq!(home.serve(&[]).stop().code, Some(0));
    assert_eq!(std::fs::read(home.0.join("tautline/ca.pem")).unwrap(), authority);
}

#[test]
fn a_missing_place_for_a_development_certificate_is_reported() {
    let home = Home::new();
    std::fs::write(home.0.join("tautline"), "a file in the folder's place").unwrap();
    let said = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("cannot make ") && said.err.contains("pass --cert and --key instead"), "{said:?}");
}

#[test]
fn a_port_in_use_names_its_process() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let second = home.run(&["serve", "--plain", "--listen", &format!("127.0.0.1:{}", server.port())]);
    assert_eq!(second.code, Some(3));
    let expected = format!("in use by taut (process {})", server.pid());
    assert!(second.err.contains(&expected) && second.err.contains("--listen"), "{}", second.err);
}

#[test]
fn a_key_that_belongs_to_another_certificate_is_refused() {
    let home = Home::new();
    for dir in ["a", "b"] {
        assert_eq!(home.run(&["cert", "--dir", dir]).code, Some(0));
    }
    let mixed = home.run(&["serve", "--cert", "a/cert.pem", "--key", "b/key.pem"]);
    assert_eq!(mixed.code, Some(2));
    assert!(mixed.err.contains("does not belong to the certificate"), "{}", mixed.err);
    let missing = home.run(&["serve", "--cert", "a/cert.pem", "--key", "c/key.pem"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("cannot read the key c/key.pem"), "{}", missing.err);
    let uneven = home.run(&["serve", "--cert", "a/cert.pem", "--cert", "b/cert.pem", "--key", "a/key.pem"]);
    assert_eq!(uneven.code, Some(2));
    assert!(uneven.err.contains("2 --cert but 1 --key"), "{}", uneven.err);
}

#[test]
fn a_browser_gets_a_description() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let mut stream = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here:1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("taut connect ws://here:1/"), "{answer}");
}

#[test]
fn the_feed_numbers_its_messages() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "feed", "--feed-rate", "200", "--feed-size", "100"]);
    // The input has ended, so the client waits until no message comes. The feed never ends, so the server ends the client.
    let mut client = home.taut(&["connect", &server.url]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let out = std::io::BufReader::new(client.stdout.take().unwrap());
    let lines: Vec<String> = std::io::BufRead::lines(out).take(5).map(Result::unwrap).collect();
    assert!(lines.iter().all(|line| line.len() == 100), "{lines:?}");
    let numbers: Vec<u64> = lines
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["sequence"].as_u64().unwrap())
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    assert_eq!(server.stop().code, Some(0));
    client.wait().unwrap();
}

#[test]
fn both_ends_print_stages() {
    let home = Home::new();
    let server = home.serve(&["--stages"]);
    let said = home.run_with(&["connect", "--stages", "--wait", "2", &server.url], "one\ntwo\nthree\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "one\ntwo\nthree\n"), "{}", said.err);
    let served = server.stop();
    for (end, table) in [("client", &said.err), ("server", &served.err)] {
        let app = table.lines().find(|line| line.starts_with("app ")).unwrap_or_else(|| panic!("{end}: {table}"));
        assert_eq!(app.split_whitespace().nth(1), Some("3"), "{end}: {table}");
        assert!(table.contains("clock: ") && table.lines().any(|line| line.starts_with("tls ")), "{end}: {table}");
    }
}

#[test]
fn offloaded_work_is_reported() {
    let home = Home::new();
    let options = ["-v", "--handshake-min-signature", "0", "--handshake-max-stall", "0"];
    let server = home.serve(&[&options[..], &["--offload-records", "65536", "--record-threads", "1"]].concat());
    let large = "x".repeat(100_000);
    let said = home.run_with(&["connect", "--wait", "2", &server.url], &format!("{large}\n"));
    assert_eq!((said.code, said.out.trim_end()), (Some(0), large.as_str()), "{}", said.err);
    let report = server.stop().err;
    assert!(
        report.contains("ECDSA-256: a signature takes ") && report.contains("so full handshakes leave the loop"),
        "{report}"
    );
    assert!(report.contains("\nhandshakes on other threads: 1 done, 0 of them stalled, 0 refused\n"), "{report}");
    assert!(report.contains("\nrecords on other threads: asked 1 times"), "{report}");
    assert!(
        report.contains("\nkey ECDSA-256: a signature takes ")
            && report.contains(", full handshakes on other threads; "),
        "{report}"
    );

    let server = home.serve(&["--handshake-min-signature", "0", "--handshake-max-wait", "0"]);
    let refused = home.run(&["connect", &server.url]);
    assert_ne!(refused.code, Some(0));
    let report = server.stop().err;
    assert!(report.contains("\nhandshakes on other threads: 0 done, 0 of them stalled, 1 refused\n"), "{report}");

    let useless = home.run(&["serve", "--record-threads", "1"]);
    assert_eq!(useless.code, Some(2));
    assert!(useless.err.contains("--record-threads needs --offload-records"), "{}", useless.err);
}

#[test]
fn market_data_begins_with_the_first_client() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "market"]);
    let mut client = home.taut(&["connect", &server.url]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(client.stdout.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    assert_eq!(first.trim_end(), tautline_venue::Market::new().next().unwrap().text);
    drop(out);
    assert_eq!(server.stop().code, Some(0));
    client.wait().unwrap();
}

#[test]
fn a_crash_leaves_no_keys_behind() {
    use std::os::unix::process::ExitStatusExt;
    let dumps = |arguments: &[&str]| {
        let home = Home::new();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_taut"), "serve"]);
        shell.args(["--listen", "127.0.0.1:0"]).args(arguments).env("XDG_DATA_HOME", &home.0).current_dir(&home.0);
        let mut child = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        // It listens once it has printed its address.
        child.stdout.take().unwrap().read_exact(&mut [0; 9]).unwrap();
        let killed = std::process::Command::new("kill").args(["-ABRT", &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(6));
        status.core_dumped()
    };
    assert!(!dumps(&[]));
    if !dumps(&["--core-dumps"]) {
        println!("this system writes no core dumps, so that the first half shows little");
    }
}

/// The parts of a response to `GET path`: head and body.
fn get(port: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: venue\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_venue_serves_snapshots_and_streams_and_bans_who_asks_too_much() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "venue", "--symbols", "ABCUSDT"]);
    let depth = "/api/v3/depth?symbol=ABCUSDT&limit=3";
    let (head, body) = get(server.port(), depth);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let book: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((book["bids"].as_array().unwrap().len(), book["asks"].as_array().unwrap().len()), (3, 3));

    let url = format!("{}/ws", server.url.trim_end_matches('/'));
    let subscribe = r#"{"method":"SUBSCRIBE","params":["abcusdt@trade"],"id":1}"#;
    let mut command = home.taut(&["connect", &url]);
    let command = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut client = command.spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    writeln!(input, "{subscribe}").unwrap();
    let out = std::io::BufReader::new(client.stdout.take().unwrap());
    let lines: Vec<String> = std::io::BufRead::lines(out).take(3).map(Result::unwrap).collect();
    assert_eq!(lines[0], r#"{"result":null,"id":1}"#);
    let numbers = lines[1..].iter().map(|line| {
        let trade: serde_json::Value = serde_json::from_str(line).unwrap();
        trade["t"].as_u64().unwrap()
    });
    let numbers: Vec<u64> = numbers.collect();
    assert_eq!(numbers[1], numbers[0] + 1);
    client.kill().unwrap();
    client.wait().unwrap();

    // More than five requests in a second end the connection, and the address is banned.
    let said = home.run_with(&["connect", "--wait", "60", &url], &"{}\n".repeat(100));
    assert!(said.err.contains("1008") && said.err.contains("too many messages"), "{said:?}");
    assert!(get(server.port(), depth).0.starts_with("HTTP/1.1 418 "));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_venue_has_one_loop() {
    let said = Home::new().run(&["serve", "--plain", "--app", "venue", "--shards", "2"]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("--app venue has one market"), "{}", said.err);
}

#[test]
fn a_quiet_client_is_closed_after_the_idle_time() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--ping", "off", "--idle", "200ms"]);
    // The input ends at once, and nothing but the server ends this wait.
    let said = home.run_with(&["connect", "--wait", "1000", &server.url], "");
    assert!(said.code != Some(2) && said.err.contains("100"), "{said:?}");
    let said = home.run(&["serve", "--plain", "--idle", "10s"]);
    assert!(said.code == Some(2) && said.err.contains("--ping"), "{said:?}");
}
