//! The functions of the interface. Each header comment says who may call it.
//!
//! All pointers come from the caller. A function reads and writes only the memory that its arguments name, and keeps no
//! pointer to it when it returns. The one exception is the user pointer of a verification callback.

mod border;
mod config;
mod general;
mod memory;
mod tls;
mod types;
mod verify;

pub use crate::codes::*;
pub use config::*;
pub use general::*;
pub use tls::*;
pub use types::*;
