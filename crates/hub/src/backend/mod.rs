//! Parts that logs and brokers on other programs have in common.

mod followed;
mod held;
mod refusal;

pub use crate::protocol::random_name;
pub use followed::Followed;
pub use held::{Held, Memory};
pub use refusal::Refusal;
