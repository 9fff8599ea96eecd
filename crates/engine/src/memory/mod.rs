//! The account of memory: what each connection holds, what the loops share, and who is closed when it is short.
//!
//! The turn notes what changes. Connections that hold nothing but their own state cost nothing here.

pub(crate) mod account;
pub(crate) mod application;
pub(crate) mod batch_alloc;
pub(crate) mod budget;
pub(crate) mod charging;
pub(crate) mod holding;
pub(crate) mod shedding;
pub(crate) mod weighing;
pub(crate) mod weight;
