//! A service manager that believes what systemd believes: `sd_notify(3)` with `NotifyAccess=main`.

use super::upgrade::{HARDENED, PATIENCE, connect, copy, echo, install, signal};
use super::{Home, Served};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The time within which the manager expects a sign of life. Several times that of a busy machine.
const WATCHDOG: Duration = Duration::from_secs(4);

/// An event at the manager.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// A word of the main process, which has this number.
    Heard { from: String, state: String },
    /// A word that systemd refuses, since another process is the main one.
    Refused { from: String, state: String },
    /// No sign of life came in time: systemd kills the service.
    Dead { main: String },
}

/// A manager that watches a server.
pub(super) struct Manager {
    seen: Receiver<Seen>,
}

impl Manager {
    /// Starts a server as systemd does.
    pub(super) fn start(home: &Home, program: &std::path::Path, options: &[&str]) -> (Self, Served) {
        let path = home.0.join("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        sockopt::set_socket_passcred(&socket, true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let micros = WATCHDOG.as_micros();
        // Only the process itself knows its number before it runs the program. There are no sockets to listen at.
        let script = format!(
            "WATCHDOG_PID=$$ WATCHDOG_USEC={micros} LISTEN_PID=$$ LISTEN_FDS=0 LISTEN_FDNAMES= exec {} \"$@\"",
            program.display()
        );
        let served = home.serve_by(std::path::Path::new("/bin/sh"), &[], |command| {
            *command = home.command(std::path::Path::new("/bin/sh"), &["-c", &script, "taut", "serve"]);
            command.args(["--listen", "127.0.0.1:0"]).args(options).env("NOTIFY_SOCKET", &path);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        });
        let (tell, seen) = channel();
        let main = served.pid();
        thread::spawn(move || manage(&socket, main, &tell));
        (Self { seen }, served)
    }

    /// The next word of the main process that is no sign of life.
    pub(super) fn news(&self) -> (String, String) {
        loop {
            match self.seen.recv_timeout(PATIENCE).unwrap() {
                Seen::Heard { state, .. } if state == "WATCHDOG=1" => {}
                Seen::Heard { from, state } => return (from, state),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits for signs of life of this process alone, for twice the time of the watchdog.
    fn is_content_with(&self, main: &str) {
        let (start, mut signs) = (Instant::now(), 0);
        while start.elapsed() < 2 * WATCHDOG {
            match self.seen.recv_timeout(2 * WATCHDOG).unwrap() {
                Seen::Heard { from, state } if state == "WATCHDOG=1" => {
                    assert_eq!(from, main);
                    signs += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(signs > 2, "{signs} signs of life");
    }
}

fn manage(socket: &UnixDatagram, mut main: String, tell: &Sender<Seen>) {
    let mut sign = None;
    loop {
        let mut content = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(socket, &mut [IoSliceMut::new(&mut content)], &mut control, RecvFlags::empty());
        let Ok(got) = got else {
            if sign.is_some_and(|sign: Instant| sign.elapsed() > WATCHDOG) {
                let _ = tell.send(Seen::Dead { main });
                return;
            }
            continue;
        };
        let from = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(from) => Some(from.pid.as_raw_nonzero().to_string()),
            _ => None,
        });
        let (from, state) = (from.unwrap(), String::from_utf8_lossy(&content[..got.bytes]).into_owned());
        if from != main {
            let _ = tell.send(Seen::Refused { from, state });
            continue;
        }
        for line in state.lines() {
            if let Some(number) = line.strip_prefix("MAINPID=") {
                main = number.to_owned();
            }
            // The watch begins once the service is ready.
            if line == "READY=1" || line == "WATCHDOG=1" {
                sign = Some(Instant::now());
            }
        }
        if tell.send(Seen::Heard { from, state }).is_err() {
            return;
        }
    }
}

/// The variables of a process.
fn variables(process: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{process}/environ")).unwrap()).replace('\0', "\n")
}

#[test]
fn the_new_process_is_the_main_one_and_gives_signs_of_life() {
    let home = Home::new();
    let (manager, served) = Manager::start(&home, &copy(&home), &["--plain", "--core-dumps"]);
    assert_eq!(manager.news(), (served.pid(), "READY=1".to_owned()));
    let mut sockets = [connect(&served)];
    assert_eq!(home.run(&["upgrade", &served.pid()]).code, Some(0));
    let (from, state) = manager.news();
    assert_eq!(from, served.pid());
    let new = state.strip_prefix("MAINPID=").and_then(|rest| rest.strip_suffix("\nWATCHDOG=1")).unwrap();
    manager.is_content_with(new);
    echo(&mut sockets, "after");
    // A number in them would be that of the first process, or of any later one with the same number.
    for variable in ["LISTEN_PID", "LISTEN_FDS", "WATCHDOG_PID"] {
        assert!(!variables(new).contains(variable), "{variable}");
    }
    signal("-TERM", new);
    assert_eq!(manager.news().0, new);
}

#[test]
fn after_a_failed_upgrade_the_old_process_is_the_main_one() {
    let home = Home::new();
    let program = copy(&home);
    let (manager, served) = Manager::start(&home, &program, &["--plain"]);
    assert_eq!(manager.news(), (served.pid(), "READY=1".to_owned()));
    install("#!/bin/sh\nexit 7\n", &program, 0o700);
    assert_eq!(home.run(&["upgrade", &served.pid()]).code, Some(1));
    manager.is_content_with(&served.pid());
    signal("-TERM", &served.pid());
    let (from, state) = manager.news();
    assert!(from == served.pid() && state.starts_with("STOPPING=1"), "{from}: {state}");
}

#[cfg(feature = "harden")]
#[test]
fn a_hardened_server_has_one_main_process() {
    let home = Home::new();
    let program = copy(&home);
    let (manager, served) = Manager::start(&home, &program, &[&["--plain"], HARDENED].concat());
    assert_eq!(manager.news(), (served.pid(), "READY=1".to_owned()));
    let first = served.worker();
    let said = home.run(&["upgrade", &served.pid()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_ne!(served.worker(), first);
    assert_eq!(manager.news(), (served.pid(), "READY=1".to_owned()));
    manager.is_content_with(&served.pid());
    signal("-TERM", &served.pid());
    let (from, state) = manager.news();
    assert!(from == served.pid() && state.starts_with("STOPPING=1"), "{from}: {state}");
    assert_eq!(served.wait().code, Some(0));
}
