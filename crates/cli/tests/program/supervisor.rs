//! `taut serve` under a service manager: systemd's protocol of notifications.

use super::Home;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

/// A service manager that hears notifications.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut bytes = [0; 1024];
        let len = self.0.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    /// The next notification that is no sign of life.
    fn news(&self) -> String {
        loop {
            let next = self.next();
            if next != "WATCHDOG=1" {
                return next;
            }
        }
    }
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args([name, pid]).status().unwrap().success());
}

#[test]
fn a_service_manager_hears_of_start_life_reload_and_end() {
    let home = Home::new();
    let path = home.0.join("notify.sock");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    manager.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A hardened server can open no socket any more.
    let options: &[&str] = if cfg!(feature = "harden") { &["--harden"] } else { &[] };
    let server = home.serve_with(&[&["--drain", "3", "--shards", "2"], options].concat(), |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    });
    assert_eq!(manager.next(), "READY=1");
    assert_eq!((manager.next(), manager.next()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    signal("-HUP", &server.pid());
    let reloading = manager.news();
    let micros = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(micros.parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(manager.news(), "READY=1");
    signal("-TERM", &server.pid());
    assert_eq!(manager.news(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=13000000");
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_manager_that_is_gone_does_not_stop_the_server() {
    let home = Home::new();
    let server = home.serve_with(&["--plain"], |command| {
        command.env("NOTIFY_SOCKET", "/nobody/listens/here").env("WATCHDOG_USEC", "1000");
    });
    let finished = server.stop();
    assert_eq!(finished.code, Some(0));
    assert!(finished.err.contains("cannot reach the service manager at /nobody/listens/here"), "{}", finished.err);
}
