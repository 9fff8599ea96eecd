//! Secure WebSockets at the speed of the wire: server and client.
//!
//! A [`Server`] runs one or more loops. Each loop owns its connections, TLS sessions and buffers, and shares nothing with the
//! other loops on the message path. An application is a [`Handler`], made once per loop. A [`Client`] runs the same loop for
//! outgoing connections. [`connect`] returns a [`Socket`], which is one blocking connection.
//!
//! # A server
//! ```no_run
//! use tautline::{Certificate, Conn, Handler, Message, Outgoing, Server, Tls};
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
//! let certificate = Certificate::new(std::fs::read("cert.pem")?, std::fs::read("key.pem")?);
//! let server = Server::new(Tls::with_certificate(certificate)).listen("0.0.0.0:8443".parse()?).start(|_shard| Echo)?;
//! println!("listening on {}", server.addresses()[0]);
//! server.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `acme`, the server orders and renews its certificate itself (`Tls::with_acme`).
//!
//! # A client
//! ```no_run
//! let mut socket = tautline::connect("wss://localhost:8443/")?;
//! socket.text("hello")?;
//! println!("{:?}", socket.receive()?);
//! # Ok::<(), tautline::Error>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(feature = "acme")]
pub mod acme;
#[cfg(feature = "metrics")]
mod admin;
mod choice;
mod client;
mod driver;
mod erased;
mod error;
mod files;
mod jobs;
mod listeners;
mod prepared;
mod reload;
mod server;
mod server_handle;
mod socket;
mod stamp;
#[cfg(feature = "files")]
mod static_files;
pub mod testing;
mod thread;
mod tls;
#[cfg(feature = "tracing")]
mod traced;
mod upgrade;

/// The types of HTTP heads: of a [`Request`], an [`Opening`] and a [`Reply`].
///
/// ```
/// use tautline::http::StatusCode;
/// use tautline::{Reply, Request};
///
/// fn route(request: &Request<'_>) -> Reply {
///     if request.is_upgrade { Reply::upgrade() } else { Reply::status(StatusCode::NOT_FOUND) }
/// }
/// ```
pub use http;

#[cfg(feature = "metrics")]
pub use admin::{Admin, AdminToken, InvalidAdminToken, LogLevel, check_admin_address};
pub use choice::{EngineChoice, Then, TlsEngine};
pub use client::Client;
pub use driver::{driver_named, settle as settle_driver};
#[doc(hidden)]
pub use erased::{Loop, StatelessLoop};
pub use error::Error;
pub use files::{CertificateFiles, ServerFiles, TicketFile, Watch};
#[doc(hidden)]
pub use listeners::Listeners;
pub use prepared::PreparedServer;
pub use reload::{Reloader, Reloads};
pub use server::Server;
pub use server_handle::ServerHandle;
pub use socket::{Incoming, Socket, connect};
#[cfg(feature = "files")]
pub use static_files::StaticFiles;
pub use tautline_engine::Staying;
pub use tautline_engine::probe::{MessageTimes, SendStage, SendTimes, Spread, Stage, Stages};
pub use tautline_engine::{
    Access, AccessLog, ApplicationMemory, Cause, Chunk, Closed, Config, Conn, ConnHandle, ConnId, ConnList,
    ConnectError, Content, Counters, Deadline, Deadlines, Delivery, DialId, DialTimes, Durations, ForwardedHeader,
    Front, Gate, Handler, Later, Limits, Listing, Lookup, MemoryBudget, Note, Notes, Offload, OnPanic, Opening,
    Outcomes, Outgoing, ParseConnIdError, PieceWriter, Place, Prefix, Prefixes, Proxy, ProxyHeader, ProxyKind,
    ProxyTls, Push, Receipt, Recipients, Reconnect, Records, Reply, Request, Resolver, Restart, Shard, ShardContext,
    ShardHandle, ShardHandleError, SlowConsumer, Target, Ticket, TopicCounts, Totals, Traffic, Upgrade, Via, Weight,
};
pub use tautline_engine::{
    Bridge, Broker, BrokerCounters, BrokerError, BrokerLink, Inbox, Interest, Listening, MemoryBroker, Order, Reach,
    Withheld,
};
#[cfg(feature = "http2")]
pub use tautline_http2 as http2;
pub use tautline_io::{
    Address, DriverConfig, Keepalive, KernelTls, ListenOptions, Source, Spin, TcpOptions, Waker, activation,
};
pub use tautline_tls::plain::Engine as Plain;
pub use tautline_tls::{
    Capabilities, Certificate, Challenges, CipherSuite, ClientAuth, ClientConfig, ClientRule, EngineKind, KeyCost,
    KeyExchange, NamedGroup, ProtocolVersion, Roots, ServerConfig, Sessions, TicketKeySource, TicketSecret, Tickets,
    TlsInfo, Versions,
};
pub use tautline_tls_records::AeadChoice;
pub use tautline_tls_rustls::{Fused, Rustls};
pub use tautline_ws::handshake::{HeadLimits, Origin, OriginError, Origins, Policy};
pub use tautline_ws::{CloseCode, Kind, Message, Prepared, RetryAfter, deflate::DeflateConfig};
pub use tls::Tls;
#[cfg(feature = "tracing")]
pub use traced::Traced;
pub use upgrade::{HandOver, HandOverError, HandedOver, Upgrades};

/// The layers, for compositions of your own: a [`Shard`] takes any engine and any driver.
pub mod layers {
    pub use tautline_buf as buf;
    pub use tautline_engine as engine;
    pub use tautline_io as io;
    #[cfg(feature = "metrics")]
    pub use tautline_metrics as metrics;
    pub use tautline_tls as tls;
    #[cfg(feature = "libssl")]
    pub use tautline_tls_libssl as tls_libssl;
    pub use tautline_tls_records as tls_records;
    pub use tautline_tls_rustls as tls_rustls;
    pub use tautline_ws as ws;
    #[cfg(feature = "xdp")]
    pub use tautline_xdp as xdp;
}

/// Runs the code in the documents as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[cfg(all(feature = "files", feature = "metrics"))]
    #[doc = include_str!("../../../docs/guide.md")]
    mod guide {}
    #[cfg(all(feature = "metrics", feature = "tracing"))]
    #[doc = include_str!("../../../docs/operations.md")]
    mod operations {}
    #[doc = include_str!("../../../docs/migration/uwebsockets.md")]
    mod uwebsockets {}
    #[cfg(feature = "http2")]
    #[doc = include_str!("../../../docs/http2.md")]
    mod http2 {}
    #[doc = include_str!("../../../docs/languages.md")]
    mod languages {}
    #[doc = include_str!("../../../docs/upgrade.md")]
    mod upgrade {}
    #[doc = include_str!("../../../docs/tcp.md")]
    mod tcp {}
    #[doc = include_str!("../../../docs/tls.md")]
    mod tls {}
}
