//! Reload after reload and upgrade after upgrade of a proxy under load, whose pairs of connections live through all of them.
//!
//! `cargo xtask upgrades` runs this at full size, with two builds. By itself it is small, and the builds are one.

use super::Home;
use super::crowd::Crowd;
use super::generations::{
    Current, Generation, PAUSE, install, median, memory_of, pause_of, report, upgraded, wait_for_end,
};
use super::tls::eventually;
use super::upgrade::listener_at;
use rustix::process::{getpid, set_child_subreaper};
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tautline::{ClientConfig, Config, Roots, Socket, Target};

/// Pairs, messages per second, and the number of both reloads and upgrades: `TAUT_PAIRS=4000,10000,20`.
fn size() -> (usize, u64, usize) {
    let text = std::env::var("TAUT_PAIRS").unwrap_or_else(|_| "60,600,3".into());
    let parts: Vec<usize> = text.split(',').map(|part| part.trim().parse().unwrap()).collect();
    let [pairs, rate, upgrades] = parts[..] else { panic!("three numbers, and not {text:?}") };
    (pairs, rate as u64, upgrades)
}

/// A configuration whose last route answers with this status. The route of the pairs has another name and backend each time,
/// except that each second one is the same as two before.
fn config(server: &str, number: usize) -> String {
    let (backend, status) = (["echo", "other"][number % 2], status(number));
    format!(
        "certificates = [{{ cert = \"a/cert.pem\", key = \"a/key.pem\" }}]\n\
         [[route]]\nname = \"pairs {number}\"\nto = {backend:?}\n\
         [[route]]\npath = \"/which\"\nanswer = {{ status = {status} }}\n\
         [backend.{backend}]\nservers = [{server:?}]\n"
    )
}

fn status(number: usize) -> u16 {
    [404, 410, 418, 423, 451][number % 5]
}

/// Whether new connections go by this configuration.
fn goes_by(port: &str, number: usize) -> bool {
    let mut target = Target::new("wss://localhost/which").unwrap();
    target.address = Some(format!("127.0.0.1:{port}").parse().unwrap());
    let tls = ClientConfig::default().with_roots(Roots::DangerNone);
    let Err(error) = Socket::connect(target, tls, Config::default()) else { panic!("/which is no WebSocket") };
    format!("{error:#}").contains(&status(number).to_string())
}

/// The connections of clients that the proxy has not closed.
fn connections_at(port: &str) -> usize {
    let said = Command::new("sh").args(["-c", &format!("ss -Htn 'sport = :{port}'")]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().lines().count()
}

#[test]
fn no_pair_of_a_proxy_is_cut_in_a_row_of_reloads_and_upgrades() {
    run(false);
}

#[test]
fn no_pair_with_tls_on_both_sides_is_cut() {
    run(true);
}

/// `secure`: servers have TLS, too.
fn run(secure: bool) {
    let (pairs, rate, upgrades) = size();
    tautline::layers::io::machine::raise_nofile_limit().unwrap();
    // Each process of the row is the child of the one before it, which has ended.
    set_child_subreaper(Some(getpid())).unwrap();
    let home = Home::new();
    let program = home.0.join("taut");
    let first = PathBuf::from(env!("CARGO_BIN_EXE_taut"));
    let builds = [std::env::var_os("TAUT_OTHER_BUILD").map_or_else(|| first.clone(), PathBuf::from), first];
    install(&builds[1], &program);
    assert_eq!(home.run(&["cert", "--dir", "a"]).code, Some(0));
    let tls: &[&str] = if secure { &["--cert", "a/cert.pem", "--key", "a/key.pem"] } else { &["--plain"] };
    let echo = home.serve(&[tls, &["--shards", "1"]].concat());
    let (scheme, file) = (if secure { "https" } else { "http" }, home.0.join("taut.toml"));
    let server = format!("{scheme}://localhost:{}", echo.port());
    fs::write(&file, config(&server, 0)).unwrap();
    let arguments = ["--config", "taut.toml", "--core-dumps", "--shards", "2"];
    let mut served = home.proxy_by(&program, &arguments, |command| {
        // The servers' authority.
        command.env("SSL_CERT_FILE", home.0.join("a/ca.pem"));
    });
    let port = served.port().to_owned();
    let mut log = served.child.as_mut().unwrap().stderr.take().map(BufReader::new).unwrap();
    let crowd = Crowd::start(format!("127.0.0.1:{port}").parse().unwrap(), pairs, rate);
    let mut current = Current(served.pid());
    // It is waited for by its number, as its successors are.
    served.child = None;
    let mut row = Vec::new();
    for number in 1..=upgrades {
        if crowd.has_failed() {
            break;
        }
        fs::write(&file, config(&server, number)).unwrap();
        assert!(Command::new("kill").args(["-HUP", &current.0]).status().unwrap().success());
        eventually("the reload", || goes_by(&port, number));
        // The connections that have asked are clients too, and would move.
        eventually("the end of those that have asked", || connections_at(&port) == pairs);
        install(&builds[number % 2], &program);
        crowd.times();
        let (line, asked) = upgraded(&home, &current.0, &mut log);
        assert!(line.contains(&format!(" {} connections have moved", 2 * pairs)), "{line}");
        assert!(line.contains("refused there: 0;"), "{line}");
        wait_for_end(&current.0);
        let asked = asked.wait_with_output().unwrap();
        assert!(asked.status.success(), "{asked:?}");
        std::thread::sleep(Duration::from_millis(300));
        let during = crowd.times();
        std::thread::sleep(Duration::from_millis(400));
        let (after, new) = (crowd.times(), listener_at(&port));
        let descriptors = fs::read_dir(format!("/proc/{new}/fd")).unwrap().count();
        let one = Generation { pause: Some(pause_of(&line)), during, after, memory: memory_of(&new), descriptors };
        eprintln!("{number}: process {new}, {one:?}");
        row.push(one);
        current.0 = new;
    }
    let (replies, key_updates) = crowd.finish();
    assert!(replies > 0 && key_updates > 0, "{replies} replies, {key_updates} key updates");
    report(&row, pairs, replies, key_updates);
    assert_eq!(row.len(), upgrades);
    let few = row.iter().map(|one| one.descriptors).min().unwrap();
    // The log, and connections of the checks that a moment finds open.
    assert!(row.iter().all(|one| one.descriptors <= few + 8), "descriptors: {row:?}");
    if std::env::var_os("TAUT_PAIRS").is_some() {
        let longest = row.iter().filter_map(|one| one.pause).max().unwrap();
        assert!(longest <= PAUSE, "a pause of {longest:?}");
        let memory = |part: &[Generation]| median(part.iter().map(|one| one.memory).collect());
        let (first, last) = (memory(&row[..row.len() / 2]), memory(&row[row.len() / 2..]));
        assert!(last <= first + first / 10, "memory grows from {first} to {last} KiB");
    }
}
