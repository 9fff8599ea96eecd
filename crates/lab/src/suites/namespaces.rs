use crate::Error;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Interface of the client.
pub(super) const INTERFACE: &str = "feed0";

/// Interface of the server.
pub(super) const SERVER_INTERFACE: &str = "feed1";

/// Address of the server, which exists only in these namespaces.
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

/// Namespaces that were made, which gives each a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Two network namespaces joined by a pair of virtual interfaces, one for the server and one for clients.
///
/// They have names only while they are being made. After that they live as long as the files here are open, or processes
/// run in them. Nothing remains after this process, however it ends.
pub(super) struct Namespaces {
    server: File,
    client: File,
}

/// A network namespace that has only loopback, with settings for very many connections. The calling thread is there, with
/// the threads and processes that it starts, until this is dropped.
pub(super) struct Alone {
    before: File,
}

/// Settings of the namespace, which differ from the usual ones so that connections are opened fast.
const SETTINGS: [(&str, &str); 3] =
    [("ipv4/ip_local_port_range", "1024 65535"), ("core/somaxconn", "65535"), ("ipv4/tcp_max_syn_backlog", "65535")];

impl Alone {
    /// # Errors
    /// This process may not make namespaces, or the program `ip` is missing.
    pub(super) fn enter() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it takes root to make a network namespace; run it with sudo".to_owned());
        }
        let named = Named::new(format!("taut-{}-alone-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)))?;
        ip(&["-n", &named.0, "link", "set", "lo", "up"])?;
        let space = named.open()?;
        let before = File::open("/proc/thread-self/ns/net");
        let before = before.map_err(|error| format!("cannot open this thread's network namespace: {error}"))?;
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("cannot enter a network namespace: {error}"))?;
        let alone = Self { before };
        for (name, value) in SETTINGS {
            // The kernel shows each thread the settings of its own namespace.
            std::fs::write(format!("/proc/sys/net/{name}"), value)
                .map_err(|error| format!("cannot set net/{name} to {value}: {error}"))?;
        }
        Ok(alone)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if let Err(error) = move_into_link_name_space(self.before.as_fd(), Some(LinkNameSpaceType::Network)) {
            log::error!("cannot leave a network namespace: {error}");
        }
    }
}

/// The name of a namespace, removed when this is dropped.
struct Named(String);

impl Namespaces {
    /// # Errors
    /// This process may not make namespaces, or the program `ip` is missing.
    pub(super) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it takes root to make network namespaces; run it with sudo".to_owned());
        }
        let name = format!("taut-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let named = [Named::new(format!("{name}-server"))?, Named::new(format!("{name}-client"))?];
        let [server, client] = named.each_ref().map(|named| named.0.as_str());
        let peer = ["type", "veth", "peer", "name", SERVER_INTERFACE, "netns", server];
        ip(&[["link", "add", INTERFACE, "netns", client].as_slice(), &peer].concat())?;
        for (space, interface, address) in [(client, INTERFACE, CLIENT), (server, SERVER_INTERFACE, SERVER)] {
            ip(&["-n", space, "link", "set", "lo", "up"])?;
            ip(&["-n", space, "address", "add", &format!("{address}/24"), "dev", interface])?;
            ip(&["-n", space, "link", "set", interface, "up"])?;
        }
        Ok(Self { server: named[0].open()?, client: named[1].open()? })
    }

    /// A command that starts a program in the server's namespace.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        // By the path of this process, because the program does not inherit the file.
        command.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), self.server.as_raw_fd()));
        command
    }

    /// Runs `act` on a new thread in the clients' namespace.
    pub(super) fn at_client<T: Send>(&self, act: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.client.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|error| Error::Failed(format!("cannot enter the clients' namespace: {error}")))?;
                act()
            });
            thread.join().unwrap_or_else(|_| Err(Error::Failed("the client panicked".to_owned())))
        })
    }
}

impl Named {
    fn new(name: String) -> Result<Self, String> {
        ip(&["netns", "add", &name])?;
        Ok(Self(name))
    }

    fn open(&self) -> Result<File, String> {
        let path = format!("/run/netns/{}", self.0);
        File::open(&path).map_err(|error| format!("cannot open the network namespace {path}: {error}"))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_nothing_behind() {
        let spaces = match Namespaces::new() {
            Ok(spaces) => spaces,
            Err(why) => {
                eprintln!("skipped: network namespaces: {why}");
                return;
            }
        };
        let ours = format!("taut-{}-", std::process::id());
        let names = std::fs::read_dir("/run/netns").unwrap().map(|entry| entry.unwrap().file_name());
        let named: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        assert!(!named.iter().any(|name| name.starts_with(&ours)), "{named:?}");
        let links = spaces.command().args(["ip", "-o", "link"]).output().unwrap();
        let links = String::from_utf8_lossy(&links.stdout).into_owned();
        assert!(links.contains(SERVER_INTERFACE) && !links.contains(INTERFACE), "{links}");
        let there = spaces.at_client(|| {
            let route = std::net::UdpSocket::bind((CLIENT, 0)).and_then(|socket| socket.connect((SERVER, 1)));
            Ok(route.is_ok())
        });
        assert!(matches!(there, Ok(true)));
    }
}
