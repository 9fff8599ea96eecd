//! Signals: the first SIGINT or SIGTERM drains the server, and a second one ends it at once. SIGQUIT drains it however often it
//! comes. SIGUSR1 prints counters, SIGHUP reloads certificates and opens the access log again, and SIGUSR2 has a new process take
//! over.

use super::access::AccessFile;
#[cfg(feature = "proxy")]
use super::front::Front;
use super::offload;
use super::rules::HubRules;
use super::stop::Stop;
use super::successor::Successor;
use crate::failure::Failure;
use crate::output;
use crate::stages;
use crate::supervisor::Supervisor;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::time::Duration;
use tautline::ServerFiles;

/// Begins to hold signals. To be called before the loops start, so that no signal is lost.
///
/// SIGHUP is held without certificates too: service managers send it to any server, and its default action is the end.
pub(super) fn hold() -> Result<Signals, Failure> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2]);
    signals.map_err(|error: io::Error| Failure::failed(format!("cannot wait for signals: {error}")))
}

/// Whether a stop was asked for. Other signals of that time are forgotten: the files were read just now.
pub(super) fn has_stop(signals: &mut Signals) -> bool {
    signals.pending().any(|signal| matches!(signal, SIGINT | SIGTERM | SIGQUIT))
}

/// A server that obeys signals.
pub(super) struct Obedient {
    pub(super) stop: Stop,
    /// The files of certificates.
    pub(super) files: Option<ServerFiles>,
    pub(super) access: Option<AccessFile>,
    #[cfg(feature = "proxy")]
    pub(super) front: Option<Front>,
    /// The rules of the hub.
    pub(super) rules: HubRules,
    pub(super) supervisor: Supervisor,
    /// Signature time from which handshakes leave their loop.
    pub(super) min_signature: Option<Duration>,
    pub(super) successor: Successor,
    /// Whether the end prints nothing.
    pub(super) quiet: bool,
}

impl Obedient {
    /// Obeys signals until `signals` are closed, and then passes a last stop on to the process that has taken over.
    pub(super) fn obey(self, mut signals: Signals) {
        let (mut draining, mut asked) = (false, false);
        for signal in signals.forever() {
            match signal {
                SIGHUP => self.reload(),
                SIGUSR1 => self.report(),
                SIGUSR2 => self.successor.start(),
                // A keeper or an old process passes a stop on by SIGQUIT. The service manager may send its own as well.
                _ => {
                    if asked && signal != SIGQUIT {
                        self.successor.kill();
                        output::finish();
                        std::process::exit(1);
                    }
                    asked |= signal != SIGQUIT;
                    if !draining {
                        draining = true;
                        self.drain();
                    }
                }
            }
        }
        if has_stop(&mut signals) {
            self.successor.stop();
        }
    }

    fn reload(&self) {
        self.supervisor.reloading();
        if let Some(access) = &self.access {
            access.reopen();
        }
        #[cfg(feature = "proxy")]
        self.front.iter().for_each(Front::reload);
        self.rules.reload();
        match &self.files {
            // The reloader logs a failure.
            Some(files) => _ = self.stop.handle.reloader().reload_files(files),
            None if self.access.is_some() || self.has_front() || self.rules.is_on() => {}
            None => log::warn!("SIGHUP: there is nothing to reload, since this server has no certificates (--plain)"),
        }
        self.supervisor.ready();
    }

    /// Whether a configuration of routes is read again.
    const fn has_front(&self) -> bool {
        #[cfg(feature = "proxy")]
        return self.front.is_some();
        #[cfg(not(feature = "proxy"))]
        return false;
    }

    fn report(&self) {
        self.report_counters();
        stages::report(self.stop.handle.shards());
    }

    fn report_counters(&self) {
        offload::report_counters(self.stop.handle.shards(), &self.stop.handle.reloader(), self.min_signature);
    }

    fn drain(&self) {
        self.supervisor.stopping(self.stop.longest());
        let (stop, successor) = (self.stop.clone(), self.successor.clone());
        let drain = move || {
            if successor.stop() {
                stop.drain();
            }
        };
        let delay = self.stop.delay;
        let is_delayed = !delay.is_zero() && self.successor.forbid();
        if !self.quiet {
            self.report_counters();
            if is_delayed {
                output::note(format_args!("not ready any more; closing connections in {delay:?}"));
            } else {
                output::note("closing connections; send the signal again to stop at once");
            }
        }
        if is_delayed {
            self.stop.after_delay(drain);
        } else {
            drain();
        }
    }
}
