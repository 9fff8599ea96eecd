//! The driver over select(2): what every Unix has, for a few hundred connections.
//!
//! Each wait hands the kernel all descriptors and gets all of them back, so that its cost grows with the connections and
//! not with what they do. Descriptors from [`FD_SETSIZE`] on are refused with an error that says so, as other systems'
//! sets end there; [`Config::descriptors`] takes more where the kernel does, as Linux.
//!
//! select(2) does not tell of errors on a socket that nobody wants to read from, as while it is paused. Those are looked at
//! by poll(2) every 20 ms.

mod sys;

pub use crate::readiness::Config;
pub use sys::Select;

use crate::readiness;

/// Descriptors that fit a set of the usual size: 0 to 1023.
pub const FD_SETSIZE: usize = 1024;

/// See the [module](self).
pub type Driver = readiness::Driver<Select>;
