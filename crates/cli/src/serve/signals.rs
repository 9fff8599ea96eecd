//! Signals: the first SIGINT or SIGTERM drains the server, and a second one ends it at once. SIGUSR1 prints counters,
//! SIGHUP reloads certificates, and SIGUSR2 has a new process take over.

use super::offload;
use super::successor::Successor;
use crate::failure::Failure;
use crate::stages;
use crate::supervisor::Supervisor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::time::Duration;
use tautline::{CloseCode, Restart, ServerFiles, ServerHandle};

/// Begins to hold signals. To be called before the loops start, so that no signal is lost.
///
/// Without files to reload, SIGHUP ends the program as ever.
pub(super) fn hold(reloads: bool) -> Result<Signals, Failure> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGUSR1, SIGUSR2]);
    let signals = signals.and_then(|signals| {
        let added = if reloads { signals.add_signal(SIGHUP) } else { Ok(()) };
        added.map(|()| signals)
    });
    signals.map_err(|error: io::Error| Failure::failed(format!("cannot wait for signals: {error}")))
}

/// A server that obeys signals.
pub(super) struct Obedient {
    pub(super) handle: ServerHandle,
    /// The files of certificates.
    pub(super) files: Option<ServerFiles>,
    pub(super) supervisor: Supervisor,
    /// Time that connections have to close.
    pub(super) deadline: Duration,
    /// How a stop is announced, if the server restarts.
    pub(super) restart: Option<Restart>,
    /// Signature time from which handshakes leave their loop.
    pub(super) min_signature: Option<Duration>,
    pub(super) successor: Successor,
    /// Whether the end prints nothing.
    pub(super) quiet: bool,
}

impl Obedient {
    /// Obeys signals on a thread of its own.
    pub(super) fn obey(self, mut signals: Signals) {
        std::thread::spawn(move || {
            let mut draining = false;
            for signal in signals.forever() {
                match signal {
                    SIGHUP => self.reload(),
                    SIGUSR1 => self.report(),
                    SIGUSR2 => self.successor.start(),
                    _ if draining => std::process::exit(1),
                    _ => {
                        draining = true;
                        self.drain();
                    }
                }
            }
        });
    }

    fn reload(&self) {
        self.supervisor.reloading();
        if let Some(files) = &self.files {
            // The reloader logs a failure.
            let _ = self.handle.reloader().reload_files(files);
        }
        self.supervisor.ready();
    }

    fn report(&self) {
        self.report_counters();
        stages::report(self.handle.shards());
    }

    fn report_counters(&self) {
        offload::report_counters(self.handle.shards(), &self.handle.reloader(), self.min_signature);
    }

    fn drain(&self) {
        self.supervisor.stopping(self.deadline);
        if !self.quiet {
            self.report_counters();
            // `eprintln` would panic where the disk of the log is full, and the signal would be lost.
            let _ = writeln!(io::stderr(), "closing connections; send the signal again to stop at once");
        }
        match &self.restart {
            Some(restart) => self.handle.drain_for_restart(restart, self.deadline),
            None => self.handle.drain(CloseCode::GOING_AWAY, "the server is stopping", self.deadline),
        }
    }
}
