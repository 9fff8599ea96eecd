//! How connections and servers begin and end.

mod close;
mod deadlines;
mod drain;

pub(crate) use close::accept;
