//! Two network namespaces, joined by a pair of virtual interfaces. One has our interface, the other the kernel's TCP.
#![expect(unreachable_pub, reason = "each test binary includes this module and is a crate of its own")]
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]
#![allow(dead_code, reason = "not every test binary needs all of it")]

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The name of our interface.
pub const INTERFACE: &str = "xdp0";

/// The addresses of our side and of the kernel's side.
pub const OURS: [&str; 2] = ["10.77.0.1", "fd77::1"];
pub const THEIRS: [&str; 2] = ["10.77.0.2", "fd77::2"];

pub struct World {
    ours: String,
    theirs: String,
    home: File,
}

impl World {
    /// Makes two namespaces; `None`, with a message, if this process may not.
    pub fn new() -> Option<Self> {
        Self::with_queues(1)
    }

    /// Makes a world whose interfaces have `queues` queues in each direction.
    pub fn with_queues(queues: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            // The test harness would swallow eprintln!.
            let _ = writeln!(io::stderr(), "SKIPPED: the xdp driver: it takes root to make network namespaces");
            return None;
        }
        let name = format!("taut-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let world = Self {
            ours: format!("{name}-a"),
            theirs: format!("{name}-b"),
            home: File::open("/proc/thread-self/ns/net").unwrap(),
        };
        let (a, b) = (&world.ours, &world.theirs);
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        let queues = queues.to_string();
        let of_each = ["numrxqueues", queues.as_str(), "numtxqueues", queues.as_str()];
        let ours = [&["link", "add", INTERFACE, "netns", a][..], &of_each, &["type", "veth"]].concat();
        ip(&[&ours[..], &["peer", "name", "kernel0", "netns", b], &of_each].concat());
        for (space, interface, [v4, v6]) in [(a, INTERFACE, OURS), (b, "kernel0", THEIRS)] {
            let in_space = |args: &[&str]| ip(&[&["-n", space], args].concat());
            in_space(&["link", "set", "lo", "up"]);
            in_space(&["address", "add", &format!("{v4}/24"), "dev", interface]);
            in_space(&["address", "add", &format!("{v6}/64"), "dev", interface, "nodad"]);
            in_space(&["link", "set", interface, "up"]);
        }
        Some(world)
    }

    /// Moves this thread to our side.
    pub fn enter_ours(&self) {
        enter(&File::open(format!("/run/netns/{}", self.ours)).unwrap());
    }

    /// Moves this thread to the kernel's side.
    pub fn enter_theirs(&self) {
        enter(&File::open(format!("/run/netns/{}", self.theirs)).unwrap());
    }

    /// Runs `ip` on our side.
    pub fn ip(&self, args: &[&str]) -> String {
        ip(&[&["-n", self.ours.as_str()], args].concat())
    }

    /// The name of our namespace.
    pub fn ours(&self) -> &str {
        &self.ours
    }

    /// The name of the kernel's namespace.
    pub fn theirs(&self) -> &str {
        &self.theirs
    }
}

impl Drop for World {
    fn drop(&mut self) {
        enter(&self.home);
        for name in [&self.ours, &self.theirs] {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

/// A third namespace, behind the kernel's, which forwards to it over a link with a smaller MTU.
pub struct Far {
    space: String,
}

impl Far {
    /// Makes the namespace. Its TCP offers segments of `segment` bytes, although the link's MTU is `mtu`.
    pub fn new(world: &World, mtu: usize, segment: usize) -> Self {
        let far = Self { space: format!("{}-far", world.theirs) };
        let (router, space) = (world.theirs.as_str(), far.space.as_str());
        ip(&["netns", "add", space]);
        ip(&["-n", router, "link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", space]);
        let mtu = mtu.to_string();
        for (space, interface, v4, v6) in
            [(router, "near0", "10.78.0.1/24", "fd78::1/64"), (space, "far0", "10.78.0.2/24", "fd78::2/64")]
        {
            let in_space = |args: &[&str]| ip(&[&["-n", space], args].concat());
            in_space(&["address", "add", v4, "dev", interface]);
            in_space(&["address", "add", v6, "dev", interface, "nodad"]);
            in_space(&["link", "set", interface, "mtu", &mtu, "up"]);
        }
        // A router asks for neighbours from a link-local address. Its own would fail duplicate detection for 1 to 2 seconds.
        for interface in ["kernel0", "near0"] {
            ip(&["-n", router, "address", "add", "fe80::1/64", "dev", interface, "nodad"]);
        }
        let segment = segment.to_string();
        ip(&["-n", space, "route", "add", "default", "via", "10.78.0.1", "advmss", &segment]);
        ip(&["-n", space, "-6", "route", "add", "default", "via", "fd78::1", "advmss", &segment]);
        world.enter_theirs();
        for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{file}"), "1").unwrap();
        }
        far
    }

    /// The name of the namespace.
    pub fn space(&self) -> &str {
        &self.space
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.space]).status();
    }
}

pub fn ip_of(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn enter(space: &File) {
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

fn ip(args: &[&str]) -> String {
    let output = Command::new("ip").args(args).output().unwrap();
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "ip {}: {error}", args.join(" "));
    text.into_owned()
}

/// Opens a driver on an interface that another driver may still hold for a moment.
pub fn opened<D>(open: impl Fn() -> io::Result<D>) -> D {
    once_free(|| match open() {
        Err(error) if error.to_string().contains("another") => None,
        other => Some(other.unwrap()),
    })
}

/// Calls `ask` until it answers. A child process of another test holds inherited sockets until it has started.
pub fn once_free<T>(ask: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the interface was not released");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Moves this thread into the namespace with this name.
pub fn enter_named(name: &str) {
    enter(&File::open(format!("/run/netns/{name}")).unwrap());
}
