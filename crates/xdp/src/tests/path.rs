//! Genuine and forged messages of routers about too long packets.

use super::*;
use crate::path::TooBig;
use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// A router's "fragmentation needed" about a packet of ours.
fn too_big(quoted: &[u8], mtu: u16) -> Vec<u8> {
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend(quoted);
    Icmpv4Packet::new_unchecked(&mut icmp[..]).fill_checksum();
    let mut message = Ethernet::new(OURS, THEIRS, Ipv4Addr::LOCALHOST.into()).0.to_vec();
    let len = u16::try_from(20 + icmp.len()).unwrap().to_be_bytes();
    message.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 1, 127, 0, 0, 1]);
    message.extend(icmp);
    message
}

/// The beginning of a packet of ours, as routers quote it.
fn quoted(pair: Pair, sequence: u32) -> Vec<u8> {
    let back = Pair { local: pair.remote, remote: pair.local };
    let packet = frame(back, sequence, ACK).split_off(ETHERNET);
    packet[..28].to_vec()
}

/// Opens a connection with 3000 bytes under way. Returns its pair and the first byte's sequence number.
fn busy(bench: &mut Bench) -> (Pair, u32) {
    let pair = bench.pair(1);
    let ours = bench.give(opening(pair))[0].1.wrapping_add(1);
    bench.give(acknowledging(frame(pair, 1001, ACK), ours));
    // The peer acknowledges data, so that the number differs from that of the handshake.
    bench.give(acknowledging(with_data(frame(pair, 1001, ACK), b"echo"), ours));
    let ours = ours.wrapping_add(4);
    bench.log.mute = true;
    bench.give(acknowledging(with_data(frame(pair, 1005, ACK), b"now"), ours));
    let token = bench.log.accepted[0];
    let mut buf = Buf::new();
    buf.put(&[7; 3000]);
    let _ = bench.driver.send(token, buf);
    let longest = bench.driver.wire.wire.outbound.drain(..).map(|frame| frame.len()).max();
    assert_eq!(longest, Some(ETHERNET + 1500));
    (pair, ours)
}

/// Waits for the retransmission timer, which each run makes longer. Returns the length of the longest retransmitted IP packet.
fn longest_retransmitted(bench: &mut Bench) -> usize {
    let (begin, mut longest) = (Instant::now(), 0);
    while longest == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing was retransmitted");
        std::thread::sleep(Duration::from_millis(15));
        for _ in 0..3 {
            bench.driver.turn(Some(Duration::ZERO), &mut bench.log).unwrap();
            let frames = bench.driver.wire.wire.outbound.drain(..);
            longest = frames.map(|frame| frame.len() - ETHERNET).fold(longest, usize::max);
        }
    }
    longest
}

fn fast_timers() -> Bench {
    Bench::new(Config { retransmit: Duration::from_millis(5), ..Config::new("memory") })
}

#[test]
fn a_quoted_segment_under_way_lowers_the_mtu() {
    for (mtu, longest) in [(1400, 1392), (1499, 1488), (1500, 1500), (9000, 1500), (0, 576), (68, 576), (576, 576)] {
        let mut bench = fast_timers();
        let (pair, ours) = busy(&mut bench);
        bench.give(too_big(&quoted(pair, ours), mtu));
        assert_eq!(longest_retransmitted(&mut bench), longest, "{mtu}");
        // A larger MTU is ignored.
        bench.give(too_big(&quoted(pair, ours), 1500));
        assert_eq!(longest_retransmitted(&mut bench), longest, "{mtu}");
    }
}

#[test]
fn a_guessed_segment_changes_nothing() {
    let mut bench = fast_timers();
    let (pair, ours) = busy(&mut bench);
    for off in [3000, 4000, 1 << 20, 1 << 31, u32::MAX, u32::MAX - 3] {
        bench.give(too_big(&quoted(pair, ours.wrapping_add(off)), 600));
    }
    bench.give(too_big(&quoted(bench.pair(2), ours), 600));
    let mut damaged = too_big(&quoted(pair, ours), 600);
    damaged[ETHERNET + 27] ^= 1;
    bench.give(damaged);
    assert_eq!(longest_retransmitted(&mut bench), 1500);
    bench.give(too_big(&quoted(pair, ours.wrapping_add(2999)), 600));
    assert_eq!(longest_retransmitted(&mut bench), 592);
}

#[test]
fn reads_both_families_and_rejects_truncated_messages() {
    let pair = Pair { local: "[fd00::1]:443".parse().unwrap(), remote: "[fd00::2]:5000".parse().unwrap() };
    let mut icmp = vec![2, 0, 0, 0, 0, 0, 5, 0];
    let back = Pair { local: pair.remote, remote: pair.local };
    icmp.extend(&frame(back, 77, ACK)[ETHERNET..]);
    let (router, ours): (Ipv6Addr, Ipv6Addr) = ("fd00::9".parse().unwrap(), "fd00::1".parse().unwrap());
    Icmpv6Packet::new_unchecked(&mut icmp[..]).fill_checksum(&router, &ours);
    let mut v6 = Ethernet::new(OURS, THEIRS, ours.into()).0.to_vec();
    v6.extend([0x60, 0, 0, 0, 0, u8::try_from(icmp.len()).unwrap(), 58, 64]);
    v6.extend(router.octets().into_iter().chain(ours.octets()).chain(icmp));
    let v4_pair = Pair { local: "10.0.0.1:443".parse().unwrap(), remote: "10.0.0.2:5000".parse().unwrap() };
    let v4 = too_big(&quoted(v4_pair, 77), 1280);
    for (message, pair) in [(v6, pair), (v4, v4_pair)] {
        assert_eq!(TooBig::read(&message, OURS), Some(TooBig { pair, sequence: 77, mtu: 1280 }));
        assert_eq!(TooBig::read(&message, THEIRS), None, "the frame is for another address");
        for cut in 0..message.len() {
            assert_eq!(TooBig::read(&message[..cut], OURS), None, "{cut}");
        }
        for at in (12..14).chain(message.len() - 8..message.len()) {
            let mut bad = message.clone();
            bad[at] ^= 0x10;
            assert_eq!(TooBig::read(&bad, OURS), None, "{at}");
        }
    }
}
