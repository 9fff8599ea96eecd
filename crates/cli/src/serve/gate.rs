//! Threads that wait for the server to go on.
//!
//! A new process has taken its connections over when it goes on. From then on nothing may fail, so threads are made before.

use crate::failure::Failure;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Holds threads back until it is opened. Without that they end.
#[derive(Default)]
pub(super) struct Gate(Vec<Sender<()>>);

impl Gate {
    /// Makes a thread that does this once the gate is open.
    pub(super) fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let (open, opened) = channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            if opened.recv().is_ok() {
                work();
            }
        });
        thread.map_err(|error| Failure::failed(format!("cannot start the thread {name:?}: {error}")))?;
        self.0.push(open);
        Ok(())
    }

    pub(super) fn open(self) {
        // A thread has no end but this.
        self.0.into_iter().for_each(|open| _ = open.send(()));
    }
}
