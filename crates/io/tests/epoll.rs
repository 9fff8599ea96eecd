//! The epoll driver, held to what every driver must do.

mod suite;

driver_suite!(|| tautline_io::epoll::Driver::new().unwrap());
