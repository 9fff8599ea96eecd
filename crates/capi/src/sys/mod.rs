//! The functions of the interface. Each header comment says who may call it.
//!
//! All pointers come from the caller. A function reads and writes only the memory that its arguments name, and keeps no
//! pointer to it when it returns. The one exception is the user pointer of a verification callback.

mod border;
mod callbacks;
mod client;
mod config;
mod conn;
mod exclusive;
mod general;
mod guard;
mod heads;
mod lent;
mod loops;
mod memory;
mod message;
mod owner;
mod request;
mod running;
mod server;
mod settings;
mod shapes;
mod sized;
mod socket;
mod tls;
mod types;
mod vectors;
mod verify;
mod ws;

pub use crate::codes::*;
pub use callbacks::*;
pub use client::*;
pub use config::*;
pub use conn::*;
pub use general::*;
pub use owner::Loop;
pub use request::*;
pub use server::*;
pub use settings::*;
pub use shapes::*;
pub use socket::*;
pub use tls::*;
pub use types::*;
pub use ws::*;
