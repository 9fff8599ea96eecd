//! How connections and servers begin and end.

mod close;
mod deadlines;
mod drain;
