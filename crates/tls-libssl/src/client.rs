use crate::sessions::Sessions;
use crate::sys::Context;
use std::sync::Arc;

/// The state that all connections of a client share.
pub(crate) struct ClientContext {
    pub(crate) context: Arc<Context>,
    /// `None` if the client resumes nothing.
    pub(crate) sessions: Option<Arc<Sessions>>,
}
