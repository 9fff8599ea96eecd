//! A server with few descriptors, and connections that only take them.

use super::Home;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that an honest client may wait beside connections that say nothing. Their deadline is 10 seconds.
const PATIENCE: Duration = Duration::from_secs(4);

/// Sends a request to the admin listener over TCP. Returns its status, and the time that it took.
fn get(admin: &str, path: &str) -> (String, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // A reset is an answer without a status.
    let _ = stream.read_to_string(&mut answer);
    (answer.split(' ').nth(1).unwrap_or_default().to_owned(), begun.elapsed())
}

/// A port that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The command of `taut` with this number of descriptors.
fn limited(home: &Home, descriptors: u32, arguments: &[&str]) -> Command {
    let taut = home.command(Path::new(env!("CARGO_BIN_EXE_taut")), arguments);
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(taut.get_program()).args(taut.get_args()).stdin(Stdio::null());
    for (name, value) in taut.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn serves_beside_silent_connections(driver: &str) {
    let home = Home::new();
    let admin = format!("127.0.0.1:{}", free_port());
    let server = home.serve_with(&[], |command| {
        let arguments =
            ["serve", "--plain", "--listen", "127.0.0.1:0", "--driver", driver, "--shards", "2", "--admin", &admin];
        *command = limited(&home, 64, &arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    });
    let at = format!("127.0.0.1:{}", server.port());
    let mut silent: Vec<TcpStream> = Vec::new();
    for round in 0..3 {
        silent.extend((0..200).filter_map(|_| TcpStream::connect(&at).ok()));
        for path in ["/metrics", "/healthz", "/readyz"] {
            let (status, took) = get(&admin, path);
            assert!(status == "200" && took < PATIENCE, "{driver}, {round}, {path}: {status:?} after {took:?}");
        }
        let begun = Instant::now();
        let said = home.run_with(&["connect", "--wait", "0.2", &server.url], "hello\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{driver}, {round}: {}", said.err);
        assert!(begun.elapsed() < PATIENCE, "{driver}, {round}: {:?}", begun.elapsed());
    }
    drop(silent);
    // Silent connections to the admin listener itself.
    let mut silent: Vec<TcpStream> = Vec::new();
    for round in 0..3 {
        silent.extend((0..80).filter_map(|_| TcpStream::connect(&admin).ok()));
        let (status, took) = get(&admin, "/healthz");
        assert!(status == "200" && took < PATIENCE, "{driver}, {round}: {status:?} after {took:?}");
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn half_open_connections_lock_nobody_out_over_epoll() {
    serves_beside_silent_connections("epoll");
}

#[test]
fn half_open_connections_lock_nobody_out_over_io_uring() {
    serves_beside_silent_connections("uring");
}
