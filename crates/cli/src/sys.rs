//! The unsafe part: what this program promises about its threads.
#![expect(unsafe_code, reason = "the promise that threads exchange no descriptors")]

use tautline::layers::io::machine::OwnDescriptors;

/// Lets loops and threads of the load have tables of descriptors of their own.
pub(crate) const fn own_descriptors() -> OwnDescriptors {
    // SAFETY: `taut` opens standard streams, the pipe of its signals, files and processes on its first threads, and no other
    // thread gets one of those that are opened after the loops. Handlers and loads of the lab exchange messages, counts and
    // latencies. Loops wake each other by descriptors that are older than the tables.
    unsafe { OwnDescriptors::promise() }
}
