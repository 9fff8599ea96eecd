//! How connections and servers begin and end.

mod close;
mod deadlines;
mod drain;
mod offload;
mod start;

pub(crate) use close::accept;
