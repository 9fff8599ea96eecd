//! The result of a part of the kit.

/// A value, or the reason why there is none.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
