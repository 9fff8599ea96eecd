//! The proxy between real sockets.
#![expect(clippy::panic, clippy::unwrap_used, reason = "all of this runs inside tests")]

mod corpus;
mod deadlines;
mod edge;
mod flood;
mod folder;
#[path = "../kit/hosts.rs"]
mod hosts;
#[path = "../kit/mod.rs"]
mod kit;
mod messages;
mod mixing;
mod moving;
mod proxy_protocol;
mod rates;
mod resolving;
mod secured;
mod smuggling;
mod tallies;
mod waiting;
