//! A [`Handler`](crate::Handler) under test: without sockets or threads, in virtual time.
//!
//! An [`App`] runs the loop of a server over pipes in memory. Its [`Client`]s speak the real protocol, so that limits,
//! policies and close codes are those of a server. Each call runs the loop until nothing is left to do. Time stands still
//! until [`App::advance`].
//!
//! ```
//! use std::time::Duration;
//! use tautline::testing::{App, Event};
//! use tautline::{CloseCode, Conn, Handler, Message, Opening};
//!
//! /// Closes connections that say nothing for a minute.
//! struct Impatient;
//!
//! impl Handler for Impatient {
//!     type State = ();
//!     fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
//!         conn.set_timer(Duration::from_secs(60), 0);
//!     }
//!     fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
//!         conn.set_timer(Duration::from_secs(60), 0);
//!         conn.text(message.text().unwrap_or("no text"));
//!     }
//!     fn on_timer(&mut self, conn: &mut Conn<'_, ()>, _id: u64) {
//!         conn.close(CloseCode::POLICY, "too quiet");
//!     }
//! }
//!
//! let app = App::new(Impatient)?;
//! let client = app.connect("/");
//! assert!(matches!(client.next(), Some(Event::Open(_))));
//! client.text("hello");
//! assert_eq!(client.texts(), ["hello"]);
//! app.advance(Duration::from_secs(61));
//! assert_eq!(client.next(), Some(Event::Closed(CloseCode::POLICY, "too quiet".into())));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - A panic of the handler ends the test, so that its assertions count. [`App::with_config`] takes another choice.
//! - Threads of the handler run in real time. [`Client::wait`] waits for the answer of such a thread, for example by a
//!   [`Ticket`](crate::Ticket).
//! - There is one loop, without TLS. Nothing can be dialled from it.

mod app;
mod client;
mod driver;
mod event;
mod net;
mod world;

pub use app::App;
pub use client::{Client, Fetch};
pub use event::Event;
