//! How connections and servers begin and end.

mod close;
mod deadlines;
mod drain;
mod offload;

pub(crate) use close::accept;
