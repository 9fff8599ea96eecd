use crate::plan::Time;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time since 1970, as this machine's clock says.
pub(crate) fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
