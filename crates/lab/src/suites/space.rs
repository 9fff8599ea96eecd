use crate::Error;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The client's interface.
pub(super) const INTERFACE: &str = "feed0";

/// The server's.
pub(super) const SERVER_INTERFACE: &str = "feed1";

/// The server's address; nobody else knows of it.
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

/// Two network namespaces joined by a pair of virtual interfaces, removed in the end: the server at one end, clients at the
/// other.
pub(super) struct Space {
    server: String,
    client: String,
}

impl Space {
    /// # Errors
    /// This process may not make namespaces, or the program `ip` is missing.
    pub(super) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it takes root to make network namespaces; run it with sudo".to_owned());
        }
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("taut-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let space = Self { server: format!("{name}-server"), client: format!("{name}-client") };
        let (server, client) = (space.server.as_str(), space.client.as_str());
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&[
            "link",
            "add",
            INTERFACE,
            "netns",
            client,
            "type",
            "veth",
            "peer",
            "name",
            SERVER_INTERFACE,
            "netns",
            server,
        ])?;
        for (space, interface, address) in [(client, INTERFACE, CLIENT), (server, SERVER_INTERFACE, SERVER)] {
            ip(&["-n", space, "link", "set", "lo", "up"])?;
            ip(&["-n", space, "address", "add", &format!("{address}/24"), "dev", interface])?;
            ip(&["-n", space, "link", "set", interface, "up"])?;
        }
        Ok(space)
    }

    /// What starts a program at the server's end.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.server]);
        command
    }

    /// Does `act` on a thread of its own at the clients' end.
    pub(super) fn at_client<T: Send>(&self, act: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                let enter = |file: File| {
                    let kind = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(file.as_fd(), kind).map_err(std::io::Error::from)
                };
                File::open(format!("/run/netns/{}", self.client))
                    .and_then(enter)
                    .map_err(|error| Error::Failed(format!("cannot enter the clients' namespace: {error}")))?;
                act()
            });
            there.join().unwrap_or_else(|_| Err(Error::Failed("the client panicked".to_owned())))
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        for name in [&self.server, &self.client] {
            // With the last of them go the interfaces. What does not exist yet cannot be deleted.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(arguments).output();
    let done = done.map_err(|error| format!("the program ip (package iproute2) cannot be run: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}
