//! Reads just enough of a frame to find its connection. The TCP/IP stack checks the rest.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// Length of an Ethernet header without VLAN tag.
pub(crate) const ETHERNET: usize = 14;

pub(crate) const IPV4: [u8; 2] = [0x08, 0x00];
pub(crate) const IPV6: [u8; 2] = [0x86, 0xdd];
pub(crate) const TCP: u8 = 6;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Hash for Pair {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // The local address is left out, because there are few. Equal pairs still have equal hashes.
        let ports = u64::from(self.local.port()) << 16 | u64::from(self.remote.port());
        match self.remote.ip() {
            IpAddr::V4(v4) => hasher.write_u64(u64::from(v4.to_bits()) << 32 | ports),
            IpAddr::V6(v6) => {
                hasher.write_u128(v6.to_bits());
                hasher.write_u64(ports);
            }
        }
    }
}

/// The parts of a TCP segment that the driver needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) pair: Pair,
    /// The Ethernet header for replies.
    pub(crate) reply_header: Ethernet,
    pub(crate) sequence: u32,
    /// The acknowledgement number, valid with the flag ACK.
    pub(crate) acknowledged: u32,
    flags: u8,
    is_empty: bool,
}

impl Segment {
    /// Reads a frame for `mac`: unfragmented TCP over IPv4 without options, or over IPv6 without extension headers.
    ///
    /// The XDP program passes all other frames to the kernel.
    #[inline]
    pub(crate) fn read(frame: &[u8], mac: Mac) -> Option<Self> {
        let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
        if ethernet[..6] != mac {
            return None;
        }
        let (local, remote, len, tcp): (IpAddr, IpAddr, _, _) = match [ethernet[12], ethernet[13]] {
            IPV4 => {
                let (head, tcp) = packet.split_at_checked(20)?;
                let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff;
                if head[0] != 0x45 || fragment != 0 || head[9] != TCP {
                    return None;
                }
                let address = |at: usize| Some(Ipv4Addr::from(*head[at..].first_chunk::<4>()?));
                let len = usize::from(u16::from_be_bytes([head[2], head[3]])).checked_sub(20)?;
                (address(16)?.into(), address(12)?.into(), len, tcp)
            }
            IPV6 => {
                let (head, tcp) = packet.split_at_checked(40)?;
                if head[0] >> 4 != 6 || head[6] != TCP {
                    return None;
                }
                let address = |at: usize| Some(Ipv6Addr::from(*head[at..].first_chunk::<16>()?));
                let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
                (address(24)?.into(), address(8)?.into(), len, tcp)
            }
            _ => return None,
        };
        let tcp = tcp.first_chunk::<20>()?;
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let from = Mac::try_from(&ethernet[6..12]).ok()?;
        Some(Self {
            pair: Pair { local: SocketAddr::new(local, port(2)), remote: SocketAddr::new(remote, port(0)) },
            reply_header: Ethernet::new(from, mac, local),
            sequence: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            acknowledged: u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]),
            flags: tcp[13],
            is_empty: len <= usize::from(tcp[12] >> 4) * 4,
        })
    }

    /// Whether it opens a connection of the peer: SYN without ACK, RST and FIN.
    pub(crate) const fn is_syn(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// Whether it is an acknowledgement without data.
    pub(crate) const fn is_pure_ack(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == ACK && self.is_empty
    }

    pub(crate) const fn is_reset(&self) -> bool {
        self.flags & RST != 0
    }
}

/// Changes the window of a TCP segment by the smallest step. [`Segment::read`] must have read the IP packet.
pub(crate) fn change_window(packet: &mut [u8]) {
    let tcp = if packet.first().is_some_and(|first| first >> 4 == 4) { 20 } else { 40 };
    let Some(tcp) = packet.get_mut(tcp..).and_then(|tcp| tcp.first_chunk_mut::<20>()) else { return };
    let (old, sum) = (u16::from_be_bytes([tcp[14], tcp[15]]), u16::from_be_bytes([tcp[16], tcp[17]]));
    let new = old ^ 1;
    tcp[14..16].copy_from_slice(&new.to_be_bytes());
    // RFC 1624 section 3: the checksum changes by the difference of the field.
    let wide = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let folded = (wide & 0xffff) + (wide >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    let [_, _, high, low] = (!folded).to_be_bytes();
    tcp[16..18].copy_from_slice(&[high, low]);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const OURS: Mac = [2, 0, 0, 0, 0, 1];
    pub(crate) const THEIRS: Mac = [2, 0, 0, 0, 0, 2];

    /// A frame with these flags and a TCP header without options.
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
            assert!(segment.is_syn() && !segment.is_reset());
            assert_eq!(segment.reply_header, Ethernet::new(THEIRS, OURS, pair.local.ip()));
            assert!(Segment::read(&frame, THEIRS).is_none(), "the frame is for another address");
            for cut in 0..frame.len() {
                assert!(Segment::read(&frame[..cut], OURS).is_none(), "{cut}");
            }
        }
    }

    #[test]
    fn rejects_fragments_options_and_other_protocols() {
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
    fn a_changed_window_keeps_the_checksum_right() {
        for pair in pairs() {
            let mut packet = frame(pair, 7, ACK).split_off(ETHERNET);
            let at = packet.len() - 20;
            let sum = |packet: &[u8]| {
                let words = packet[at..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
                let sum = words.fold(0x1234, |sum: u32, word| sum + word);
                let folded = (sum & 0xffff) + (sum >> 16);
                (folded & 0xffff) + (folded >> 16)
            };
            let wrong = !u16::try_from(sum(&packet)).unwrap();
            packet[at + 16..at + 18].copy_from_slice(&wrong.to_be_bytes());
            assert_eq!(sum(&packet), 0xffff);
            let before = packet.clone();
            change_window(&mut packet);
            assert_eq!(sum(&packet), 0xffff);
            assert_ne!(before[at + 14..at + 16], packet[at + 14..at + 16]);
        }
    }

    #[test]
    fn only_a_bare_syn_is_a_syn() {
        for flags in 0..=255 {
            let segment = Segment::read(&frame(pairs()[0], 0, flags), OURS).unwrap();
            assert_eq!(segment.is_syn(), flags & 0x17 == SYN, "{flags:#x}");
        }
    }
}
