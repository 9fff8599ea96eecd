//! The AEADs of records by several providers, and the choice among them.
//!
//! `provider` has the providers' trait, which `aws_lc` and `ring` implement, and [`Context`] is a context of either one.
//! `measure` finds the fastest for each suite, direction and class of sizes, and `choice` keeps it for the process.

pub(crate) mod aws_lc;
pub(crate) mod choice;
pub(crate) mod class;
pub(crate) mod context;
pub(crate) mod measure;
pub(crate) mod provider;
#[cfg(feature = "ring")]
pub(crate) mod ring;

pub use choice::{AeadChoice, measured, names, provider as chosen, settle, summary};
pub use class::{Class, Direction};
pub use context::Context;
pub use measure::{Cell, Table};
pub use provider::Provider;
