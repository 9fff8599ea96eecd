//! Shared code of the build scripts of engines that wrap a C library.
//!
//! [`find_package`] finds the library's sources among the packages of the lock file. [`build_once`] builds them once
//! for all profiles with one [`opt_level`]. A [`Shim`] and the library become one object in which only the shim's table
//! is visible. Libraries that define the same symbols can therefore be linked into one program.
#![forbid(unsafe_code)]

mod cache;
mod package;
mod profile;
mod shim;

pub use cache::build_once;
pub use package::find_package;
pub use profile::{jobs, opt_level};
pub use shim::{Shim, run};
