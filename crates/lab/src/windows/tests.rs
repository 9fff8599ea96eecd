use super::{Direction, Duplex, Frames, Gets, Maker, Memory, Strategy, Way};
use crate::Error;
use crate::cpu::Placement;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(20);

/// The next is for where others had the processors all through the one before.
const PERIODS: [Duration; 3] = [Duration::from_millis(80), Duration::from_millis(800), Duration::from_secs(8)];

#[test]
fn every_way_gives_back_what_it_got() {
    for way in Way::all() {
        let maker = Maker::new(way).unwrap();
        for size in [1, 64, 16_384, 65_536] {
            for direction in [Direction::Seal, Direction::Open] {
                let us = Memory::new(&maker, size, direction).unwrap().measure(MOMENT / 20).unwrap();
                assert!(us > 0.005 && us < 1e5, "{} {size} {direction:?}: {us}", way.name());
            }
        }
        let (us, frames) = Frames::new(&maker).unwrap().measure(MOMENT).unwrap();
        assert!(us > 0.1 && frames >= 16, "{}: {us}", way.name());
    }
}

#[test]
fn every_way_works_on_sockets() {
    let placement = Placement::here();
    let mut seen = Vec::new();
    for way in Way::all() {
        // One library of each kind.
        if seen.contains(&way.strategy) {
            continue;
        }
        seen.push(way.strategy);
        let maker = &Maker::new(way).unwrap();
        for spills in [false, true] {
            let moves = PERIODS.into_iter().any(|duration| {
                let moved = Duplex { maker, spills, placement, warmup: MOMENT, duration }.run().unwrap();
                moved.read > 0.0 && moved.written > 0.0 && moved.sealed > 1
            });
            assert!(moves, "{}", way.name());
        }
        for closes in [false, true] {
            let gets = PERIODS.into_iter().any(|duration| {
                let got = Gets { maker, in_flight: 4, closes, placement, warmup: MOMENT, duration }.run().unwrap();
                got.rate > 1.0 && got.server_us > 0.1
            });
            assert!(gets, "{}", way.name());
        }
    }
}

#[test]
fn what_is_not_built_in_says_so() {
    let way = Way { tls: Some("schannel"), strategy: Strategy::WindowBio };
    assert!(matches!(Maker::new(way), Err(Error::Usage(_))));
}
