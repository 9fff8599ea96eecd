//! Topics of several hosts on [NATS](https://nats.io).
//!
//! - [`NatsBroker`] passes messages of plain topics between hosts, by NATS' core: fast, and at most once.
//! - [`NatsLog`] keeps the history of a hub's topics in JetStream, for all hosts.
//!
//! Each runs on a thread of its own, with a runtime of tokio. Nothing of it is on the path of a loop.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tautline::{Bridge, Server};
//! use tautline_hub::{Config, Hub};
//! use tautline_nats::{NatsBroker, NatsConfig, NatsLog};
//!
//! let nats = NatsConfig::new("nats://nats.example:4222");
//! let bridge = Bridge::start(NatsBroker::new(nats.clone()))?;
//! let log = NatsLog::start(nats)?;
//! let hub = Hub::with_log(Config::default(), Arc::new(log), Some(bridge.clone()));
//! Server::plain().listen("0.0.0.0:8080".parse()?).bridge(bridge).start(hub.handlers())?.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod broker;
mod config;
mod held;
mod log;
mod reads;
mod refusal;
mod streams;
mod subject;

pub use broker::NatsBroker;
pub use config::{NatsConfig, Retention};
pub use log::NatsLog;
pub use tautline_hub::backend::Refusal;
