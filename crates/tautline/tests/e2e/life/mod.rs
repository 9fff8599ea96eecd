//! Begin and end of connections and servers.

mod close;
mod deadlines;
mod drain;
mod offload;
mod start;

pub(crate) use close::accept;
