//! What the build scripts of engines in C share: where a registry keeps a library's sources, where it is built once for all
//! profiles, and how it is joined with a shim into one object of which only the shim's table is visible. Libraries that share
//! most of their symbols' names can so stand in one program.
#![forbid(unsafe_code)]

mod cache;
mod package;
mod shim;

pub use cache::folder;
pub use package::find;
pub use shim::{Shim, run};
