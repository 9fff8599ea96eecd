//! The select driver, held to what every driver must do.

mod suite;

// The tests of this binary share its descriptors, which are more than fit a set of the usual size.
driver_suite!(|| tautline_io::select::Driver::with_descriptors(tautline_io::epoll::Config::default(), 1 << 20).unwrap());
