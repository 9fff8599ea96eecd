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
//! # mod tautline {
//! #     pub use tautline_engine::{Config, Conn, Handler, Opening, Outgoing, Shard, Target};
//! #     pub use tautline_io::ListenOptions;
//! #     pub use tautline_ws::Message;
//! #     pub mod layers { pub use {tautline_io as io, tautline_tls as tls}; }
//! # }
//! use std::{sync::Arc, time::Duration};
//! use tautline::layers::io::epoll;
//! use tautline::layers::tls::plain;
//! use tautline::{Config, Conn, Handler, ListenOptions, Message, Opening, Outgoing, Shard, Target};
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

mod accept;
mod close;
mod config;
mod conn;
pub mod connection;
mod context;
mod counts;
mod dial;
#[cfg(test)]
#[path = "../tests/fake/mod.rs"]
mod fake;
mod handler;
mod http;
mod ids;
mod link;
mod memory;
mod moving;
mod offload;
mod peer_log;
pub mod probe;
mod raw;
mod shard;
mod threads;
mod topics;
mod turn;

pub use accept::admission::SharedLimits;
pub use close::restart::Restart;
pub use config::{Config, Limits, Offload, OnPanic, Records};
pub use conn::Conn;
pub use context::ShardContext;
pub use counts::counters::Counters;
pub use counts::outcomes::{Durations, Outcomes};
pub use counts::totals::Totals;
pub use dial::address_memory::AddressMemory;
pub use dial::resolver::{Lookup, Resolver};
pub use dial::target::{Reconnect, Target};
pub use dial::times::DialTimes;
pub use handler::{Chunk, Handler, Opening};
pub use http::access::{Access, AccessLog, Traffic};
pub use http::content::Content;
pub use http::push::Push;
pub use http::reply::{Later, Reply, Upgrade};
pub use http::request::Request;
pub use http::ticket::Ticket;
pub use ids::{ConnId, DialId, Movers, ParseConnIdError};
pub use memory::application::ApplicationMemory;
pub use memory::budget::MemoryBudget;
pub use memory::weight::{Listing, Weight};
pub use moving::saved::{SAVED_FORMAT, sockets_of};
pub use moving::staying::Staying;
pub use offload::{HandshakePool, RecordPool};
pub use raw::event::RawEvent;
pub use raw::lent::{Others, Raw};
pub use raw::terms::Terms;
pub use shard::Shard;
pub use tautline_conn::closed::{Cause, Closed, ConnectError, Deadline};
pub use tautline_conn::config::{Deadlines, SlowConsumer};
pub use tautline_conn::forwarded::ForwardedHeader;
pub use tautline_conn::front::{Front, Via};
pub use tautline_conn::gate::{Gate, Place};
pub use tautline_conn::message::{Delivery, Outgoing};
pub use tautline_conn::notes::{Note, Notes};
pub use tautline_conn::pieces::PieceWriter;
pub use tautline_conn::prefixes::{Prefix, Prefixes};
pub use tautline_conn::proxy::{Proxy, ProxyKind, Tunnel};
pub use tautline_conn::proxy_header::{self, ProxyHeader, ProxyHeaderError, ProxyTls};
pub use tautline_conn::sized;
pub use threads::handle::ConnHandle;
pub use threads::remote::{ShardHandle, ShardHandleError};
pub use topics::broker::{Bridge, Broker, BrokerError, Listening};
pub use topics::broker_link::{BrokerCounters, BrokerLink, Inbox, Order};
pub use topics::counted::{CountedTopic, TopicCounts};
pub use topics::interest::Interest;
pub use topics::memory_broker::MemoryBroker;
pub use topics::reach::{Reach, Withheld};
pub use topics::receipt::Receipt;
pub use topics::recipients::{ConnList, Recipients};
pub use topics::roster::Roster;
pub use turn::simulated::Holdings;
