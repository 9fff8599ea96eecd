//! Other threads: commands to a shard, and handles that send them.
//!
//! The turn takes commands from a queue that wakes the driver. Everything else here runs on the threads of callers.

pub(crate) mod command;
pub(crate) mod command_queue;
pub(crate) mod foreign;
pub(crate) mod handle;
pub(crate) mod remote;
pub(crate) mod sync;
