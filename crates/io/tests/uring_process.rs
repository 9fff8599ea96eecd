//! The io_uring driver where the whole process is concerned, alone in it.

#[expect(dead_code, reason = "the rest of the suite runs in another binary")]
mod suite;

#[path = "suite/process.rs"]
mod process;

use tautline_io::DriverConfig;
use tautline_io::uring::Driver;

#[test]
fn the_process_is_stopped_and_runs_out_of_descriptors() {
    if let Err(error) = DriverConfig::from(tautline_io::uring::Config::default()).probe() {
        return suite::skip("all of the io_uring driver", &error.to_string());
    }
    let make = || Driver::new().unwrap();
    process::stopped_and_continued(make);
    process::connections_that_give_way(make);
    process::running_out(make);
}
