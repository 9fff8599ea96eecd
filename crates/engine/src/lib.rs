//! The turn loop: everything between the driver's bytes and the application's messages.
//!
//! A [`Shard`] is one thread's loop. It owns its driver, TLS sessions, buffers, timers and topics, and shares nothing on
//! the message path. The application is a [`Handler`]. Each call lends it a [`Conn`]. The output of one turn leaves a
//! connection in one send, unless it is large.
//!
//! ```text
//! inbound   driver ──bytes──► tls.open ──plaintext──► ws.decode ──message──► Handler::on_message
//! outbound  driver ◄──bytes── tls.seal ◄──frames───── ws.encode ◄──payload── Conn::send
//! ```
//! Only this crate calls the layers; they never call each other. Most users want the crate `tautline`, which adds
//! threads, certificates and the choice of engine and driver.
//!
//! An echo server and its client, turned on one thread:
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tautline_engine::{Config, Conn, Handler, Opening, Outgoing, Shard, Target};
//! use tautline_io::{ListenOptions, epoll};
//! use tautline_tls::plain;
//! use tautline_ws::Message;
//!
//! struct Echo;
//!
//! impl Handler for Echo {
//!     type State = ();
//!     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
//!         conn.send(Outgoing::from(&message));
//!     }
//! }
//!
//! struct Caller(Option<String>);
//!
//! impl Handler for Caller {
//!     type State = ();
//!     fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
//!         conn.text("hello");
//!     }
//!     fn on_message(&mut self, _: &mut Conn<'_, ()>, message: Message<'_>) {
//!         self.0 = message.text().map(str::to_owned);
//!     }
//! }
//!
//! let config = Arc::new(Config::default());
//! let mut server = Shard::new(0, config.clone(), plain::Engine, epoll::Driver::new()?, Echo)?;
//! let address = server.listen(&"127.0.0.1:0".parse()?, &ListenOptions::default())?;
//! let mut client = Shard::new(0, config, plain::Engine, epoll::Driver::new()?, Caller(None))?;
//! client.connect(Arc::new(Target::new(&format!("ws://{address}/"))?));
//! while client.handler().0.is_none() {
//!     server.turn(Some(Duration::from_millis(1)))?;
//!     client.turn(Some(Duration::from_millis(1)))?;
//! }
//! assert_eq!(client.handler().0.as_deref(), Some("hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod admission;
mod admitting;
mod answer;
mod answering;
mod batch_alloc;
mod broker;
mod broker_link;
mod budget;
mod clock;
mod closed;
mod command;
mod command_queue;
mod config;
mod conn;
pub mod connection;
mod content;
mod context;
mod core;
mod counters;
mod dial;
mod dial_times;
mod dialing;
mod dials;
mod ending;
#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;
pub mod feed;
mod foreign;
mod handle;
mod handler;
mod handover;
mod ids;
mod info;
mod input;
mod interest;
mod kernel;
mod limits;
mod link;
mod memory;
mod memory_broker;
mod memory_budget;
mod message;
mod moving;
mod offload;
mod opening;
mod openings;
mod outbound;
mod outcomes;
mod pace;
mod panics;
mod peer_log;
mod phase;
pub mod probe;
mod proxy;
mod publications;
mod publishing;
mod queue;
mod reaching;
mod reading;
mod receipt;
mod recipients;
mod remote;
mod reply;
mod request;
mod resolver;
mod restart;
mod restored;
mod saved;
mod schedule;
mod sealer;
mod shard;
mod shared;
mod simulated;
mod slow_turn;
mod stall;
mod streaming;
mod subscribing;
mod sync;
mod ticket;
mod timer;
mod timers;
mod timing;
mod topic;
mod totals;
mod turn;
mod upgrade;
mod waiting;
mod wanted;
mod weighing;
mod weight;
mod wire;

pub use admission::SharedLimits;
pub use broker::{Bridge, Broker, BrokerError, Listening};
pub use broker_link::{BrokerCounters, BrokerLink, Inbox, Order};
pub use closed::{Cause, Closed, ConnectError, Deadline};
pub use config::{Config, Deadlines, Limits, Offload, OnPanic, Records, SlowConsumer};
pub use conn::Conn;
pub use content::Content;
pub use context::ShardContext;
pub use counters::Counters;
pub use dial::{Reconnect, Target};
pub use dial_times::DialTimes;
pub use handle::ConnHandle;
pub use handler::{Chunk, Handler, Opening};
pub use ids::{ConnId, DialId};
pub use interest::Interest;
pub use memory_broker::MemoryBroker;
pub use memory_budget::MemoryBudget;
pub use message::{Delivery, Outgoing, Reach, Withheld};
pub use moving::Staying;
pub use offload::{HandshakePool, RecordPool};
pub use outcomes::{Durations, Outcomes};
pub use proxy::{Proxy, ProxyKind, Tunnel};
pub use receipt::Receipt;
pub use recipients::{ConnList, Recipients};
pub use remote::{ShardHandle, ShardHandleError};
pub use reply::{Later, Reply, Upgrade};
pub use request::Request;
pub use resolver::{Lookup, Resolver};
pub use restart::Restart;
pub use saved::SAVED_FORMAT;
pub use shard::Shard;
pub use simulated::Holdings;
pub use ticket::Ticket;
pub use totals::Totals;
pub use weight::Weight;
