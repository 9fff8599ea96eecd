//! Outgoing connections: route, next hop, local port.

use crate::conn::{Conn, Phase};
use crate::driver::Driver;
use crate::frame::{Ethernet, Pair};
use crate::listening::{Purpose, reserve};
use crate::wire::Wire;
use rustix::fd::OwnedFd;
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_io::Token;

/// The first dynamic port (RFC 6335 section 6).
const FIRST_PORT: u16 = 49_152;

/// Number of ports to try before the error that none is free.
const MAX_PORT_TRIES: usize = 64;

/// Number of requests to the kernel for the next hop's hardware address, which take about 3 seconds.
const MAX_TRIES: u32 = 50;

impl<W: Wire> Driver<W> {
    pub(crate) fn dial(&mut self, to: SocketAddr) -> io::Result<Token> {
        if self.conns.count() >= self.config.connections as usize {
            let text = format!("the xdp driver is limited to {} connections", self.config.connections);
            return Err(io::Error::other(text));
        }
        // The scope names the interface, and there is only one.
        let remote = SocketAddr::new(to.ip(), to.port());
        let (from, next_hop) = self.route_to(remote.ip())?;
        let (pair, port) = self.find_port(from, remote)?;
        let tcp = self.stack.active(pair.local, remote)?;
        let known = self.netlink.neighbour(self.info.index, next_hop);
        let phase = if known.is_some() { Phase::Connecting } else { Phase::Resolving { next_hop, tries: 0 } };
        self.claim(pair.local)?;
        let header = Ethernet::new(known.unwrap_or_default(), self.info.mac, remote.ip());
        let mut conn = Conn::new(tcp, pair, header, phase);
        conn.port = Some(port);
        let id = self.conns.put(conn);
        let token = self.tokens.put(id);
        if let Some(conn) = self.conns.get_mut(id) {
            conn.token = Some(token);
        }
        self.pairs.insert(pair, id);
        self.enqueue(id);
        Ok(token)
    }

    /// Finds our address and the next hop for `to`.
    fn route_to(&mut self, to: IpAddr) -> io::Result<(IpAddr, IpAddr)> {
        let name = &self.info.name;
        let of_link = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let (gateway, source) = if of_link(&to) {
            (None, None)
        } else {
            let route = self.netlink.route(to).map_err(|error| {
                io::Error::new(error.kind(), format!("there is no route to {to} for {name}: {error}"))
            })?;
            if route.interface != self.info.index {
                let text = format!("the route to {to} does not lead through {name}; see `ip route get {to}`");
                return Err(io::Error::new(io::ErrorKind::HostUnreachable, text));
            }
            (route.gateway, route.source)
        };
        let mut usable = self.stack.addresses().filter(|own| own.is_ipv4() == to.is_ipv4());
        let from = match source {
            Some(source) => usable.find(|own| *own == source),
            None => usable.find(|own| of_link(own) == of_link(&to)),
        };
        let Some(from) = from else {
            let text = format!("{name} has no address to reach {to} from");
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        };
        Ok((from, gateway.unwrap_or(to)))
    }

    /// Finds a random free local port (RFC 6056). Returns the pair and the kernel socket that reserves the port.
    fn find_port(&self, from: IpAddr, remote: SocketAddr) -> io::Result<(Pair, OwnedFd)> {
        for _ in 0..MAX_PORT_TRIES {
            let mut random = [0; 2];
            getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
            let port = FIRST_PORT | u16::from_ne_bytes(random) & !FIRST_PORT;
            let mut local = SocketAddr::new(from, port);
            let pair = Pair { local, remote };
            if self.pairs.contains_key(&pair) || self.claims.contains_key(&local) {
                continue;
            }
            if let (SocketAddr::V6(v6), true) =
                (&mut local, matches!(from, IpAddr::V6(v6) if v6.is_unicast_link_local()))
            {
                v6.set_scope_id(self.info.index);
            }
            match reserve(local, Purpose::Connect) {
                Ok((fd, _)) => return Ok((pair, fd)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no port of {from} is free")))
    }

    /// Asks the kernel once more for the next hop's hardware address.
    pub(crate) fn resolve(&mut self, id: Token) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Phase::Resolving { next_hop, tries } = conn.phase else { return };
        if let Some(mac) = self.netlink.neighbour(self.info.index, next_hop) {
            conn.header = Ethernet::new(mac, self.info.mac, conn.pair.remote.ip());
            conn.phase = Phase::Connecting;
            return;
        }
        if tries == 0
            && let Err(error) = self.netlink.resolve(self.info.index, next_hop)
        {
            let text = format!("cannot have the kernel resolve {next_hop}: {error}; it takes CAP_NET_ADMIN");
            return self.fail_later(id, io::Error::new(error.kind(), text));
        }
        if tries == MAX_TRIES {
            let text = format!("{next_hop}, the next hop to {}, does not answer", conn.pair.remote.ip());
            return self.fail_later(id, io::Error::new(io::ErrorKind::HostUnreachable, text));
        }
        conn.phase = Phase::Resolving { next_hop, tries: tries + 1 };
        let at = self.now + Duration::from_millis(1 << tries.min(6));
        conn.timer = Some(at);
        self.timers.push(Reverse((at, id)));
    }
}
