//! The io_uring driver, held to what every driver must do.
#![cfg(feature = "uring")]

mod suite;

use std::io::Write;
use tautline_io::uring::{Config, Driver};

/// Ends the whole binary where there is no io_uring: nothing of it could be tested.
fn with(config: Config) -> Driver {
    Driver::with(config).unwrap_or_else(|error| {
        // Not by eprintln!, which the test harness swallows.
        let _ = writeln!(std::io::stderr(), "SKIPPED: all of the io_uring driver: {error}");
        std::process::exit(0);
    })
}

driver_suite!(|| crate::with(tautline_io::uring::Config::default()));

/// With so little room that queues overflow and buffers are missing all the time.
mod cramped {
    use crate::{driver_suite, suite};
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let small = Config { buffers: 2, buffer: 32 << 10, submissions: 8, completions: 64, ..Config::default() };
        super::with(small)
    }

    driver_suite!(crate::cramped::make);
}

/// Spinning, with a time so short that it sleeps now and then.
mod spinning {
    use crate::{driver_suite, suite};
    use std::time::Duration;
    use tautline_io::Spin;
    use tautline_io::uring::{Config, Driver};

    fn make() -> Driver {
        let spin = Spin { idle: Duration::from_millis(5), ..Spin::default() };
        super::with(Config { spin: Some(spin), ..Config::default() })
    }

    driver_suite!(crate::spinning::make);
}
