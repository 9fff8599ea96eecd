//! As much of a frame as is needed to find its connection; the TCP/IP stack checks the rest.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// Length of an Ethernet header without VLAN tag.
pub(crate) const ETHERNET: usize = 14;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ethernet(pub(crate) [u8; ETHERNET]);

impl Ethernet {
    pub(crate) fn new(to: Mac, from: Mac, address: IpAddr) -> Self {
        let mut header = [0; ETHERNET];
        header[..6].copy_from_slice(&to);
        header[6..12].copy_from_slice(&from);
        header[12..].copy_from_slice(if address.is_ipv4() { &IPV4 } else { &IPV6 });
        Self(header)
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// What a TCP segment is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) pair: Pair,
    /// The header for frames that go back to where this one came from.
    pub(crate) back: Ethernet,
    pub(crate) sequence: u32,
    flags: u8,
}

impl Segment {
    /// Reads a frame that came for `mac`: TCP over IPv4 without options, or over IPv6 without extension headers, in one
    /// piece. All else is none of ours; the program passes it to the kernel.
    pub(crate) fn read(frame: &[u8], mac: Mac) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
        if ethernet[..6] != mac {
            return None;
        }
        let (local, remote, tcp): (IpAddr, IpAddr, _) = match [ethernet[12], ethernet[13]] {
            IPV4 => {
                let (head, tcp) = packet.split_at_checked(20)?;
                let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
                if head[0] != 0x45 || fragment != 0 || head[9] != TCP {
                    return None;
                }
                let address = |at: usize| Some(Ipv4Addr::from(*head[at..].first_chunk::<4>()?));
                (address(16)?.into(), address(12)?.into(), tcp)
            }
            IPV6 => {
                let (head, tcp) = packet.split_at_checked(40)?;
                if head[0] >> 4 != 6 || head[6] != TCP {
                    return None;
                }
                let address = |at: usize| Some(Ipv6Addr::from(*head[at..].first_chunk::<16>()?));
                (address(24)?.into(), address(8)?.into(), tcp)
            }
            _ => return None,
        };
        let tcp = tcp.first_chunk::<20>()?;
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let from = Mac::try_from(&ethernet[6..12]).ok()?;
        Some(Self {
            pair: Pair { local: SocketAddr::new(local, port(2)), remote: SocketAddr::new(remote, port(0)) },
            back: Ethernet::new(from, mac, local),
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            flags: tcp[13],
        })
    }

    /// The first segment of a connection that the peer opens.
    pub(crate) const fn opens(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    pub(crate) const fn is_syn(&self) -> bool {
        self.flags & SYN != 0
    }

    pub(crate) const fn is_reset(&self) -> bool {
        self.flags & RST != 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const OURS: Mac = [2, 0, 0, 0, 0, 1];
    pub(crate) const THEIRS: Mac = [2, 0, 0, 0, 0, 2];

    /// A frame with a TCP header without options, as `flags` say.
    pub(crate) fn frame(pair: Pair, sequence: u32, flags: u8) -> Vec<u8> {
        let mut frame = Ethernet::new(OURS, THEIRS, pair.local.ip()).0.to_vec();
        match (pair.remote.ip(), pair.local.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x60, 0, 0, 0, 0, 20, TCP, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => panic!("two families"),
        }
        frame.extend(pair.remote.port().to_be_bytes());
        frame.extend(pair.local.port().to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        frame
    }

    fn pairs() -> [Pair; 2] {
        [("10.0.0.1:443", "10.0.0.2:5000"), ("[fd00::1]:443", "[fd00::2]:5000")]
            .map(|(local, remote)| Pair { local: local.parse().unwrap(), remote: remote.parse().unwrap() })
    }

    #[test]
    fn reads_both_families() {
        for pair in pairs() {
            let frame = frame(pair, 77, SYN);
            let segment = Segment::read(&frame, OURS).unwrap();
            assert_eq!((segment.pair, segment.sequence), (pair, 77));
            assert!(segment.opens() && segment.is_syn() && !segment.is_reset());
            assert_eq!(segment.back, Ethernet::new(THEIRS, OURS, pair.local.ip()));
            assert!(Segment::read(&frame, THEIRS).is_none(), "a frame for somebody else");
            for cut in 0..frame.len() {
                assert!(Segment::read(&frame[..cut], OURS).is_none(), "{cut}");
            }
        }
    }

    #[test]
    fn refuses_fragments_options_and_other_protocols() {
        let good = frame(pairs()[0], 0, ACK);
        for (at, byte) in [(14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (23, 17), (12, 0x81)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(Segment::read(&bad, OURS).is_none(), "byte {at} is {byte}");
        }
        let mut extended = frame(pairs()[1], 0, ACK);
        extended[20] = 44;
        assert!(Segment::read(&extended, OURS).is_none(), "an IPv6 fragment");
    }

    #[test]
    fn only_a_bare_syn_opens() {
        for flags in 0..=255 {
            let segment = Segment::read(&frame(pairs()[0], 0, flags), OURS).unwrap();
            assert_eq!(segment.opens(), flags & 0x17 == SYN, "{flags:#x}");
        }
    }
}
