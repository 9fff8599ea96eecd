//! What a peer must not be able to do: cause a panic, a leak, growth without bound, or harm to others.

mod chaos;
mod cut;
mod garbage;
mod limits;
