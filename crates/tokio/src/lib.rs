//! Secure WebSockets for tokio: over any `AsyncRead + AsyncWrite`, driven by the caller's task.
//!
//! A [`WebSocket`] is one connection. Only the task that polls it does its work: there is no thread and no task beside
//! it. (An acceptor with TLS has one task that erases old ticket keys.) [`Acceptor`] opens the server's end and [`Connector`] the client's, with TLS or without.
//!
//! ```
//! use tautline_tokio::{Acceptor, Connector, Target};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let uri = format!("ws://{}/", listener.local_addr()?);
//! tokio::spawn(async move {
//!     let (stream, _) = listener.accept().await?;
//!     let mut socket = Acceptor::plain().accept(stream).await?;
//!     while let Some(mut message) = socket.recv().await? {
//!         message.echo()?;
//!     }
//!     Ok::<(), tautline_tokio::Error>(())
//! });
//!
//! let mut socket = Connector::plain().connect(Target::new(&uri)?).await?;
//! socket.text("hello").await?;
//! let answer = socket.recv().await?.expect("an answer");
//! assert_eq!(answer.text(), Some("hello"));
//! # Ok(())
//! # }
//! ```
//!
//! # Cancel safety
//! Every future may be dropped at any time. [`recv`](WebSocket::recv) hands a message out only when it completes.
//! [`send`](WebSocket::send) takes its message when it is called, before the future is polled. Its future only waits
//! until the message has left. A message that was taken leaves exactly once, also if that future is dropped.
//!
//! # Time
//! Pings are answered, and deadlines kept, only while a method of the socket is polled. Deadlines need a runtime with
//! time enabled.
#![forbid(unsafe_code)]

mod accept;
mod addresses;
#[cfg(feature = "axum")]
pub mod axum;
mod connect;
mod context;
mod counters;
mod drain;
mod error;
#[cfg(feature = "hyper")]
mod http2;
#[cfg(feature = "hyper")]
pub mod hyper;
mod message;
mod reconnect;
mod resolve;
mod session;
mod socket;
mod split;
mod stream;
pub mod tasks;
mod timer;
mod tls;
mod told;

pub use accept::{Acceptor, Asking};
pub use connect::{Connector, connect};
pub use counters::{Counted, Counters};
pub use drain::{Drain, Draining};
pub use error::Error;
pub use message::{Message, Received};
pub use reconnect::Connections;
pub use socket::WebSocket;
pub use split::{Receiver, Sender};
pub use tautline_engine::connection::{Opened, Unsent};
pub use tautline_engine::{
    Cause, Closed, Config, ConnectError, Deadline, Deadlines, ForwardedHeader, Front, Limits, Lookup, Outgoing, Prefix,
    Prefixes, Proxy, ProxyHeader, ProxyKind, ProxyTls, Reconnect, Resolver, SlowConsumer, Target, Via,
};
pub use tautline_io::{Address, Keepalive, Source, TcpOptions};
pub use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, ClientRule, ProtocolVersion, Roots, ServerConfig, TlsInfo,
};
pub use tautline_ws::handshake::{Origin, OriginError, Origins, Policy};
pub use tautline_ws::{CloseCode, Kind, Prepared, RetryAfter, deflate::DeflateConfig};

/// Runs the code in the document as tests.
#[cfg(all(doctest, feature = "axum"))]
mod documents {
    #[doc = include_str!("../../../docs/migration/axum.md")]
    mod axum {}
    #[doc = include_str!("../../../docs/migration/fastwebsockets.md")]
    mod fastwebsockets {}
    #[doc = include_str!("../../../docs/tokio.md")]
    mod tokio {}
    #[doc = include_str!("../../../docs/migration/tokio-tungstenite.md")]
    mod tokio_tungstenite {}
}
