//! Drivers: how bytes reach the wire.
//!
//! A [`Driver`] owns the sockets of one shard. It is completion-shaped, so that readiness (epoll), completions
//! (io_uring) and userspace stacks fit behind one trait: the driver calls a [`Sink`] back, and lends it the bytes that
//! arrived for that call only; the sink asks the driver to connect, send, pause, shut down and close.
//!
//! [`epoll`] is the driver that runs on every Linux; `uring` needs Linux 6.12 and the feature of its name, which is on by
//! default; [`select`] is for comparison, and for a few connections. Each can [`Spin`]. [`Io`] chooses by name. [`machine`] asks for processors and descriptors.
//!
//! A server that greets the first who comes:
//! ```
//! use std::io;
//! use tautline_io::{Driver, End, ListenOptions, Listener, Received, Sink, Token, epoll};
//! use tautline_window::Buf;
//!
//! struct Greet {
//!     done: bool,
//! }
//!
//! impl<D: Driver> Sink<D> for Greet {
//!     fn accepted(&mut self, driver: &mut D, token: Token, _: Listener) {
//!         let mut buf = Buf::new();
//!         buf.put(b"hello");
//!         // What the kernel has no room for stays with the driver, which sends it before it finishes.
//!         let _ = driver.send(token, buf);
//!         driver.shutdown(token);
//!     }
//!     fn ended(&mut self, driver: &mut D, token: Token, _: End) {
//!         driver.close(token, false);
//!         self.done = true;
//!     }
//!     fn received(&mut self, _: &mut D, _: Token, _: Received<'_>) {}
//!     fn connected(&mut self, _: &mut D, _: Token) {}
//!     fn sent(&mut self, _: &mut D, _: Token, _: Buf) {}
//!     fn woken(&mut self, _: &mut D) {}
//!     fn accept_failed(&mut self, _: &mut D, _: io::Error) {}
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

mod address;
mod choice;
mod chores;
mod driver;
pub mod echo;
pub mod epoll;
pub mod kernel;
#[cfg(test)]
mod logged;
pub mod machine;
pub mod readiness;
pub mod select;
#[cfg(test)]
mod shortage;
mod slots;
mod socket;
mod spin;
mod stamp;
#[cfg(feature = "uring")]
pub mod uring;
mod wake;

pub use address::Address;
pub use choice::{Compose, Io};
pub use driver::{Direct, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
pub use kernel::KernelTls;
pub use spin::Spin;
pub use stamp::{Anchor, Arrival, Clock, Scale, Ticker};
