use super::{Cell, Table, run};
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
        assert_eq!(table.fastest(cell.suite, cell.class, cell.direction), cell.fastest());
    }
}

#[cfg(feature = "ring")]
#[test]
fn aws_lc_is_kept_unless_another_is_clearly_faster() {
    for (ns, fastest) in [
        ([100.0, 50.0], Provider::Ring),
        ([100.0, 87.0], Provider::Ring),
        ([100.0, 89.0], Provider::AwsLc),
        ([100.0, 200.0], Provider::AwsLc),
        ([100.0, f64::INFINITY], Provider::AwsLc),
        ([f64::INFINITY; 2], Provider::AwsLc),
    ] {
        assert_eq!(cell(ns).fastest(), fastest, "{ns:?}");
    }
    let table = Table { cells: vec![cell([100.0, 50.0])] };
    assert_eq!(table.fastest(Suite::Aes256Gcm, Class::Medium, Direction::Open), Provider::Ring);
    assert_eq!(table.fastest(Suite::Aes256Gcm, Class::Medium, Direction::Seal), Provider::AwsLc, "not measured");
}

#[test]
fn a_failed_provider_has_no_time() {
    assert_eq!(cell([f64::INFINITY; PROVIDERS]).ns(Provider::AwsLc), None);
    assert_eq!(Table { cells: Vec::new() }.cells().len(), 0);
}
