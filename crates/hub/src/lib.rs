//! Topics with history, latest values and presence over WebSockets, on one host or many.
//!
//! A [`Hub`] makes the handlers of a [`Server`](tautline::Server). Clients speak a small JSON protocol (`docs/hub.md`), for
//! example by a [`Client`]. The name of a topic decides its [`Kind`]:
//!
//! - plain topics pass messages to those who are subscribed now;
//! - topics with history give each message an offset. A client that returns with its last offset gets the messages that it missed,
//!   exactly once and in order, or is told that it is too late;
//! - conflating topics replay the latest message of each key.
//!
//! History is kept by a [`Log`]: a [`MemoryLog`] for one host, or another for many. Plain topics and presence reach other hosts
//! by the server's [`Bridge`](tautline::Bridge).
//!
//! ```
//! use tautline::{ClientConfig, Server, Target};
//! use tautline_hub::{Client, Event, Hub, Subscribe};
//!
//! let hub = Hub::default();
//! let server = Server::plain().listen("127.0.0.1:0".parse()?).start(hub.handlers())?;
//! let url = format!("ws://{}/", server.addresses()[0]);
//! let client = Client::connect(Target::new(&url)?, ClientConfig::default())?;
//! client.subscribe("log:orders", Subscribe::default())?;
//! client.publish("log:orders", None, "{\"price\":7}")?;
//! loop {
//!     if let Event::Message(message) = client.next()? {
//!         println!("{} {:?} {}", message.topic, message.offset, message.data);
//!         break;
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod account;
mod answer;
mod api;
mod arrays;
mod asked;
mod asking;
#[cfg(test)]
mod attacks;
pub mod backend;
mod census;
mod client;
mod config;
mod connected;
mod control;
mod credentials;
mod elsewhere;
mod entry;
mod error;
mod events;
mod feed;
mod figures;
mod frames;
mod handler;
mod hooks;
#[cfg(feature = "hooks")]
mod http_client;
#[cfg(not(feature = "hooks"))]
#[path = "http_client_missing.rs"]
mod http_client;
mod hub;
mod limits;
mod lock;
mod log;
mod mailbox;
mod members;
mod memory_log;
mod news;
#[cfg(test)]
mod openapi;
mod pages;
mod presence;
mod protocol;
mod publishing;
mod pusher;
mod query;
mod rate;
mod readings;
mod repeats;
mod rules;
mod session;
mod sessions;
mod shared;
mod streams;
mod taken;
mod track;
mod watchers;

pub use client::{Client, ClientOptions};
pub use config::{Config, Kind};
pub use error::ClientError;
pub use figures::NamespaceFigures;
pub use handler::HubHandler;
pub use hooks::HookCounts;
pub use hub::Hub;
pub use log::{Append, Done, Entry, Following, Log, LogError, Page, Position, Sink};
pub use memory_log::{MemoryLog, Retention};
pub use rules::{Rules, RulesError};
pub use session::{Event, Received, Session, Subscribe};

/// Runs the code in the document as a test.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/hub.md")]
    mod hub {}
}
