use core::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// What a client remembers of servers, so that it can resume sessions; clones are one memory.
///
/// What is in it belongs to the engine that put it there.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl Sessions {
    /// Lends an engine what it remembers here: `None` where there is nothing yet, or only what another kind of engine left.
    /// What it then holds is kept.
    pub fn with<T: Send + 'static, R>(&self, work: impl FnOnce(&mut Option<T>) -> R) -> R {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn clones_are_one_memory_of_one_engine() {
        let sessions = Sessions::default();
        let clone = sessions.clone();
        sessions.with(|known| *known = Some(5_u8));
        assert_eq!(clone.with(|known: &mut Option<u8>| *known), Some(5));
        assert_eq!(clone.with(|known: &mut Option<u16>| *known), None);
        assert_eq!(sessions.with(|known: &mut Option<u8>| *known), None, "another engine had nothing to keep");
    }
}
