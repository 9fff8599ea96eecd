//! Sockets that a supervisor passes to `taut serve`.

use super::Home;
use super::tls::eventually;
use super::upgrade::{HARDENED, is_alive, successor};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};

/// Ends a process at the end of a test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `taut` with arguments, and these sockets as descriptors 3 and 4, as systemd passes them.
///
/// A shell moves them there: standard input and error are the places that a parent can choose.
fn with_sockets(home: &Home, arguments: &[&str], sockets: [OwnedFd; 2]) -> Command {
    let script = r#"LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:local exec "$0" "$@" 3<&0 4<&2 0</dev/null 2>&1"#;
    let taut = home.taut(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(taut.get_program()).args(taut.get_args()).current_dir(&home.0);
    shell.envs(taut.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let [first, second] = sockets;
    shell.stdin(Stdio::from(first)).stderr(Stdio::from(second)).stdout(Stdio::piped());
    shell
}

/// A browser at this end of a connection gets an answer.
fn is_served(mut stream: impl Read + Write) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn sockets_of_a_supervisor_are_served_by_all_loops_and_outlive_the_server() {
    for driver in ["epoll", "select", "uring"] {
        let home = Home::new();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = home.0.join("passed.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let sockets = || [tcp.try_clone().unwrap().into(), unix.try_clone().unwrap().into()];
        // One server after another, as at an update: the sockets stay.
        for _ in 0..2 {
            let arguments = ["serve", "--plain", "--driver", driver, "--shards", "2"];
            let mut server = Running(with_sockets(&home, &arguments, sockets()).spawn().unwrap());
            let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines();
            let at = tcp.local_addr().unwrap();
            assert_eq!(said.next().unwrap().unwrap(), format!("listening on ws://{at}"), "{driver}");
            assert_eq!(said.next().unwrap().unwrap(), format!("listening on unix:{}", path.display()), "{driver}");
            for _ in 0..2 {
                is_served(TcpStream::connect(at).unwrap());
                is_served(UnixStream::connect(&path).unwrap());
            }
            let killed = Command::new("kill").args(["-TERM", &server.0.id().to_string()]).status().unwrap();
            assert!(killed.success());
            assert!(server.0.wait().unwrap().success(), "{driver}");
        }
        // A client that comes while no server runs waits in the queue of the socket.
        let early = TcpStream::connect(tcp.local_addr().unwrap());
        assert!(early.is_ok() && UnixStream::connect(&path).is_ok(), "{driver}");
    }
}

/// The first line of the answer to a page of evil.example whose name leads to this machine.
fn answer_to_rebound(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = "GET / HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nUpgrade: websocket\r\n\
                Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn an_upgrade_changes_no_answer_to_a_rebound_name() {
    for (address, more, status) in [
        ("127.0.0.1:0", &[][..], "403"),
        ("127.0.0.1:0", HARDENED, "403"),
        ("0.0.0.0:0", &[], "101"),
        ("0.0.0.0:0", HARDENED, "101"),
        ("127.0.0.1:0", &["--listen", "0.0.0.0:0"], "101"),
    ] {
        let home = Home::new();
        let tcp = TcpListener::bind(address).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let unix = UnixListener::bind(home.0.join("passed.sock")).unwrap();
        let arguments = [&["serve", "--plain"], more].concat();
        let mut first = Running(with_sockets(&home, &arguments, [tcp.into(), unix.into()]).spawn().unwrap());
        let mut said = BufReader::new(first.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(said.any(|line| line.starts_with("listening on ws://")));
        let is_right = || {
            let answer = answer_to_rebound(port);
            assert!(answer.contains(status), "{address} {more:?}: {answer}");
        };
        is_right();
        let mut serving = first.0.id().to_string();
        // The second one asks a process that was passed nothing itself.
        for _ in 0..2 {
            let upgraded = home.run(&["upgrade", &serving]);
            assert_eq!(upgraded.code, Some(0), "{upgraded:?}");
            serving = successor(&said.find(|line| line.contains("have moved")).unwrap());
            is_right();
        }
        assert!(Command::new("kill").args(["-TERM", &serving]).status().unwrap().success());
        eventually("the last process has ended", || !is_alive(&serving));
    }
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let home = Home::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let (connected, _peer) = UnixStream::pair().unwrap();
    let run = with_sockets(&home, &["serve", "--plain"], [tcp.into(), connected.into()]).output().unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(!run.status.success() && said.contains("leave out `Accept=yes`"), "{said}");
}

#[test]
fn variables_for_another_process_mean_nothing() {
    let home = Home::new();
    let server = home.serve_with(&["--plain"], |command| {
        command.env("LISTEN_PID", "1").env("LISTEN_FDS", "3");
    });
    assert!(server.url.starts_with("ws://127.0.0.1:"), "{}", server.url);
    let run = home.taut(&["serve", "--plain"]).env("LISTEN_PID", "one").env("LISTEN_FDS", "3").output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("LISTEN_PID=\"one\" is no number"), "{said}");
}

/// With systemd's own program, which starts the server at the first connection.
#[test]
fn systemd_starts_the_server_at_the_first_connection() {
    let there = Command::new("systemd-socket-activate").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: socket activation by systemd: there is no systemd-socket-activate");
        return;
    }
    let home = Home::new();
    let path = home.0.join("passed.sock");
    let mut command = Command::new("systemd-socket-activate");
    // The program gets few variables.
    command.arg("--listen").arg(&path).arg("--fdname=web").arg("-E").arg(format!("XDG_DATA_HOME={}", home.0.display()));
    command.arg(env!("CARGO_BIN_EXE_taut")).args(["serve", "--plain"]);
    let _activator = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let begin = std::time::Instant::now();
    while !path.exists() {
        assert!(begin.elapsed().as_secs() < 60, "systemd-socket-activate does not listen");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    is_served(UnixStream::connect(&path).unwrap());
}
