//! Many streams of HTTP/2 at the limits of a server.

#[path = "../../../tautline/tests/http2/client.rs"]
#[expect(dead_code, clippy::expect_used, reason = "other tests use the rest")]
mod client;

use super::Home;
#[cfg(feature = "proxy")]
use super::upgrade::{news, signal, successor};
use client::Client;
#[cfg(feature = "proxy")]
use std::io::BufReader;
use std::time::{Duration, Instant};
#[cfg(feature = "proxy")]
use tautline::http2::Code;
use tautline::{Address, Roots};

const PATIENCE: Duration = Duration::from_secs(60);

fn client(port: &str) -> Client {
    let address: Address = format!("127.0.0.1:{port}").parse().unwrap();
    Client::with_roots(&address, Roots::DangerNone)
}

/// One connection has all the streams that its host may have. All others of that host are refused, while the process is replaced.
#[cfg(feature = "proxy")]
#[test]
fn an_upgrade_of_a_proxy_ends_while_streams_are_refused() {
    const SOCKETS: usize = 6;
    let home = Home::new();
    let echo = home.serve(&["--plain"]);
    let limits = format!("[limits]\nconnections-of-host = {}\n", SOCKETS + 2);
    for keys in ["", "messages = {}"] {
        let server = format!("http://127.0.0.1:{}", echo.port());
        let config = format!("[[route]]\nto = \"echo\"\n{keys}\n[backend.echo]\nservers = [{server:?}]\n{limits}");
        std::fs::write(home.0.join("taut.toml"), config).unwrap();
        let mut served = home.proxy(&["--config", "taut.toml", "--http2", "--drain", "3"]);
        let mut log = BufReader::new(served.child.as_mut().unwrap().stderr.take().unwrap());
        let port = served.port().to_owned();
        let mut holder = client(&port);
        let sockets: Vec<u32> = (0..SOCKETS).map(|_| holder.websocket("/")).collect();
        for socket in &sockets {
            assert_eq!(holder.opened(*socket), 200);
            holder.text(*socket, "before");
            assert_eq!(holder.message(*socket), b"before");
        }
        let mut refused = client(&port);
        let first = refused.get("/");
        assert!(!refused.is_answered(first));
        let refused = std::thread::spawn(move || {
            let mut count = 0;
            while !refused.is_going_away() {
                let stream = if count % 2 == 0 { refused.get("/") } else { refused.websocket("/") };
                assert!(!refused.is_answered(stream));
                count += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            count
        });
        let mut asked = home.taut(&["upgrade", &served.pid()]).spawn().unwrap();
        let line = news(&mut log);
        assert!(line.contains(" 0 connections have moved"), "{line}");
        assert!(refused.join().unwrap() > 0);
        assert_eq!(holder.go_away().1, Code::NO_ERROR);
        // Tunnels go on to the end of the drain, and are cut off then.
        for socket in sockets.iter().filter(|_| !keys.is_empty()) {
            assert_eq!(holder.close_code(*socket), Some(1012));
            holder.close(*socket);
        }
        let begun = Instant::now();
        assert_eq!(served.child.as_mut().unwrap().wait().unwrap().code(), Some(0));
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        assert!(asked.wait().unwrap().success());
        // The limit counts anew: nothing of the old process is left in it.
        drop(holder);
        let mut holder = client(&port);
        let sockets: Vec<u32> = (0..=SOCKETS).map(|_| holder.websocket("/")).collect();
        sockets.iter().for_each(|socket| assert_eq!(holder.opened(*socket), 200));
        let last = holder.get("/");
        assert!(!holder.is_answered(last));
        signal("-TERM", &successor(&line));
    }
}

/// Resident memory of a process, in bytes.
#[cfg(feature = "files")]
fn resident(process: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The clients read nothing of what they have asked for.
#[cfg(feature = "files")]
#[test]
fn downloads_that_rest_stay_within_the_budget_and_others_are_served() {
    const BUDGET: usize = 48 << 20;
    let home = Home::new();
    std::fs::create_dir(home.0.join("public")).unwrap();
    std::fs::File::create(home.0.join("public/large.bin")).unwrap().set_len(1 << 30).unwrap();
    let budget = BUDGET.to_string();
    let server = home.serve(&["--http2", "--files", "public", "--memory-budget", &budget]);
    // The first download has the server take memory that it keeps.
    let mut warm = client(server.port());
    let stream = warm.get("/large.bin");
    assert_eq!(warm.opened(stream), 200);
    drop(warm);
    let before = resident(&server.worker());
    let (mut most, mut resting) = (0, Vec::new());
    for _ in 0..15 {
        let port = server.port().to_owned();
        // It is refused if memory is short.
        let opened = std::thread::spawn(move || {
            let mut client = client(&port);
            (0..90).for_each(|_| _ = client.get("/large.bin"));
            client
        });
        resting.extend(opened.join());
        std::thread::sleep(Duration::from_millis(50));
        most = most.max(resident(&server.worker()) - before);
    }
    println!("{most} B of resident memory for a budget of {BUDGET} B");
    // An allocator keeps some.
    assert!((BUDGET / 3..BUDGET + BUDGET / 3).contains(&most), "{most} B for a budget of {BUDGET} B");
    let end = Instant::now() + PATIENCE;
    for version in [&["--http2"][..], &[]] {
        let arguments = [&["connect", "--wait", "5", "--message", "hello"], version, &[&server.url]].concat();
        while home.run(&arguments).out != "hello\n" {
            assert!(Instant::now() < end, "{version:?}: {:?}", home.run(&arguments));
        }
    }
    drop(resting);
}
