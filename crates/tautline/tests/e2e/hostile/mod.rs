//! Hostile peers: they must not cause a panic, a leak, unbounded growth, or harm to other connections.

mod budget;
mod chaos;
mod crowds;
mod cut;
mod garbage;
mod limits;
mod panics;
mod reported;
