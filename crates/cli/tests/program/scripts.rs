//! The program in pipes and scripts.

use super::{Finished, Home};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tautline::{Closed, Conn, Handler, Message, Opening, Outgoing, Server};

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "feed"]);
    for arguments in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["cert"],
        &["completions", "bash"],
        &["--help"],
        &["connect", &server.url],
        &["load", "--duration", "0.1", "--idle", "-c", "1", &server.url],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said = Finished::of(home.taut(arguments).stdin(Stdio::piped()).stdout(writer).output().unwrap());
        // 128 + SIGPIPE, as shells report it for other programs.
        assert_eq!((said.code, said.err.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn bad_arguments_are_told_in_one_line() {
    let home = Home::new();
    for (arguments, hint) in [
        (&["fly"][..], "unrecognized subcommand 'fly'"),
        (&["load"], "not provided: <URL>; see taut load --help"),
        (&["serve", "--liste", "x"], "a similar argument exists: '--listen'"),
        (&["serve", "--app", "chat"], "[possible values: echo, broadcast"),
        (&["serve", "--listen", "here"], "write IP:PORT, NAME:PORT"),
        (&["serve", "--max-message", "0"], "at least 1"),
        (&["serve", "--max-connections", "0"], "at least 1"),
        (&["serve", "--offload-records", "0"], "at least 1"),
        (&["serve", "--feed-size", "2MiB"], "at most 1 MiB"),
        (&["connect", "--max-message", "1 page", "ws://localhost/"], "64k or 1MiB"),
        (&["load", "-c", "0", "ws://localhost/"], "at least 1"),
        (&["load", "-p", "0", "ws://localhost/"], "at least 1"),
        (&["load", "-r", "0", "ws://localhost/"], "messages per second above 0"),
        (&["cert", "chat.test:443"], "write a DNS name"),
    ] {
        let said = home.run(arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(hint) && said.err.lines().count() == 1 && said.out.is_empty(), "{said:?}");
    }
}

#[test]
fn help_and_version_are_commands() {
    let home = Home::new();
    let version = home.run(&["version"]);
    assert_eq!((version.code, version.out.as_str()), (Some(0), concat!("taut ", env!("CARGO_PKG_VERSION"), "\n")));
    let help = home.run(&["help", "load"]);
    assert!(help.code == Some(0) && help.out.contains("Usage: taut load"), "{help:?}");
    // Escape sequences are for terminals.
    assert!(!help.out.contains('\u{1b}'), "{help:?}");
}

#[test]
fn the_help_of_connect_has_common_options_first() {
    let home = Home::new();
    let help = home.run(&["connect", "--help"]).out;
    let (common, rest) = help.split_once("\nConnection:\n").unwrap();
    let (_, common) = common.split_once("\nOptions:\n").unwrap();
    let count = |text: &str| text.lines().filter(|line| line.trim_start().starts_with('-')).count();
    // With --help and --verbose.
    assert!((8..=14).contains(&count(common)), "{common}");
    for heading in ["TLS:", "Measuring:"] {
        assert!(rest.lines().any(|line| line == heading), "{heading} is missing in {rest}");
    }
    assert!(common.contains("--ca") && common.contains("--header") && !common.contains("--driver"), "{common}");
    assert!(count(rest) > 5, "{rest}");
}

#[test]
fn only_terminals_get_colours() {
    let home = Home::new();
    for arguments in [&["--help"][..], &["load"], &["serve", "--por", "1"], &["doctor"]] {
        let said = home.run(arguments);
        assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{said:?}");
    }
    // A pseudo-terminal, by the program of util-linux.
    let on_terminal = |refused: &str| {
        let command = format!("{} --help", env!("CARGO_BIN_EXE_taut"));
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm").stdin(Stdio::null());
        if !refused.is_empty() {
            script.env("NO_COLOR", refused);
        }
        String::from_utf8(script.output().unwrap().stdout).unwrap()
    };
    assert!(on_terminal("").contains('\u{1b}') && !on_terminal("1").contains('\u{1b}'));
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let said = home.run(&["completions", shell]);
        assert!(said.code == Some(0) && said.out.contains("handshakes"), "{shell}: {}", said.err);
    }
    std::fs::write(home.0.join("taut.bash"), home.run(&["completions", "bash"]).out).unwrap();
    let check = Command::new("bash").arg("-n").arg(home.0.join("taut.bash")).status().unwrap();
    assert!(check.success());
    assert_eq!(home.run(&["man", "--dir", "man"]).code, Some(0));
    let page = std::fs::read_to_string(home.0.join("man/taut-serve.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("handshake\\-threads"), "{page}");
    assert!(home.0.join("man/taut.1").exists());
    std::fs::write(home.0.join("file"), "").unwrap();
    assert_eq!(home.run(&["man", "--dir", "file"]).code, Some(2));
}

#[test]
fn names_and_bare_ports_are_listened_at() {
    let home = Home::new();
    for (listen, address) in [("localhost:0", "127.0.0.1:"), (":0", "0.0.0.0:")] {
        let mut child = home.taut(&["serve", "--plain", "--listen", listen]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let told = lines.find(|line| line.as_ref().unwrap().starts_with(&format!("listening on ws://{address}")));
        let port = told.unwrap().unwrap().rsplit(':').next().unwrap().to_owned();
        let said = home.run_with(&["connect", &format!("ws://127.0.0.1:{port}/")], "hi\n");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hi\n"), "{}", said.err);
    }
}

#[test]
fn the_environment_names_authorities_on_loopback_too() {
    let (home, stranger) = (Home::new(), Home::new());
    let server = home.serve(&[]);
    let authority = home.0.join("tautline/ca.pem");
    let connect = ["connect", "--wait", "0", &server.url];
    let told = stranger.taut(&connect).env("SSL_CERT_FILE", &authority).output().unwrap();
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    // It counts beside the development authority, in both homes.
    let second = stranger.serve(&[]);
    for (home, told, url) in [(&home, &stranger, &second.url), (&home, &stranger, &server.url)] {
        let authority = told.0.join("tautline/ca.pem");
        let said = home.taut(&["connect", "--wait", "0", url]).env("SSL_CERT_FILE", authority).output().unwrap();
        assert_eq!(said.status.code(), Some(0), "{said:?}");
    }
    let gone = home.taut(&connect).env("SSL_CERT_FILE", "gone.pem").output().unwrap();
    assert_eq!(gone.status.code(), Some(2), "{gone:?}");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("SSL_CERT_FILE"), "{gone:?}");
}

#[test]
fn binary_messages_are_sent_from_hexadecimal_lines() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let said = home.run_with(&["connect", "--binary", &server.url], "00ff\n\nC0DE\n");
    assert_eq!((said.code, said.out.as_str()), (Some(0), "00ff\n\nc0de\n"), "{}", said.err);
    let said = home.run_with(&["connect", "--binary", &server.url], "00\nxyz\n01\n");
    assert_eq!((said.code, said.out.as_str()), (Some(2), "00\n"), "{}", said.err);
    assert!(said.err.contains("line 2 of the input is not pairs of hexadecimal digits"), "{}", said.err);
}

#[test]
fn input_that_cannot_be_read_is_a_failure() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    std::fs::write(home.0.join("input"), b"first\n\xff\xfe\n").unwrap();
    let input = std::fs::File::open(home.0.join("input")).unwrap();
    let said = Finished::of(home.taut(&["connect", &server.url]).stdin(input).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(1), "first\n"), "{}", said.err);
    assert!(said.err.contains("cannot read the input"), "{}", said.err);
}

#[test]
fn events_are_lines_of_json() {
    let home = Home::new();
    let server = home.serve(&["--subprotocol", "chat"]);
    let said = home.run_with(&["connect", "--json", "--subprotocol", "chat", &server.url], "a \"quoted\" wörd\n");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let events: Vec<serde_json::Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 3, "{}", said.out);
    assert_eq!((&events[0]["event"], &events[0]["status"]), (&"open".into(), &101.into()));
    assert_eq!((&events[0]["tls"]["version"], &events[0]["subprotocol"]), (&"TLSv1.3".into(), &"chat".into()));
    assert_eq!((&events[1]["type"], &events[1]["data"]), (&"text".into(), &"a \"quoted\" wörd".into()));
    assert_eq!((&events[2]["event"], &events[2]["code"]), (&"close".into(), &1000.into()));
    let said = home.run(&["connect", "--json", "ws://127.0.0.1:1/"]);
    let event: serde_json::Value = serde_json::from_str(said.out.trim()).unwrap();
    assert!(said.code == Some(3) && event["event"] == "failed" && event["retry_s"].is_null(), "{said:?}");
}

/// Sends one message to each client, and reports how connections end.
struct Reporter(Sender<Closed>);

impl Handler for Reporter {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        conn.send(Outgoing::text("welcome"));
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        let _ = self.0.send(closed.clone());
    }
}

#[test]
fn an_interrupt_closes_the_connection_with_a_close_frame() {
    let home = Home::new();
    let (sender, ends) = channel();
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap());
    let server = server.start(move |_| Reporter(sender.clone())).unwrap();
    let url = format!("ws://{}/", server.addresses()[0]);
    for signal in ["-INT", "-TERM"] {
        let mut child = home.taut(&["connect", &url]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line, "welcome\n");
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let closed = ends.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!((closed.code.get(), child.wait().unwrap().code()), (1000, Some(0)), "{closed:?}");
    }
    server.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    server.join().unwrap();
}
