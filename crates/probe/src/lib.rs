//! Facts about an endpoint, and verdicts on them: the look that `taut probe` takes.
//!
//! [`gather`] looks at an endpoint as a [`Look`] says, over blocking sockets. [`judge`] turns the [`Facts`] into
//! [`Verdict`]s, and [`report`] prints both. Verdicts are functions of facts alone, so each of them has a test without a
//! network. [`amount`] and [`layout`] read arguments and set text for every command of the program.
#![forbid(unsafe_code)]

pub mod amount;
pub mod certificates;
mod client;
mod dialer;
mod error;
mod facts;
mod gather;
#[cfg(feature = "http2")]
mod http2;
pub mod layout;
mod legacy;
mod request;
mod scan;
mod slo;
mod staple;
mod stream;
mod text;
mod verdict;
mod websocket;

pub use client::group_name;
pub use error::Unusable;
pub use facts::{Certificate, Dns, Facts, Http, Sent};
pub use gather::{Look, gather};
pub use request::Request;
pub use slo::{Slo, duration};
pub use text::report;
pub use verdict::{Level, Verdict, is_usable, judge};
