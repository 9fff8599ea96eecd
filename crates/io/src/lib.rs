//! Drivers: how bytes reach the wire.
//!
//! A [`Driver`] owns the sockets of one shard. It is completion-shaped, so that readiness (epoll), completions
//! (io_uring) and userspace stacks fit behind one trait: the driver calls a [`Sink`] back, and lends it the bytes that
//! arrived for that call only; the sink asks the driver to connect, send, pause, shut down and close.
//!
//! [`epoll`] is the driver that runs on every Linux; [`uring`] needs Linux 6.12; [`select`] is for comparison, and for
//! a few connections. Each can [`Spin`]. [`DriverConfig`] chooses by name. [`machine`] asks for processors and
//! descriptors, and [`activation`] takes listening sockets of others.
//!
//! A server that greets its first client:
//! ```
//! # mod tautline {
//! #     pub use tautline_io::ListenOptions;
//! #     pub mod layers { pub use tautline_buf as buf; pub mod io { pub use tautline_io::*; } }
//! # }
//! use std::io;
//! use tautline::layers::buf::Buf;
//! use tautline::layers::io::{Driver, End, Listener, Received, Sink, Token, epoll};
//! use tautline::ListenOptions;
//!
//! struct Greet {
//!     done: bool,
//! }
//!
//! impl Sink for Greet {
//!     fn accepted(&mut self, driver: &mut dyn Driver, token: Token, _: Listener) {
//!         let mut buf = Buf::new();
//!         buf.put(b"hello");
//!         // Bytes that the kernel has no room for stay with the driver, which sends them before it finishes.
//!         let _ = driver.send(token, buf);
//!         driver.shutdown(token);
//!     }
//!     fn ended(&mut self, driver: &mut dyn Driver, token: Token, _: End) {
//!         driver.close(token, false);
//!         self.done = true;
//!     }
//!     fn received(&mut self, _: &mut dyn Driver, _: Token, _: Received<'_>) {}
//!     fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
//!     fn sent(&mut self, _: &mut dyn Driver, _: Token, _: Buf) {}
//!     fn woken(&mut self, _: &mut dyn Driver) {}
//!     fn accept_failed(&mut self, _: &mut dyn Driver, _: io::Error) {}
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut driver = epoll::Driver::new()?;
//! let (_, address) = driver.listen(&"127.0.0.1:0".parse()?, &ListenOptions::default())?;
//! let visitor = std::thread::spawn(move || {
//!     let mut greeting = String::new();
//!     io::Read::read_to_string(&mut std::net::TcpStream::connect(address.to_string())?, &mut greeting)?;
//!     io::Result::Ok(greeting)
//! });
//! let mut greet = Greet { done: false };
//! while !greet.done {
//!     driver.turn(None, &mut greet)?;
//! }
//! assert_eq!(visitor.join().unwrap()?, "hello");
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

// The drivers' suite of tests names this crate as others do.
#[cfg(test)]
extern crate self as tautline_io;

pub mod activation;
mod address;
mod deferred;
mod driver;
mod driver_config;
pub mod echo;
pub mod epoll;
#[cfg(test)]
mod faults;
pub mod kernel;
mod listen_options;
#[cfg(test)]
mod logged;
pub mod machine;
pub mod readiness;
pub mod select;
pub mod slots;
mod socket;
mod source;
mod spin;
mod stamp;
mod tcp_options;
pub mod uring;
mod wake;

pub use address::Address;
pub use driver::{
    Answered, CarrierEnd, Direct, Driver, End, Held, Listener, Received, Sent, Sink, StreamFault, Token, Waker,
};
pub use driver_config::{DriverConfig, External};
pub use kernel::KernelTls;
pub use listen_options::ListenOptions;
pub use source::Source;
pub use spin::Spin;
pub use stamp::{Anchor, Arrival, Clock, Scale, Ticker};
pub use tcp_options::{Keepalive, TcpOptions};
