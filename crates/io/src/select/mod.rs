//! The driver over select(2), which every Unix has: for a few hundred connections.
//!
//! Each wait hands the kernel all descriptors and gets all of them back, so that its cost grows with the connections
//! and not with their traffic. Descriptors from [`FD_SETSIZE`] on are refused with an error that says so, as other
//! systems' sets end there. On a kernel that takes more, as Linux, [`Config::descriptors`] raises this limit.
//!
//! select(2) does not report errors on a socket that nobody wants to read from, as while receiving is paused. The
//! driver checks such sockets by poll(2) every 20 ms.

mod sys;

pub use crate::readiness::{Config, FD_SETSIZE};
pub use sys::Select;

use crate::readiness;

/// See the [module](self).
pub type Driver = readiness::Driver<Select>;
