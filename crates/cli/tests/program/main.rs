//! The program as users and scripts see it: its output and its exit codes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod access;
mod activation;
mod admin;
mod bench;
#[cfg(any(feature = "nats", feature = "redis"))]
mod broker;
mod check;
mod connect;
mod crowd;
mod deadlines;
mod descriptors;
mod faults;
mod feed;
#[cfg(feature = "files")]
mod files;
mod front;
mod generations;
mod http2;
#[cfg(all(feature = "http2", any(feature = "files", feature = "proxy")))]
mod http2_streams;
mod hub;
mod keeper;
mod ktls;
mod load;
mod load_course;
mod manager;
#[cfg(feature = "proxy")]
mod migration;
mod output;
mod pages;
#[cfg(feature = "proxy")]
mod pairs;
mod privilege;
mod probe;
#[cfg(feature = "proxy")]
mod proxy;
mod results;
mod scripts;
mod serve;
mod signals;
mod supervisor;
mod tls;
mod upgrade;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The folder of a test, removed on drop. The program keeps its development certificate in it.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("taut-program-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn taut(&self, arguments: &[&str]) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_taut")), arguments)
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("XDG_DATA_HOME", &self.0)
            .env_remove("RUST_LOG")
            .env_remove("SSL_CERT_FILE")
            .stdin(Stdio::null());
        command.current_dir(&self.0);
        command
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        Finished::of(self.taut(arguments).output().unwrap())
    }

    /// Runs the program with this standard input.
    fn run_with(&self, arguments: &[&str], input: &str) -> Finished {
        let mut child =
            self.taut(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
        // On a thread, since the pipes of input and output have no room for all. A program that has ended takes no more.
        let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let finished = Finished::of(child.wait_with_output().unwrap());
        writer.join().unwrap();
        finished
    }

    /// Starts a server on a free port.
    fn serve(&self, arguments: &[&str]) -> Served {
        self.serve_with(arguments, |_| {})
    }

    /// Starts a server on a free port, after a change to its command.
    fn serve_with(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Served {
        self.serve_by(Path::new(env!("CARGO_BIN_EXE_taut")), arguments, change)
    }

    /// Starts a server of another build.
    fn serve_by(&self, program: &Path, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Served {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        let mut command = self.command(program, &all);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("said {line:?}")).to_owned();
        Served { child: Some(child), url }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The result of a finished program.
#[derive(Debug)]
struct Finished {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Finished {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A running server.
struct Served {
    child: Option<Child>,
    url: String,
}

impl Served {
    fn pid(&self) -> String {
        self.child.as_ref().unwrap().id().to_string()
    }

    /// The process that serves: the keeper's worker, or the process itself.
    fn worker(&self) -> String {
        let workers = children_of(&self.pid()).into_iter().filter(|child| name_of(child) == "taut-worker");
        workers.max_by_key(|worker| worker.parse::<u32>().unwrap()).unwrap_or_else(|| self.pid())
    }

    fn port(&self) -> &str {
        self.url.rsplit(':').next().unwrap()
    }

    /// Sends SIGTERM, and waits for the end.
    fn stop(self) -> Finished {
        let killed = Command::new("kill").args(["-TERM", &self.pid()]).status().unwrap();
        assert!(killed.success());
        self.wait()
    }

    /// Waits for the end.
    fn wait(mut self) -> Finished {
        Finished::of(self.child.take().unwrap().wait_with_output().unwrap())
    }
}

/// The processes that another one has started, and that have not ended.
fn children_of(parent: &str) -> Vec<String> {
    let is_child = |process: &String| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let is_child =
            status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|number| number.trim() == parent));
        is_child && !status.contains("State:\tZ")
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    all.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_child).collect()
}

/// The name of a process.
fn name_of(process: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_owned()
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn unknown_arguments_exit_with_2() {
    let home = Home::new();
    for arguments in
        [&["fly"][..], &["serve", "--tls", "none"], &["serve", "--aead", "none"], &["load"], &["bench", "nothing"]]
    {
        assert_eq!(home.run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn doctor_reports_what_a_number_of_connections_needs() {
    let home = Home::new();
    let said = home.run(&["doctor", "--connections", "1000000"]).out;
    for what in ["tables", "memory", "sources", "accept queue"] {
        assert!(said.contains(what), "{what} is missing in {said}");
    }
    let said = home.run(&["doctor", "--rate", "1000"]).out;
    assert!(said.contains("burst") && said.contains("port reuse"), "{said}");
    assert!(!home.run(&["doctor"]).out.contains("sources"));
}

#[test]
fn doctor_prints_whole_sentences_at_any_width() {
    let home = Home::new();
    let said = |columns: &str| {
        let output = home.taut(&["doctor"]).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let narrow = said("48");
    for sentence in
        ["the least that each read and each write costs", "if a whole CPU per loop may be spent on latency."]
    {
        let words = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(sentence), "{sentence:?} is missing in {narrow}");
        assert!(said("100").split_whitespace().collect::<Vec<_>>().join(" ").contains(sentence));
    }
    let advice = narrow.lines().skip_while(|line| !line.starts_with("  run"));
    assert!(advice.clone().count() > 3 && advice.clone().all(|line| line.chars().count() <= 48), "{narrow}");
}

#[test]
fn doctor_shows_what_it_measured_and_what_would_change_its_mind() {
    let home = Home::new();
    // Each finding on one line.
    let said = home.run(&["doctor"]).out.replace(&format!("\n{:16}", ""), " ");
    for (label, unit) in [
        ("system call", " ns:"),
        ("clock", " ns to read"),
        ("copy", " GB/s aligned"),
        ("key exchange", " us"),
        ("signature", " full handshakes a second"),
        ("driver epoll", " echoes/s, p99"),
    ] {
        let row = said.lines().find(|line| line.starts_with(&format!("  {label} ")));
        let (before, _) = row.and_then(|row| row.split_once(unit)).unwrap_or_else(|| panic!("{label}: {said}"));
        assert!(before.ends_with(|last: char| last.is_ascii_digit()), "{label}: {before}");
    }
    for suite in ["AES-128-GCM", "AES-256-GCM", "CHACHA20-POLY1305"] {
        assert_eq!(said.lines().filter(|line| line.starts_with(suite)).count(), 3, "{suite} in {said}");
    }
    let (_, advice) = said.split_once("\n  run ").unwrap();
    assert!(advice.contains("\n  because ") && advice.contains("\n  otherwise "), "{advice}");
}

#[test]
fn doctor_checks_connections_and_their_rate_together() {
    let home = Home::new();
    let said = home.run(&["doctor", "--connections", "5000", "--rate", "100"]).out;
    for what in ["open files", "accept queue", "memory", "burst", "port reuse", "handshakes"] {
        assert!(said.contains(&format!("\n  {what} ")), "{what} is missing in {said}");
    }
    for wrong in [["--connections", "0"], ["--rate", "0"], ["--rate", "many"]] {
        let said = home.run(&[&["doctor"][..], &wrong].concat());
        assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
    }
}

#[test]
fn the_command_of_doctor_works() {
    let home = Home::new();
    let said: serde_json::Value = serde_json::from_str(&home.run(&["doctor", "--json"]).out).unwrap();
    let aeads = said["aead"].as_array().unwrap();
    // Suites, classes of sizes, directions.
    assert_eq!(aeads.len(), 3 * 3 * 2);
    for row in aeads {
        assert!(row["ns"][row["choice"].as_str().unwrap()].as_f64().unwrap() > 1.0, "{row}");
        assert!(row["ns"]["aws-lc"].is_number() && row["ns"]["ring"].is_number() == cfg!(feature = "ring"), "{row}");
    }
    let measured = &said["measured"];
    for name in ["syscall_ns", "clock_ns", "signature_us"] {
        assert!(measured[name].as_f64().unwrap() > 0.0, "{measured}");
    }
    assert!(measured["key_exchange_us"]["X25519"].as_f64().unwrap() > 0.0, "{measured}");
    assert_eq!(measured["echo"][0]["driver"], "epoll");
    assert!(said["otherwise"].as_array().unwrap().len() >= 3);
    let command = said["run"].as_str().unwrap().strip_prefix("taut serve ").unwrap();
    let arguments: Vec<&str> = command.split(' ').collect();
    let server = home.serve(&arguments);
    assert!(server.url.starts_with("wss://"));
    assert_eq!(server.stop().code, Some(0));
}
