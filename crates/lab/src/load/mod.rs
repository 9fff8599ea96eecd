//! The load generator: one thread that drives many connections of Tautline's client and checks every reply.

mod broadcast;
mod client;
pub mod crowd;
mod echo;
mod errors;
mod exchange;
mod feed;
mod fleet;
mod get;
mod handshakes;
mod idle;
mod lengths;
mod listeners;
mod make;
#[cfg(test)]
mod models;
mod open_loop;
mod progress;
mod resolve;
mod returning;
mod server;
mod sink;
mod storm;
mod template;
#[cfg(test)]
mod tests;
mod traffic;
mod used;

pub use broadcast::Broadcast;
pub use echo::Echo;
pub use errors::Errors;
pub(crate) use feed::Feed;
pub(crate) use fleet::{Audience, Dialect, FLEET_TEXT, Fleet, FleetPlan};
pub(crate) use get::Get;
pub use handshakes::{HandshakeCounts, Handshakes};
pub use idle::{Idle, IdleMemory};
pub(crate) use lengths::Lengths;
pub use listeners::{Listeners, Received};
pub use open_loop::RateStage;
pub use progress::{Interval, Progress, Watch};
pub(crate) use returning::{Returned, Returning};
pub use server::{Server, explain};
pub(crate) use sink::Sink;
pub(crate) use storm::{Storm, typical_p99};
pub use template::Template;
pub use traffic::Traffic;
pub(crate) use used::Used;
