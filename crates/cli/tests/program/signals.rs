//! The signals that service managers send, which end no server.

use super::Home;
use super::tls::eventually;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn signal(pid: &str, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
}

/// Sends signals, and checks that a connection that was open before them still echoes.
fn survives(arguments: &[&str], signals: &[&str], said: &str) {
    let home = Home::new();
    if arguments.contains(&"cert.pem") {
        assert_eq!(home.run(&["cert", "localhost", "127.0.0.1"]).code, Some(0));
    }
    let server = home.serve(arguments);
    let mut client = home.taut(&["connect", "--ca", "ca.pem", &server.url]);
    if !arguments.contains(&"cert.pem") {
        client = home.taut(&["connect", &server.url]);
    }
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    let mut echoed = |text: &str| {
        writeln!(input, "{text}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim() == text
    };
    assert!(echoed("before"), "{arguments:?}");
    for (number, name) in signals.iter().enumerate() {
        signal(&server.pid(), name);
        assert!(echoed(&format!("after {number} {name}")), "{arguments:?} {name}");
    }
    client.kill().unwrap();
    client.wait().unwrap();
    let end = server.stop();
    assert_eq!(end.code, Some(0), "{arguments:?}: {}", end.err);
    assert!(end.err.contains(said), "{arguments:?}: {}", end.err);
}

#[test]
fn a_server_without_certificates_has_nothing_to_reload() {
    const NOTHING: &str = "nothing to reload";
    let signals = &["HUP", "USR1", "PIPE", "HUP"];
    survives(&["--plain"], signals, NOTHING);
    survives(&["--plain", "--unix", "taut.sock"], signals, NOTHING);
    // Without an upgrade that it could begin, SIGUSR2 is refused.
    survives(&["--plain", "--dashboard=127.0.0.1:0"], &["HUP", "USR2", "HUP"], NOTHING);
    survives(&["--plain", "--admin", "unix:admin.sock"], signals, NOTHING);
}

#[test]
fn signals_of_a_service_manager_end_no_server() {
    let signals = &["HUP", "USR1", "PIPE"];
    survives(&["--cert", "cert.pem", "--key", "key.pem"], signals, "");
    survives(&["--no-watch"], signals, "");
    survives(&["--dashboard=127.0.0.1:0"], signals, "");
}

#[test]
fn a_hub_and_the_bare_echo_stay_too() {
    let home = Home::new();
    let hub = home.serve(&["--plain", "--app", "hub"]);
    for name in ["HUP", "USR1", "PIPE"] {
        signal(&hub.pid(), name);
    }
    let connected = home.run(&["connect", "--wait", "0", &hub.url]);
    assert_eq!(connected.code, Some(0), "{}", connected.err);
    assert!(hub.stop().err.contains("nothing to reload"));
    for driver in ["auto", "epoll"] {
        let mut echo = home.command(Path::new(env!("CARGO_BIN_EXE_taut")), &["tcp-echo", "--driver", driver]);
        let mut child = echo.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on tcp://").unwrap().to_owned();
        for name in ["HUP", "USR1", "USR2", "PIPE"] {
            signal(&child.id().to_string(), name);
        }
        eventually("it still answers", || {
            let Ok(mut stream) = std::net::TcpStream::connect(&address) else { return false };
            let mut got = [0; 5];
            stream.write_all(b"hello").is_ok() && std::io::Read::read_exact(&mut stream, &mut got).is_ok()
        });
        assert!(child.try_wait().unwrap().is_none(), "{driver}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
