use crate::{Error, ServerConfig};
use log::Level;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_engine::Offload;
use tautline_tls::{Engine, KeyCost, pem};
use zeroize::Zeroizing;

/// Replaces the TLS configuration of a running server, from any thread. Clones act on the same server.
///
/// A configuration is verified before it is used, and an invalid one changes nothing. Existing connections keep the
/// configuration that they began with. Handshakes that begin later use the new one, in all loops.
///
/// ```
/// use tautline::{Certificate, Error, Reloader, ServerConfig};
///
/// /// Replaces a server's certificate, from any thread.
/// fn renew(reloader: &Reloader, certificate: Certificate) -> Result<(), Error> {
///     reloader.reload(&ServerConfig::new([certificate]))
/// }
/// ```
#[derive(Clone)]
pub struct Reloader {
    engine: Arc<dyn Live>,
    counts: Arc<Counts>,
    /// The chains of the certificates in use.
    chains: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Held from before files are read until the configuration is in use. So an older configuration never replaces a newer one.
    turn: Arc<Mutex<()>>,
}

/// An engine in use, without its type.
trait Live: Send + Sync {
    fn reload(&self, config: &ServerConfig) -> Result<(), tautline_tls::Error>;
    fn key_costs(&self) -> Vec<KeyCost>;
    fn save_tickets(&self, out: &mut Vec<u8>);
    fn restore_tickets(&self, saved: &[u8]) -> Result<(), tautline_tls::Error>;
}

impl<E: Engine> Live for (E, Offload) {
    fn reload(&self, config: &ServerConfig) -> Result<(), tautline_tls::Error> {
        self.0.reload(config)?;
        report_costs(&self.0, &self.1);
        Ok(())
    }

    fn key_costs(&self) -> Vec<KeyCost> {
        self.0.key_costs()
    }

    fn save_tickets(&self, out: &mut Vec<u8>) {
        self.0.save_tickets(out);
    }

    fn restore_tickets(&self, saved: &[u8]) -> Result<(), tautline_tls::Error> {
        self.0.restore_tickets(saved)
    }
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
}

/// The number of reloads of a server's TLS configuration.
///
/// ```
/// use tautline::ServerHandle;
///
/// fn report(server: &ServerHandle) -> String {
///     let reloads = server.reloader().reloads();
///     format!("{} reloads, {} refused", reloads.done, reloads.failed)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloads {
    /// Reloads that replaced the configuration.
    pub done: u64,
    /// Reloads that failed, so that the configuration stayed.
    pub failed: u64,
}

impl Reloader {
    pub(crate) fn new<E: Engine>(engine: E, offload: Offload) -> Self {
        report_costs(&engine, &offload);
        let engine = Arc::new((engine, offload));
        Self { engine, counts: Arc::default(), chains: Arc::default(), turn: Arc::default() }
    }

    /// A reloader of a server that begins with this configuration.
    pub(crate) fn with_config(self, config: &ServerConfig) -> Self {
        self.note_chains(config);
        self
    }

    /// Makes new connections use `config`.
    ///
    /// If [`ServerConfig::tickets`] is unchanged, the ticket keys stay, and earlier sessions are resumed.
    ///
    /// The checks are stricter than at the start, since the present configuration can stay in use. Certificates must be valid
    /// now. If a chain has several certificates, another one must have issued the first.
    ///
    /// # Errors
    /// [`Error::Tls`] if the configuration cannot be used, or if the server has no TLS. The configuration then stays. The error
    /// is also logged.
    pub fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        let _one_at_a_time = self.turn();
        self.report(self.apply(config))
    }

    /// The number of reloads so far.
    #[must_use]
    pub fn reloads(&self) -> Reloads {
        let Counts { done, failed } = &*self.counts;
        Reloads { done: done.load(Ordering::Relaxed), failed: failed.load(Ordering::Relaxed) }
    }

    /// The signature time of each kind of key in use, measured when the keys were loaded. Empty without TLS.
    ///
    /// Full handshakes leave the loop if a signature takes at least [`Offload::min_signature`](crate::Offload::min_signature).
    #[must_use]
    pub fn key_costs(&self) -> Vec<KeyCost> {
        self.engine.key_costs()
    }

    /// The chains of the certificates in use, in PEM. Empty without TLS.
    #[must_use]
    pub fn certificate_chains(&self) -> Vec<Vec<u8>> {
        self.chains.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server's own ticket keys as bytes, which are wiped on drop.
    pub(crate) fn save_tickets(&self) -> Zeroizing<Vec<u8>> {
        // With room for three keys, so that no copy stays behind when it grows.
        let mut saved = Zeroizing::new(Vec::with_capacity(1024));
        self.engine.save_tickets(&mut saved);
        saved
    }

    /// Goes on with the ticket keys of another process. Without them, its clients need full handshakes.
    pub(crate) fn restore_tickets(&self, saved: &[u8]) {
        if saved.is_empty() {
            return;
        }
        if let Err(error) = self.engine.restore_tickets(saved) {
            log::warn!("clients of the old process cannot resume their sessions: {error}");
        }
    }

    /// Loads a configuration and applies it, without a log line or a count.
    pub(crate) fn try_reload(&self, load: impl FnOnce() -> Result<ServerConfig, Error>) -> Result<(), Error> {
        let _one_at_a_time = self.turn();
        self.apply(&load()?)
    }

    fn apply(&self, config: &ServerConfig) -> Result<(), Error> {
        self.engine.reload(config)?;
        self.note_chains(config);
        Ok(())
    }

    fn note_chains(&self, config: &ServerConfig) {
        let chains = config.certificates.iter().map(|certificate| plain_pem(&certificate.chain)).collect();
        *self.chains.lock().unwrap_or_else(PoisonError::into_inner) = chains;
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the reloads, done and failed, of the process before this one.
    pub(crate) fn count_before(&self, [done, failed]: [u64; 2]) {
        self.counts.done.fetch_add(done, Ordering::Relaxed);
        self.counts.failed.fetch_add(failed, Ordering::Relaxed);
    }

    /// Logs and counts the result of a reload.
    pub(crate) fn report(&self, result: Result<(), Error>) -> Result<(), Error> {
        self.count(result).inspect_err(|error| {
            log::error!("the TLS configuration was not reloaded and stays as it was: {error:#}");
        })
    }

    /// Counts the result of a reload, and logs it if it is done.
    pub(crate) fn count(&self, result: Result<(), Error>) -> Result<(), Error> {
        let counter = if result.is_ok() { &self.counts.done } else { &self.counts.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if result.is_ok() {
            log::info!("the TLS configuration was reloaded");
        }
        result
    }
}

/// Logs the signature time of each kind of key, and where its handshakes run.
fn report_costs<E: Engine>(engine: &E, offload: &Offload) {
    for KeyCost { kind, certificates, time, .. } in engine.key_costs() {
        let leaves = offload.threads != Some(0) && time >= offload.min_signature;
        let (level, place) = if leaves { (Level::Info, "leave") } else { (Level::Debug, "stay in") };
        log::log!(
            level,
            "{kind}: a signature takes {time:?}, so full handshakes {place} the loop ({certificates} keys)"
        );
    }
}

/// A chain in PEM without what not every reader understands, such as a byte-order mark.
fn plain_pem(chain: &[u8]) -> Vec<u8> {
    match pem::certificates(chain, "") {
        Ok(sections) => sections.iter().flat_map(|section| section.to_pem().to_vec()).collect(),
        Err(_) => chain.to_vec(),
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reloads().fmt(f)
    }
}
