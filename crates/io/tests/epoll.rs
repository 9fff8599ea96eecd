//! The epoll driver, held to what every driver must do.

mod suite;

driver_suite!(|| tautline_io::epoll::Driver::new().unwrap());

#[path = "suite/foreign.rs"]
mod foreign;

/// Within the loop of somebody else.
mod within_another_loop {
    use crate::{driver_suite, suite};

    driver_suite!(|| crate::foreign::Foreign(tautline_io::epoll::Driver::new().unwrap()));
}

/// Spinning, with a time so short that it sleeps now and then.
mod spinning {
    use crate::{driver_suite, suite};
    use std::time::Duration;
    use tautline_io::Spin;
    use tautline_io::epoll::{Config, Driver};

    #[expect(clippy::unwrap_used, reason = "called by tests alone")]
    fn make() -> Driver {
        let mut spin = Spin::default();
        spin.idle = Duration::from_millis(5);
        let mut config = Config::default();
        config.spin = Some(spin);
        Driver::with(config).unwrap()
    }

    driver_suite!(crate::spinning::make);
}
