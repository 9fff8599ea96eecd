use super::privilege::is_root;
use super::{Finished, Home};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;

#[test]
fn sends_input_lines_and_prints_messages() {
    let home = Home::new();
    for tls in [&["--plain"][..], &["--tls", "fused"], &["--tls", "rustls"]] {
        let server = home.serve(tls);
        let said = home.run_with(&["connect", "--wait", "2", &server.url], "hello\nwörld\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\nwörld\n"), "{}", said.err);
        assert_eq!(server.stop().code, Some(0));
    }
}

#[test]
fn a_peer_cannot_command_the_terminal() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let escape = "\x1b]0;owned\x07 and text\n";
    let piped = home.run_with(&["connect", "--wait", "2", &server.url], escape);
    assert_eq!((piped.code, piped.out.as_str()), (Some(0), escape), "{}", piped.err);
    // Python gives the program a terminal for its output only, so that nothing is echoed.
    let code = "import os,pty,subprocess,sys\n\
                ours,theirs=pty.openpty()\n\
                child=subprocess.Popen(sys.argv[1:],stdin=subprocess.PIPE,stdout=theirs)\n\
                child.stdin.write(b'\\x1b]0;owned\\x07 and text\\n');child.stdin.close()\n\
                child.wait();os.close(theirs)\n\
                print(repr(os.read(ours,1000)))\n";
    let taut = env!("CARGO_BIN_EXE_taut");
    let shown = std::process::Command::new("python3")
        .args(["-c", code, taut, "connect", "--wait", "2", &server.url])
        .env("XDG_DATA_HOME", &home.0)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.trim(), r"b'\\u{1b}]0;owned\\u{7} and text\r\n'");
}

#[test]
fn input_beyond_all_buffers_waits_in_the_pipe() {
    let home = Home::new();
    let server = home.serve(&[]);
    let input = format!("{}\n", "x".repeat(60_000)).repeat(100);
    let said = home.run_with(&["connect", "--wait", "2", &server.url], &input);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out == input, "{} of {} bytes came back", said.out.len(), input.len());
    // The error is the reason for the end, and not the end itself.
    let input = "x".repeat(2_000_000) + "\nhello\n";
    let said = home.run_with(&["connect", &server.url], &input);
    assert!(said.code == Some(3) && said.err.contains("above the limit of 1048576 bytes"), "{said:?}");
}

#[test]
fn arguments_that_no_attempt_can_use_end_it_at_once() {
    let home = Home::new();
    // Nobody listens at port 1.
    for arguments in
        [&["-H", "Upgrade: other"][..], &["--subprotocol", "a b"], &["--proxy", "http://a%3Ab:c@127.0.0.1:1"]]
    {
        for reconnect in [&[][..], &["--reconnect"]] {
            let said = home.run(&[&["connect", "ws://127.0.0.1:1/"], arguments, reconnect].concat());
            assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{arguments:?}: {}", said.err);
        }
    }
    let said = home.run(&["load", "ws://127.0.0.1:1/", "-H", "Upgrade: other", "--seconds", "1"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
}

#[test]
fn verbose_prints_negotiated_values() {
    let home = Home::new();
    let server = home.serve(&["--deflate", "--subprotocol", "chat"]);
    let offers = ["--deflate", "--subprotocol", "other", "--subprotocol", "chat"];
    let said = home.run_with(&[&["connect", "-v", "--wait", "0", &server.url], &offers[..]].concat(), "");
    assert_eq!(said.code, Some(0));
    for value in [
        "TLSv1.3",
        "session      new",
        "101 Switching Protocols",
        "permessage-deflate",
        "subprotocol  chat",
        "certificate  CN=",
        "for localhost 127.0.0.1",
        "EC P-256",
        "days left",
        "times        TCP ",
        " ms, TLS ",
        " ms, upgrade ",
    ] {
        assert!(said.err.contains(value), "{value} is missing in {}", said.err);
    }
}

#[test]
fn connects_over_a_unix_socket() {
    let home = Home::new();
    let path = home.0.join("taut.sock");
    let address = format!("unix:{}", path.display());
    let server = home.serve(&["--plain", "--unix", path.to_str().unwrap()]);
    let said = home.run_with(&["connect", "--wait", "2", "--address", &address, "ws://localhost/"], "hi\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hi\n"), "{}", said.err);
    drop(server);
}

/// As a proxy of another user needs it, with the privileges that the server gives up and without.
#[test]
fn a_unix_socket_has_the_mode_that_is_asked_for() {
    let home = Home::new();
    let path = home.0.join("taut.sock");
    let at = ["--plain", "--unix", path.to_str().unwrap(), "--unix-mode", "666"];
    let mut options = vec![&[][..], &["--harden"]];
    if is_root() {
        options.push(&["--harden", "--user", "nobody"]);
    }
    for options in options {
        let server = home.serve(&[&at[..], options].concat());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o666, "{options:?}");
        let address = format!("unix:{}", path.display());
        let said = home.run_with(&["connect", "--wait", "5", "--address", &address, "ws://localhost/"], "hi\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hi\n"), "{}", said.err);
        drop(server);
        let _ = std::fs::remove_file(&path);
    }
    for (options, hint) in [
        (&["--plain", "--unix", "x.sock", "--unix-mode", "rw"][..], "three octal digits"),
        (&["--plain", "--listen", "127.0.0.1:0", "--unix-mode", "660"], "add --unix PATH"),
    ] {
        for command in ["serve", "check"] {
            let said = home.run(&[&[command], options].concat());
            assert!(said.code == Some(2) && said.err.contains(hint), "{command}: {said:?}");
        }
    }
}

#[test]
fn each_failure_names_the_remedy_in_one_line() {
    let home = Home::new();
    let stranger = Home::new();
    let server = home.serve(&[]);
    let plain = home.serve(&["--plain"]);
    let crossed = |served: &super::Served, scheme: &str| format!("{scheme}://127.0.0.1:{}/", served.port());
    for (said, code, hint) in [
        (stranger.run(&["connect", &server.url]), 3, "--ca FILE"),
        (home.run(&["connect", &crossed(&server, "ws")]), 3, "wss://"),
        (home.run(&["connect", &crossed(&plain, "wss")]), 3, "ws://"),
        (home.run(&["connect", "ws://127.0.0.1:1/"]), 3, "taut serve"),
        (home.run(&["connect", "http://127.0.0.1/"]), 2, "wss://HOST"),
        (home.run(&["connect", "--ca", "nothing.pem", &server.url]), 2, "nothing.pem"),
        (home.run(&["connect", "--ktls", "ws://127.0.0.1:1/"]), 2, "--ktls needs wss://"),
    ] {
        assert_eq!(said.code, Some(code), "{said:?}");
        // On a busy machine the log tells of slow turns.
        let told = said.err.lines().filter(|line| !line.starts_with('[')).count();
        assert!(said.err.contains(hint) && told == 1, "{said:?}");
    }
    let trusted = home.0.join("tautline/ca.pem");
    for arguments in [&["--insecure"][..], &["--ca", trusted.to_str().unwrap()]] {
        let arguments = [&["connect", "--wait", "0", &server.url], arguments].concat();
        assert_eq!(stranger.run(&arguments).code, Some(0), "{arguments:?}");
    }
}

/// The two ends may seal and open with different providers.
#[test]
fn the_aead_of_both_ends_is_chosen() {
    let home = Home::new();
    for (ours, theirs) in [("aws-lc", "ring"), ("ring", "aws-lc"), ("auto", "auto")] {
        let server = home.serve(&["--aead", ours]);
        let said = home.run_with(&["connect", "-v", "--aead", theirs, &server.url], "hello\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{}", said.err);
        let line = said.err.lines().find(|line| line.starts_with("* AEAD ")).unwrap_or_default();
        assert!(said.err.contains("* first        message after "), "{}", said.err);
        assert!(line.ends_with(theirs) || theirs == "auto" && !line.is_empty(), "{}", said.err);
        assert_eq!(server.stop().code, Some(0));
    }
}

/// A server that begins a message with `argv[1]` and continues it with `argv[2]` for ever, both in hex. It prints how many bytes
/// were taken.
const ENDLESS: &str = r#"
import base64,hashlib,socket,sys
listener=socket.create_server(("127.0.0.1",0))
print(listener.getsockname()[1],flush=True)
stream=listener.accept()[0]
head=b""
while not head.endswith(b"\r\n\r\n"): head+=stream.recv(1)
key=[line[19:] for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key: ")][0]
accept=base64.b64encode(hashlib.sha1(key+b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
offer="permessage-deflate; server_no_context_takeover; client_no_context_takeover"
squeezed=f"Sec-WebSocket-Extensions: {offer}\r\n" if b"permessage-deflate" in head else ""
stream.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Accept: {accept}\r\n{squeezed}\r\n").encode()+bytes.fromhex(sys.argv[1]))
more=bytes.fromhex(sys.argv[2]);more=more*(65536//len(more)+1)
taken=0
try:
    while taken<200<<20: taken+=stream.send(more)
except OSError: pass
print(taken)
"#;

#[test]
fn a_message_without_an_end_ends_the_connection() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let home = Home::new();
    let blocks = "000000ffff".repeat(24);
    for (offers, first, more) in [
        (&[][..], "0100".to_owned(), "007e0400".to_owned() + &"61".repeat(0x400)),
        (&["--deflate"], format!("4278{blocks}"), format!("0078{blocks}")),
        (&["--deflate"], "427f4000000000000000".to_owned(), blocks),
        (&[], "0100".to_owned(), "0000".to_owned()),
    ] {
        let mut python = Command::new("python3");
        let mut server = python
            .args(["-c", ENDLESS, &first, &more])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut said_by_server = BufReader::new(server.stdout.take().unwrap()).lines();
        let url = format!("ws://127.0.0.1:{}/", said_by_server.next().unwrap().unwrap());
        let said = home.run_with(&[&["connect", "--wait", "60", &url], offers].concat(), "");
        assert!(said.code == Some(3) && said.err.contains("above the limit of 16777216 bytes"), "{said:?}");
        let taken: u64 = said_by_server.next().unwrap().unwrap().parse().unwrap();
        // Twice the limit, as empty fragments have two bytes, and what the kernel's buffers hold, at most 32 MiB each.
        assert!(taken < 112 << 20, "{taken} bytes");
        server.wait().unwrap();
    }
}

#[test]
fn the_body_of_a_refused_upgrade_is_shown() {
    let home = Home::new();
    let refuse = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let body = "{\"error\":\"the token has ended\x1b[2J\"}";
            let length = body.len();
            write!(stream, "HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        });
        (url, server)
    };
    let (url, server) = refuse();
    let said = home.run(&["connect", &url]);
    server.join().unwrap();
    assert!(said.code == Some(3) && said.err.contains("the token has ended"), "{said:?}");
    assert!(!said.err.contains('\x1b'), "no command to the terminal: {said:?}");
    let (url, server) = refuse();
    let said = home.run(&["connect", "--json", &url]);
    server.join().unwrap();
    let event: serde_json::Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert!(event["status"] == 403 && event["body"].as_str().unwrap().contains("the token has ended"), "{event}");
}

#[test]
fn messages_come_from_the_command_line_and_the_whole_input() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said = home.run(&["connect", "--wait", "2", "-m", "one", "--message", "two\nlines", &server.url]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "one\ntwo\nlines\n"), "{said:?}");
    let said = home.run_with(&["connect", "--wait", "2", "--raw", &server.url], "a\nb\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "610a620a\n"), "{said:?}");
    // Bytes that are no text, from a file as the input.
    std::fs::write(home.0.join("bytes"), [0, 0xff, b'\n', 0x80]).unwrap();
    let mut raw = home.taut(&["connect", "--wait", "2", "--raw", &server.url]);
    let said = Finished::of(raw.stdin(std::fs::File::open(home.0.join("bytes")).unwrap()).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(0), "00ff0a80\n"), "{said:?}");
    let said = home.run(&["connect", "--wait", "2", "--binary", "-m", "00ff", &server.url]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "00ff\n"), "{said:?}");
}

#[test]
fn pings_have_round_trips_and_messages_have_times() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let connect = ["connect", "--ping=50ms", "--timestamps", "--wait", "1", "-m", "hello"];
    let said = home.run(&[&connect[..], &[&server.url]].concat());
    assert!(said.code == Some(0) && said.err.contains("* ping 1 ") && said.err.contains(" ms"), "{said:?}");
    let (time, text) = said.out.trim().split_once(' ').unwrap();
    assert!(text == "hello" && time.ends_with('Z') && time.starts_with("20"), "{said:?}");
    let said = home.run(&[&connect[..], &["--json", &server.url]].concat());
    let events: Vec<serde_json::Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pong = events.iter().find(|event| event["event"] == "pong").unwrap();
    assert!(pong["ms"].as_f64().unwrap() >= 0.0 && pong["number"] == 1 && pong["time"].is_string(), "{pong}");
}

#[test]
fn a_recording_is_replayed() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said = home.run(&["connect", "--wait", "2", "--record", "r.jsonl", "-m", "one", "-m", "two", &server.url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let recording = std::fs::read_to_string(home.0.join("r.jsonl")).unwrap();
    assert_eq!(recording.lines().count(), 4, "two sent and two received: {recording}");
    let said = home.run(&["connect", "--wait", "2", "--replay", "r.jsonl", &server.url]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "one\ntwo\n"), "{said:?}");
    // It keeps the pace of the recording, from its first message on.
    let paced = "{\"at\":5,\"sent\":true,\"text\":\"one\"}\n{\"at\":5.6,\"sent\":true,\"text\":\"two\"}\n";
    std::fs::write(home.0.join("r.jsonl"), paced).unwrap();
    let replay = ["connect", "--wait", "2", "--replay", "r.jsonl", "--record", "again.jsonl", &server.url];
    assert_eq!(home.run(&replay).out, "one\ntwo\n");
    let again = std::fs::read_to_string(home.0.join("again.jsonl")).unwrap();
    let entries = again.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let sent: Vec<f64> = entries.filter(|one| one["sent"] == true).map(|one| one["at"].as_f64().unwrap()).collect();
    assert!(sent.len() == 2 && sent[1] - sent[0] >= 0.59 && sent[0] < 4.0, "{sent:?}");
    std::fs::write(home.0.join("r.jsonl"), "{}\n").unwrap();
    let said = home.run(&["connect", "--replay", "r.jsonl", &server.url]);
    assert!(said.code == Some(2) && said.err.contains("line 1 of"), "{said:?}");
}

#[test]
fn urls_need_no_scheme_and_the_environment_names_a_proxy() {
    let home = Home::new();
    let server = home.serve(&[]);
    let url = server.url.strip_prefix("wss://").unwrap();
    let said = home.run_with(&["connect", "--wait", "2", url], "hello\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{said:?}");
    // Nobody listens at port 1.
    let connect = |name: &str, value: &str, arguments: &[&str]| {
        let mut command = home.taut(&[&["connect", "wss://192.0.2.1/"], arguments].concat());
        Finished::of(command.env(name, value).output().unwrap())
    };
    let said = connect("https_proxy", "http://127.0.0.1:1", &[]);
    assert!(said.code == Some(3) && said.err.contains("127.0.0.1:1"), "{said:?}");
    // Neither an exception nor --no-proxy asks the proxy. The server is the one of this test.
    for (exception, arguments) in
        [("127.0.0.1", &[][..]), ("localhost,127.0.0.1:1", &["--no-proxy"]), ("", &["--no-proxy"])]
    {
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let line = [&["connect", "--wait", "2", "-m", "hello", &server.url], arguments].concat();
        let mut command = home.taut(&line);
        command.env("https_proxy", format!("http://{}", proxy.local_addr().unwrap())).env("no_proxy", exception);
        let said = Finished::of(command.output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{exception}: {said:?}");
        proxy.set_nonblocking(true).unwrap();
        assert!(proxy.accept().is_err(), "{exception}: the proxy was asked");
    }
    let said = connect("https_proxy", "ftp://127.0.0.1:1", &[]);
    assert!(said.code == Some(2) && said.err.contains("https_proxy"), "{said:?}");
}
