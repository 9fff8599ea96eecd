use super::{Cell, MARGIN, Table, run};
use crate::Suite;
use crate::aead::class::{Class, Direction};
use crate::aead::provider::{PROVIDERS, Provider};
use std::time::Instant;

fn cell(ns: [f64; PROVIDERS]) -> Cell {
    Cell { suite: Suite::Aes256Gcm, class: Class::Medium, direction: Direction::Open, ns }
}

#[test]
fn measures_every_provider_for_every_suite_class_and_direction() {
    let start = Instant::now();
    let table = run();
    // A round that has begun ends at the next pair of cells; other programs may have the CPU for a while.
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
    assert_eq!(table.cells().len(), 18);
    for cell in table.cells() {
        for provider in Provider::ALL {
            let ns = cell.ns(provider).unwrap_or_else(|| panic!("{provider} failed: {cell:?}"));
            assert!(ns > 1.0 && ns < 1e7, "{provider}: {cell:?}");
        }
        let fastest = table.fastest(cell.suite, cell.class, cell.direction);
        let least = Provider::ALL.into_iter().filter_map(|provider| cell.ns(provider)).fold(f64::INFINITY, f64::min);
        assert!(cell.ns(fastest).unwrap() * MARGIN <= least, "{cell:?}");
    }
}

#[cfg(feature = "ring")]
#[test]
fn the_favourite_is_kept_unless_another_is_faster_by_a_quarter() {
    use Provider::{AwsLc, Ring};

    for (ns, favourite, fastest) in [
        ([100.0, 50.0], AwsLc, Ring),
        ([100.0, 74.0], AwsLc, Ring),
        ([100.0, 76.0], AwsLc, AwsLc),
        ([100.0, 200.0], AwsLc, AwsLc),
        ([76.0, 100.0], Ring, Ring),
        ([74.0, 100.0], Ring, AwsLc),
        ([100.0, f64::INFINITY], AwsLc, AwsLc),
        ([100.0, f64::INFINITY], Ring, AwsLc),
        ([f64::INFINITY; 2], AwsLc, AwsLc),
    ] {
        assert_eq!(cell(ns).faster_than(favourite), fastest, "{ns:?}");
    }
}

#[cfg(feature = "ring")]
#[test]
fn smaller_records_favour_the_provider_of_larger_ones() {
    use Provider::{AwsLc, Ring};

    for (small, medium, large, expected) in [
        ([100.0, 90.0], [100.0, 90.0], [100.0, 90.0], [AwsLc, AwsLc, AwsLc]),
        ([100.0, 90.0], [100.0, 110.0], [100.0, 50.0], [Ring, Ring, Ring]),
        ([100.0, 150.0], [100.0, 60.0], [100.0, 50.0], [AwsLc, Ring, Ring]),
        ([100.0, 60.0], [100.0, 110.0], [100.0, 150.0], [Ring, AwsLc, AwsLc]),
    ] {
        let cells = Class::ALL.into_iter().zip([small, medium, large]);
        let table = Table { cells: cells.map(|(class, ns)| Cell { class, ..cell(ns) }).collect() };
        let fastest = |class| table.fastest(Suite::Aes256Gcm, class, Direction::Open);
        assert_eq!(Class::ALL.map(fastest), expected);
        assert_eq!(table.fastest(Suite::Aes256Gcm, Class::Small, Direction::Seal), AwsLc, "not measured");
    }
}

#[test]
fn a_failed_provider_has_no_time() {
    assert_eq!(cell([f64::INFINITY; PROVIDERS]).ns(Provider::AwsLc), None);
    assert_eq!(Table { cells: Vec::new() }.cells().len(), 0);
}
