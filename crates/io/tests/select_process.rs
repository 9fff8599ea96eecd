//! Tests of the select driver that affect the whole process, in one of their own.

#[expect(dead_code, reason = "the rest of the suite runs in another binary")]
mod suite;

#[path = "suite/process.rs"]
mod process;

#[test]
fn the_process_is_stopped_and_runs_out_of_descriptors() {
    let make = || tautline_io::select::Driver::new().unwrap();
    process::stopped_and_continued(make);
    process::connections_that_give_way(make);
    process::running_out(make);
}
