use crate::{Error, ServerConfig, ServerFiles};
use log::Level;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_engine::Offload;
use tautline_tls::{Engine, KeyCost};

/// Gives a running server another TLS configuration, from any thread; clones act on the same server.
///
/// A configuration is loaded and verified before it is used: a bad one changes nothing. Connections that stand go on with
/// what they began with, handshakes that begin afterwards use the new one, in all loops.
#[derive(Clone)]
pub struct Reloader {
    apply: Arc<Apply>,
    costs: Arc<Costs>,
    counts: Arc<Counts>,
    /// Held from before files are read until what they held is in use: what was read later must not give way to what was
    /// read before.
    turn: Arc<Mutex<()>>,
}

/// An engine's `reload`, whichever engine it is.
type Apply = dyn Fn(&ServerConfig) -> Result<(), tautline_tls::Error> + Send + Sync;

/// An engine's `key_costs`.
type Costs = dyn Fn() -> Vec<KeyCost> + Send + Sync;

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

/// How often a server's TLS configuration was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// It was.
    pub done: u64,
    /// It was not, and the one of before stayed.
    pub failed: u64,
}

impl Reloader {
    pub(crate) fn new<E: Engine>(engine: E, offload: Offload) -> Self {
        tell_costs(&engine, &offload);
        let measured = engine.clone();
        let apply = move |config: &ServerConfig| {
            engine.reload(config)?;
            tell_costs(&engine, &offload);
            Ok(())
        };
        let costs = Arc::new(move || measured.key_costs());
        Self { apply: Arc::new(apply), costs, counts: Arc::default(), turn: Arc::default() }
    }

    /// Has connections that begin from now on use `config`. Ticket keys stay where [`ServerConfig::tickets`] is what it was, so
    /// sessions from before are resumed.
    ///
    /// More is demanded than at the start, because there is something better to fall back on: certificates must be valid now,
    /// and where a chain has more than one, another of them must have issued the first.
    ///
    /// # Errors
    /// [`Error::Tls`] where the configuration cannot be used, or the server speaks no TLS. Everything stays as it was then. It
    /// is logged too.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _one_at_a_time = self.turn();
        self.told((self.apply)(config).map_err(Error::Tls))
    }

    /// Reads `files` again and [reloads](Self::reload) what they hold.
    ///
    /// # Errors
    /// As [`reload`](Self::reload); a file that cannot be read or used is named.
    pub fn reload_files(&self, files: &ServerFiles) -> Result<(), Error> {
        self.told(self.try_files(files))
    }

    /// How often it went well, and how often it did not.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        let Counts { done, failed } = &*self.counts;
        Reloads { done: done.load(Ordering::Relaxed), failed: failed.load(Ordering::Relaxed) }
    }

    /// What signing takes with the keys of now, as it was measured when they were loaded, for each kind of them: full handshakes
    /// with those that take [`Offload::min_signature`](crate::Offload::min_signature) leave the loop. Empty without TLS.
    #[must_use]
    pub fn key_costs(&self) -> Vec<KeyCost> {
        (self.costs)()
    }

    pub(crate) fn try_files(&self, files: &ServerFiles) -> Result<(), Error> {
        let _one_at_a_time = self.turn();
        Ok((self.apply)(&files.load()?)?)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs and counts what came of it.
    pub(crate) fn told(&self, result: Result<(), Error>) -> Result<(), Error> {
        match &result {
            Ok(()) => {
                self.counts.done.fetch_add(1, Ordering::Relaxed);
                log::info!("the TLS configuration was reloaded");
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                log::error!("the TLS configuration was not reloaded, that of before stays: {error}");
            }
        }
        result
    }
}

/// Logs what keys take to sign, and what is made of it.
fn tell_costs<E: Engine>(engine: &E, offload: &Offload) {
    for KeyCost { kind, certificates, time } in engine.key_costs() {
        let leaves = offload.threads != Some(0) && time >= offload.min_signature;
        let (level, place) = if leaves { (Level::Info, "leave") } else { (Level::Debug, "stay in") };
        log::log!(
            level,
            "{kind}: a signature takes {time:?}, so full handshakes {place} the loop ({certificates} keys)"
        );
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reloads().fmt(f)
    }
}
