//! Outgoing connections come from the address that was asked for.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_uid};
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use tautline_io::{Address, DriverConfig, Source};

#[test]
fn connections_come_from_their_source() {
    let source: IpAddr = "127.0.0.9".parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    for name in DriverConfig::NAMES {
        let config = name.parse::<DriverConfig>().unwrap().available();
        let mut driver = config.with_source(source).unwrap().open().unwrap();
        let _tokens = [driver.connect(&to).unwrap(), driver.connect(&to).unwrap()];
        for _ in 0..2 {
            assert_eq!(listener.accept().unwrap().1.ip(), source, "{name}");
        }
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let config = DriverConfig::default().with_source("192.0.2.1".parse().unwrap()).unwrap();
    assert!(config.open().unwrap().connect(&"127.0.0.1:9".parse().unwrap()).is_err());
}

#[test]
fn each_connection_may_have_its_own_source() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    for name in DriverConfig::NAMES {
        let config = name.parse::<DriverConfig>().unwrap().available();
        let mut driver = config.with_source("127.0.0.9".parse().unwrap()).unwrap().open().unwrap();
        let _tokens = ["127.0.0.7", "127.0.0.8"].map(|ip| {
            let source: IpAddr = ip.parse().unwrap();
            let token = driver.connect_from(&to, &Source::from(source).on_interface("lo")).unwrap();
            assert_eq!(listener.accept().unwrap().1.ip(), source, "{name}");
            token
        });
        // Only the interface is chosen here, so the driver's address remains.
        let _third = driver.connect_from(&to, &Source::default().on_interface("lo")).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.9", "{name}");
        for wrong in ["", "no-such-if", "a-name-of-more-than-15-bytes"] {
            let error = driver.connect_from(&to, &Source::default().on_interface(wrong)).unwrap_err().to_string();
            assert!(error.contains(&format!("interface {wrong:?}")) && error.contains("ip link"), "{name}: {error}");
        }
    }
}

/// Two network namespaces with two links between them. The second one has an address that both links lead to.
struct Lines([String; 2]);

/// The address behind both links.
const BEHIND: [&str; 2] = ["10.78.9.9", "fd78:9::9"];

impl Lines {
    /// `None`, with a message, if this process may not make them.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            // The test harness would swallow eprintln!.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: the choice of an interface: it takes root to make namespaces");
            return None;
        }
        let lines = Self(["a", "b"].map(|end| format!("taut-lines-{}-{end}", std::process::id())));
        let [near, far] = &lines.0;
        ip(&format!("netns add {near}"));
        ip(&format!("netns add {far}"));
        for end in [near, far] {
            ip(&format!("-n {end} link set lo up"));
        }
        for line in ["0", "1"] {
            ip(&format!("link add line{line} netns {near} type veth peer name line{line} netns {far}"));
            for (end, host) in [(near, 1), (far, 2)] {
                ip(&format!("-n {end} address add 10.78.{line}.{host}/24 dev line{line}"));
                ip(&format!("-n {end} address add fd78:{line}::{host}/64 dev line{line} nodad"));
                ip(&format!("-n {end} link set line{line} up"));
            }
            for (behind, gateway) in BEHIND.into_iter().zip([format!("10.78.{line}.2"), format!("fd78:{line}::2")]) {
                ip(&format!("-n {near} route add {behind} via {gateway} dev line{line} metric 1{line}"));
            }
        }
        for behind in BEHIND {
            ip(&format!("-n {far} address add {behind} dev lo"));
        }
        Some(lines)
    }

    /// Runs `work` on a thread in this namespace.
    fn within<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.0[end])).unwrap();
        let moved = move || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(moved).join().unwrap())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        for end in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", end]).status();
        }
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// By `SO_BINDTODEVICE`, from Linux 5.7 on. `IP_UNICAST_IF` would not do: the kernel ignores it for TCP.
#[test]
fn an_interface_is_chosen_without_privileges() {
    let Some(lines) = Lines::new() else { return };
    for (behind, from) in BEHIND.into_iter().zip([["10.78.0.1", "10.78.1.1"], ["fd78:0::1", "fd78:1::1"]]) {
        let listener = lines.within(1, || TcpListener::bind((behind, 0)).unwrap());
        let to = Address::Tcp(listener.local_addr().unwrap());
        let from = from.map(|ip| ip.parse::<IpAddr>().unwrap());
        lines.within(0, || {
            // Of this thread alone. Its capabilities go with it.
            set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            for name in DriverConfig::NAMES {
                let mut driver = name.parse::<DriverConfig>().unwrap().available().open().unwrap();
                let sources = [
                    (Source::default(), from[0]),
                    (Source::default().on_interface("line0"), from[0]),
                    (Source::default().on_interface("line1"), from[1]),
                    (Source::from(from[1]).on_interface("line1"), from[1]),
                ];
                for (source, expected) in sources {
                    let _token = driver.connect_from(&to, &source).unwrap();
                    assert_eq!(listener.accept().unwrap().1.ip(), expected, "{name} {source:?}");
                }
            }
        });
    }
}
