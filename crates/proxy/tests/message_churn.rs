//! Nothing is left of pairs in message mode that have ended. Alone in its process, whose descriptors it counts.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod kit;

use kit::wire::{self, BINARY, End, TEXT};
use kit::{messages, parsed, start};
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};
use tautline_proxy::tally::Figures;

/// The descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn nothing_is_left_of_pairs_that_end_in_any_way() {
    let (server, servers) = wire::server("");
    let live =
        parsed(&messages(&server, "max-size = \"100KiB\", rate = 1000, rate-by-address = 100000, deflate = true"));
    let proxy = start(live.clone());
    let before = descriptors();
    for number in 0..240 {
        let (client, server) = End::pair(&proxy, &servers);
        let (mut one, mut other) = if number % 2 == 0 { (client, server) } else { (server, client) };
        one.send(TEXT, b"own");
        assert_eq!(other.next(), (TEXT, b"own".to_vec()), "no byte of another pair");
        match number / 2 % 8 {
            0 => one.reset(),
            1 => one.finish(),
            2 => one.close(1000, ""),
            // Amid messages, small and large, of which the other side has a part of none.
            3 => one.send(0x01, b"half"),
            4 => {
                one.send(0x02, &[1; 90_000]);
                one.reset();
            }
            5 => one.stream.write_all(&[0xff; 3]).unwrap(),
            6 => {
                one.send(BINARY, &[1; 60_000]);
                other.reset();
            }
            _ => {
                one.close(4000, "");
                other.close(4001, "");
            }
        }
    }
    let figures = || Figures::of(&live.plan(), Instant::now());
    let tunnels = || figures().backends[0].servers[0].tunnels;
    let end = Instant::now() + kit::LONG;
    let left = || {
        let counters = proxy.shards()[0].counters();
        let memory = (counters.memory_sending, counters.memory_heads, counters.memory_partial, counters.memory_queued);
        (counters.connections, counters.open, memory, tunnels())
    };
    let nothing = (0, 0, (0, 0, 0, 0), 0);
    while (left() != nothing || descriptors() > before) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), nothing);
    assert!(descriptors() <= before, "{} of {before}", descriptors());
    assert_eq!(figures().routes[1].statuses[1], 240);
}
