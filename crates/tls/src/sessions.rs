use core::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// A client's store of resumable sessions; clones share it.
///
/// It holds one value, of a type that the engine chooses: some sessions of each host, and at most those of
/// [`hosts`](Self::hosts) hosts.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ClientConfig, Sessions}; }
/// use tautline::{ClientConfig, Sessions};
///
/// let sessions = Sessions::default();
/// let mut config = ClientConfig::default();
/// config.sessions = sessions.clone();
/// // A copy of the configuration resumes the sessions of the first.
/// let other = config.clone();
/// # let _ = other;
/// ```
#[derive(Clone)]
pub struct Sessions {
    kept: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
    hosts: usize,
}

/// Most hosts of a store by default.
const HOSTS: usize = 128;

impl Default for Sessions {
    fn default() -> Self {
        Self::for_hosts(HOSTS)
    }
}

impl Sessions {
    /// A store for the sessions of this number of hosts; by default 128. A new one takes the place of the oldest.
    #[must_use]
    pub fn for_hosts(hosts: usize) -> Self {
        Self { kept: Arc::default(), hosts: hosts.max(1) }
    }

    /// Most hosts whose sessions are kept.
    #[must_use]
    pub const fn hosts(&self) -> usize {
        self.hosts
    }

    /// Lends the stored value to `work`, as `None` if there is none of type `T`, and stores what `work` leaves there.
    ///
    /// A value of another type, which another kind of engine left, is dropped.
    pub fn with<T: Send + 'static, R>(&self, work: impl FnOnce(&mut Option<T>) -> R) -> R {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = kept.take().and_then(|kept| kept.downcast().ok()).map(|known| *known);
        let result = work(&mut known);
        *kept = known.map(|known| Box::new(known) as Box<dyn Any + Send>);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::Sessions;

    #[test]
    fn clones_share_one_value_of_one_type() {
        let sessions = Sessions::default();
        let clone = sessions.clone();
        sessions.with(|known| *known = Some(5_u8));
        assert_eq!(clone.with(|known: &mut Option<u8>| *known), Some(5));
        assert_eq!(clone.with(|known: &mut Option<u16>| *known), None);
        assert_eq!(sessions.with(|known: &mut Option<u8>| *known), None, "the call for another type dropped it");
    }
}
