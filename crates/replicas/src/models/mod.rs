//! Servers with other threading models, kept only to be measured.
//!
//! They use the same sessions, decoders and encoders as our server. They differ in the thread that runs them:
//!
//! | model | threads | serves a connection |
//! |---|---|---|
//! | [`LoopPerCore`](Model::LoopPerCore) | loops of this project, each with its own port | always the same loop |
//! | [`SharedLoop`](Model::SharedLoop) | all wait at one epoll(7) | any idle thread, behind a lock per connection |
//! | [`AlwaysOffload`](Model::AlwaysOffload) | one loop for the sockets, a pool for TLS | the loop, which hands every TLS operation to the pool and waits for its callback |
//!
//! The last two models are those of two published reports: a proactor run by many threads, and a loop whose TLS library
//! stands behind pairs of rings in a thread pool.

mod always_offload;
mod baseline;
mod end;
mod loop_per_core;
mod model;
mod serve;
mod shared_loop;
mod source;

pub use baseline::Baseline;
pub use model::Model;
