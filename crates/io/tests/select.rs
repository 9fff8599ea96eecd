//! The select driver, held to what every driver must do.

mod suite;

use tautline_io::select::{Config, Driver};

#[expect(clippy::unwrap_used, reason = "called by tests alone")]
fn make() -> Driver {
    // The tests of this binary share its descriptors, which are more than fit a set of the usual size.
    let mut config = Config::default();
    config.descriptors = 1 << 20;
    Driver::with(config).unwrap()
}

driver_suite!(crate::make);
