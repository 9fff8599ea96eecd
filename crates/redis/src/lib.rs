//! Topics of several hosts on [Redis](https://redis.io) 6.2 or newer, or a server that speaks its protocol.
//!
//! - [`RedisBroker`] passes messages of plain topics between hosts, by publish and subscribe: fast, and at most once.
//! - [`RedisLog`] keeps the history of a hub's topics in streams, for all hosts.
//!
//! Each runs on a thread of its own, with a runtime of tokio. Nothing of it is on the path of a loop.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tautline::{Bridge, Server};
//! use tautline_hub::{Config, Hub};
//! use tautline_redis::{RedisBroker, RedisConfig, RedisLog};
//!
//! let redis = RedisConfig::new("redis://redis.example:6379");
//! let bridge = Bridge::start(RedisBroker::new(redis.clone()))?;
//! let log = RedisLog::start(redis)?;
//! let hub = Hub::with_log(Config::default(), Arc::new(log), Some(bridge.clone()));
//! Server::plain().listen("0.0.0.0:8080".parse()?).bridge(bridge).start(hub.handlers())?.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod broker;
mod config;
mod connect;
mod keys;
mod log;
mod refusal;
mod script;
mod service;

pub use broker::RedisBroker;
pub use config::{RedisConfig, Retention};
pub use log::RedisLog;
