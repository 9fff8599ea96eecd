use super::{Direction, Duplex, Frames, Gets, Maker, Memory, Strategy, Variant};
use std::time::Duration;
use tautline_measure::cpu::Placement;
use tautline_measure::{Error, Span};

const MOMENT: Duration = Duration::from_millis(20);

/// Lengths of a measurement; the next is tried if other processes had the CPUs all through the one before.
const PERIODS: [Duration; 3] = [Duration::from_millis(80), Duration::from_millis(800), Duration::from_secs(8)];

#[test]
fn every_variant_returns_the_bytes_it_was_given() {
    for variant in Variant::all() {
        let maker = Maker::new(variant).unwrap();
        for size in [1, 64, 16_384, 65_536] {
            for direction in Direction::ALL {
                let us = Memory::new(&maker, size, direction).unwrap().measure(MOMENT / 20).unwrap();
                assert!(us > 0.005 && us < 1e5, "{} {size} {direction:?}: {us}", variant.name());
            }
        }
        let (us, frames) = Frames::new(&maker).unwrap().measure(MOMENT).unwrap();
        assert!(us > 0.1 && frames >= 16, "{}: {us}", variant.name());
    }
}

#[test]
fn every_variant_works_on_sockets() {
    let placement = Placement::here();
    let mut seen = Vec::new();
    for variant in Variant::all() {
        // One library of each kind.
        if seen.contains(&variant.strategy) {
            continue;
        }
        seen.push(variant.strategy);
        let maker = &Maker::new(variant).unwrap();
        for spills in [false, true] {
            let moves = PERIODS.into_iter().any(|duration| {
                let moved = Duplex { maker, spills, placement, span: Span { warmup: MOMENT, duration } }.run().unwrap();
                moved.read > 0.0 && moved.written > 0.0 && moved.sealed > 1
            });
            assert!(moves, "{}", variant.name());
        }
        for closes in [false, true] {
            let gets = PERIODS.into_iter().any(|duration| {
                let got = Gets { maker, in_flight: 4, closes, placement, span: Span { warmup: MOMENT, duration } }
                    .run()
                    .unwrap();
                got.rate > 1.0 && got.server_us > 0.1
            });
            assert!(gets, "{}", variant.name());
        }
    }
}

#[test]
fn refuses_a_library_that_is_not_built_in() {
    let variant = Variant { tls: Some("schannel"), strategy: Strategy::WindowBio };
    assert!(matches!(Maker::new(variant), Err(Error::Usage(_))));
}
