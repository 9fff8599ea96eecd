use super::model::Model;
use tautline::{Records, ServerConfig, TlsEngine};

/// A server to measure.
pub struct Baseline {
    /// Relation of threads and connections.
    pub model: Model,
    /// Number of loops, of threads at the poller, or of threads in the pool.
    pub threads: usize,
    /// Answer with as many bytes as a message asks for, instead of with the message itself.
    pub is_source: bool,
    /// TLS library.
    pub tls: TlsEngine,
    /// TLS configuration with the certificate.
    pub config: ServerConfig,
    /// Threads that help to seal large messages, for [`Model::LoopPerCore`].
    pub records: Option<Records>,
    /// CPUs that threads are pinned to, in turn. Without any, the scheduler places them, as it always does for a pool.
    pub cpus: Vec<usize>,
}

impl Baseline {
    /// CPU of thread `number`, if threads are pinned.
    pub(super) fn cpu(&self, number: usize) -> Option<usize> {
        self.cpus.get(number % self.cpus.len().max(1)).copied()
    }
}
