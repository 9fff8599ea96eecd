//! Queries the kernel for interfaces, routes and neighbours: rtnetlink(7).

use crate::frame::Mac;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

// Kinds of messages (linux/rtnetlink.h).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const GET_NEIGHBOUR: u16 = 30;

// Flags of requests (linux/netlink.h).
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

// Attributes.
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const LINK_RECEIVE_QUEUES: u16 = 32;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_SOURCE: u16 = 7;
const NEIGHBOUR_ADDRESS: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;

/// `NTF_USE`: the kernel resolves the neighbour as if it had a packet for it.
const USE: u8 = 1;
/// `NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_NOARP | NUD_PERMANENT`: the address is known.
const KNOWN: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// `RTN_UNICAST`.
const UNICAST: u8 = 1;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// `IFF_UP`.
const UP: u32 = 1;
/// `IFA_F_TENTATIVE`: the address is still checked for duplicates.
const TENTATIVE: u8 = 0x40;

/// An interface.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) index: u32,
    /// The hardware address; `None` if it is no Ethernet: the loopback device has an address of zeros.
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
    pub(crate) is_up: bool,
    /// The kind of a software interface: `veth`, `bond` ...; empty for a device.
    pub(crate) kind: String,
}

/// A route to a destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) interface: u32,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) source: Option<IpAddr>,
}

/// A netlink socket, bound to the network namespace in which it was made.
pub(crate) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn new() -> io::Result<Self> {
        // Without a protocol it is protocol 0: NETLINK_ROUTE.
        let fd = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // The kernel answers within the call. The timeout is for a broken kernel.
        set_socket_timeout(&fd, Timeout::Recv, Some(Duration::from_secs(1)))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Finds the interface with this name.
    ///
    /// # Errors
    /// There is no such interface.
    pub(crate) fn link(&mut self, name: &str) -> io::Result<Link> {
        let mut body = vec![0; 16];
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        attribute(&mut body, LINK_NAME, &text);
        let mut found = None;
        self.request(GET_LINK, 0, &body, |kind, body| {
            let (Some(head), Some(attributes)) = (body.get(..16), body.get(16..)) else { return };
            if kind == NEW_LINK {
                found = Some(link(head, attributes));
            }
        })?;
        found.ok_or_else(|| Errno::NODEV.into())
    }

    /// Finds the addresses of an interface and the lengths of their prefixes.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub(crate) fn addresses(&mut self, interface: u32) -> io::Result<Vec<(IpAddr, u8)>> {
        let mut addresses = Vec::new();
        self.request(GET_ADDRESS, DUMP, &[0; 8], |kind, body| {
            let (Some(head), Some(rest)) = (body.get(..8), body.get(8..)) else { return };
            if kind != NEW_ADDRESS || word(&head[4..]) != Some(interface) || head[2] & TENTATIVE != 0 {
                return;
            }
            // A point-to-point IPv4 interface also reports the peer's address.
            let pick = |wanted| attributes(rest).find(|&(kind, _)| kind == wanted).and_then(|(_, data)| ip(data));
            if let Some(address) = pick(ADDRESS_LOCAL).or_else(|| pick(ADDRESS)) {
                addresses.push((address, head[1]));
            }
        })?;
        Ok(addresses)
    }

    /// Finds the route to `to`.
    ///
    /// # Errors
    /// There is no route, or it is not a unicast route.
    pub(crate) fn route(&mut self, to: IpAddr) -> io::Result<Route> {
        let mut body = vec![0; 12];
        body[0] = family(to);
        body[1] = if to.is_ipv4() { 32 } else { 128 };
        attribute(&mut body, ROUTE_DESTINATION, &octets(to));
        let mut found = None;
        self.request(GET_ROUTE, 0, &body, |kind, body| {
            if kind != NEW_ROUTE || body.get(7) != Some(&UNICAST) {
                return;
            }
            let mut route = Route { interface: 0, gateway: None, source: None };
            for (kind, data) in attributes(body.get(12..).unwrap_or_default()) {
                match kind {
                    ROUTE_INTERFACE => route.interface = word(data).unwrap_or(0),
                    ROUTE_GATEWAY => route.gateway = ip(data),
                    ROUTE_SOURCE => route.source = ip(data),
                    _ => {}
                }
            }
            found = Some(route);
        })?;
        found.ok_or_else(|| Errno::NETUNREACH.into())
    }

    /// Finds the hardware address of a neighbour, if the kernel knows it.
    pub(crate) fn neighbour(&mut self, interface: u32, address: IpAddr) -> Option<Mac> {
        let body = neighbour(interface, address, 0, 0);
        let mut found = None;
        let asked = self.request(GET_NEIGHBOUR, 0, &body, |kind, body| {
            let Some(state) = body.get(8..10).map(|state| u16::from_ne_bytes([state[0], state[1]])) else { return };
            if kind == NEW_NEIGHBOUR && state & KNOWN != 0 {
                let mut attributes = attributes(body.get(12..).unwrap_or_default());
                found = attributes.find(|&(kind, _)| kind == NEIGHBOUR_MAC).and_then(|(_, data)| data.try_into().ok());
            }
        });
        // An unknown neighbour is reported as an error.
        if asked.is_err() { None } else { found }
    }

    /// Has the kernel resolve the hardware address of a neighbour, or confirm it.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub(crate) fn resolve(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        let body = neighbour(interface, address, 0, USE);
        self.request(NEW_NEIGHBOUR, ACKNOWLEDGE | CREATE, &body, |_, _| {})
    }

    /// Sends a request and calls `each` for every message of the answer.
    fn request(&mut self, kind: u16, flags: u16, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let flags = if flags & DUMP == 0 { flags | ACKNOWLEDGE } else { flags };
        let len = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(16 + body.len());
        request.extend(len.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((flags | REQUEST).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        request.extend(body);
        net::sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = vec![0; 1 << 16];
        loop {
            let (received, _) = net::recv(&self.fd, &mut answer[..], RecvFlags::empty())?;
            let mut rest = &answer[..received];
            while let Some((header, body, behind)) = message(rest) {
                rest = behind;
                if header.sequence != self.sequence {
                    continue;
                }
                match header.kind {
                    DONE => return Ok(()),
                    ERROR => {
                        let code = word(body).map_or(0, |code| code.cast_signed());
                        let error = || Err(io::Error::from_raw_os_error(code.saturating_neg()));
                        return if code == 0 { Ok(()) } else { error() };
                    }
                    kind => each(kind, body),
                }
            }
        }
    }
}

struct Header {
    kind: u16,
    sequence: u32,
}

/// Splits off the first message. Returns header, body and the rest.
fn message(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let len = usize::try_from(word(bytes)?).ok()?;
    let head = bytes.get(..16)?;
    let body = bytes.get(16..len)?;
    let header = Header { kind: u16::from_ne_bytes([head[4], head[5]]), sequence: word(&head[8..])? };
    Some((header, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Iterates over the attributes in `bytes`: kind and content.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[a, b, c, d, ..] = bytes else { return None };
        let len = usize::from(u16::from_ne_bytes([a, b]));
        // The upper two bits are flags of the encoding.
        let kind = u16::from_ne_bytes([c, d]) & 0x3fff;
        let content = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

fn link(head: &[u8], rest: &[u8]) -> Link {
    let flags = word(&head[8..]).unwrap_or(0);
    let is_ethernet = head.get(2..4) == Some(&ETHERNET.to_ne_bytes());
    let mut link = Link {
        index: word(&head[4..]).unwrap_or(0),
        mac: None,
        mtu: 0,
        queues: 1,
        is_up: flags & UP != 0,
        kind: String::new(),
    };
    for (kind, data) in attributes(rest) {
        match kind {
            LINK_ADDRESS if is_ethernet => link.mac = data.try_into().ok(),
            LINK_MTU => link.mtu = word(data).unwrap_or(0),
            LINK_RECEIVE_QUEUES => link.queues = word(data).unwrap_or(1),
            LINK_INFO => {
                let kind = attributes(data).find(|&(kind, _)| kind == LINK_INFO_KIND).map(|(_, data)| data);
                let text = kind.unwrap_or_default();
                link.kind = String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned();
            }
            _ => {}
        }
    }
    link
}

fn neighbour(interface: u32, address: IpAddr, state: u16, flags: u8) -> Vec<u8> {
    let mut body = vec![family(address), 0, 0, 0];
    body.extend(interface.to_ne_bytes());
    body.extend(state.to_ne_bytes());
    body.extend([flags, 0]);
    attribute(&mut body, NEIGHBOUR_ADDRESS, &octets(address));
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, content: &[u8]) {
    let len = u16::try_from(4 + content.len()).unwrap_or(u16::MAX);
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(content);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|&word| u32::from_ne_bytes(word))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(|octets| Ipv4Addr::from(octets).into());
    v4().or_else(|| <[u8; 16]>::try_from(bytes).ok().map(|octets| Ipv6Addr::from(octets).into()))
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// `AF_INET` or `AF_INET6`.
const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_loopback_device() {
        let mut netlink = Netlink::new().unwrap();
        let link = netlink.link("lo").unwrap();
        assert!(link.is_up && link.mac.is_none() && link.mtu >= 1280 && link.queues >= 1, "{link:?}");
        let addresses = netlink.addresses(link.index).unwrap();
        assert!(addresses.contains(&(Ipv4Addr::LOCALHOST.into(), 8)), "{addresses:?}");
        assert!(netlink.route(Ipv4Addr::LOCALHOST.into()).is_err(), "a local address is not routed");
        assert_eq!(netlink.neighbour(link.index, Ipv4Addr::new(192, 0, 2, 1).into()), None);
    }

    #[test]
    fn no_interface_is_an_error() {
        let error = Netlink::new().unwrap().link("no-such-one").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    }

    #[test]
    fn cut_attributes_end_the_list() {
        let mut bytes = Vec::new();
        attribute(&mut bytes, 7, b"abc");
        attribute(&mut bytes, 8, b"defgh");
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(7, &b"abc"[..]), (8, b"defgh")]);
        for cut in 0..bytes.len() {
            let found = attributes(&bytes[..cut]).count();
            assert!(found <= usize::from(cut >= 7) + usize::from(cut >= 17), "{cut}: {found}");
        }
        assert_eq!(attributes(&[0, 0, 1, 0, 0, 0, 1, 0]).count(), 0, "an empty attribute repeats");
    }
}
