//! Path MTU discovery: "fragmentation needed" (RFC 1191) and "packet too big" (RFC 4443 section 3.2) from routers.
//!
//! The connection in the message sends shorter packets if the quoted segment is under way (RFC 5927 section 7.2). An
//! attacker who does not see our segments cannot quote one.

use crate::driver::Driver;
use crate::frame::{ETHERNET, IPV4, IPV6, Mac, Pair, TCP};
use crate::wire::Wire;
use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A router's message that a segment of ours was too long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    /// The connection of the segment.
    pub(crate) pair: Pair,
    /// The sequence number of the segment.
    pub(crate) sequence: u32,
    /// Most bytes of an IP packet on the next link; 0 if the router is too old to report it.
    pub(crate) mtu: usize,
}

impl TooBig {
    /// Reads a message in a frame for `mac`: unfragmented, without IP options, and with a correct checksum.
    pub(crate) fn read(frame: &[u8], mac: Mac) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET>()?;
        if ethernet[..6] != mac {
            return None;
        }
        match [ethernet[12], ethernet[13]] {
            IPV4 => Self::read_v4(packet),
            IPV6 => Self::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &[u8]) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk::<20>()?;
        let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
        if head[0] != 0x45 || fragment != 0 || head[9] != ICMP {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([head[2], head[3]])).checked_sub(20)?;
        let message = rest.get(..len)?;
        let (icmp, quoted) = message.split_first_chunk::<8>()?;
        let (inner, tcp) = quoted.split_first_chunk::<20>()?;
        let is_ours = icmp[..2] == [3, 4] && inner[0] == 0x45 && inner[9] == TCP;
        if !is_ours || !Icmpv4Packet::new_checked(message).ok()?.verify_checksum() {
            return None;
        }
        let address = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*inner[at..].first_chunk::<4>()?)));
        Self::new(address(12)?, address(16)?, tcp, u16::from_be_bytes([icmp[6], icmp[7]]).into())
    }

    fn read_v6(packet: &[u8]) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk::<40>()?;
        if head[0] >> 4 != 6 || head[6] != ICMPV6 {
            return None;
        }
        let message = rest.get(..usize::from(u16::from_be_bytes([head[4], head[5]])))?;
        let (icmp, quoted) = message.split_first_chunk::<8>()?;
        let (inner, tcp) = quoted.split_first_chunk::<40>()?;
        let address = |head: &[u8; 40], at: usize| Some(Ipv6Addr::from(*head[at..].first_chunk::<16>()?));
        let (from, to) = (address(head, 8)?, address(head, 24)?);
        let is_ours = icmp[..2] == [2, 0] && inner[0] >> 4 == 6 && inner[6] == TCP;
        if !is_ours || !Icmpv6Packet::new_checked(message).ok()?.verify_checksum(&from, &to) {
            return None;
        }
        let mtu = u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]);
        Self::new(address(inner, 8)?.into(), address(inner, 24)?.into(), tcp, usize::try_from(mtu).ok()?)
    }

    fn new(local: IpAddr, remote: IpAddr, tcp: &[u8], mtu: usize) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = *tcp.first_chunk::<8>()?;
        let (from, to) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let pair = Pair { local: SocketAddr::new(local, from), remote: SocketAddr::new(remote, to) };
        Some(Self { pair, sequence: u32::from_be_bytes([e, f, g, h]), mtu })
    }
}

impl<W: Wire> Driver<W> {
    /// Has a connection send shorter packets. Lost segments are retransmitted when the timer expires.
    pub(crate) fn lower_path_mtu(&mut self, message: &TooBig) {
        let Some(&id) = self.pairs.get(&message.pair) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.is_under_way(message.sequence) {
            return;
        }
        let remote = message.pair.remote;
        match self.stack.lower_mtu(&mut conn.tcp, remote.is_ipv4(), message.mtu) {
            Ok(None) => {}
            Ok(Some(mtu)) => log::debug!("{remote}: a router limits packets to {mtu} bytes"),
            Err(error) => log::warn!("{remote}: packets are too long for the path and cannot be shortened: {error}"),
        }
    }
}
