//! A driver past the kernel's TCP/IP stack: AF_XDP frames (`xdp(7)` in the kernel's documentation) and smoltcp.
//!
//! [`Driver`] implements [`tautline_io::Driver`] over one Ethernet interface. An XDP program on that interface hands it the
//! TCP segments for the endpoints that it listens at or connects from, and what routers say of too long ones from there. It
//! leaves all else to the kernel: ARP, neighbour discovery, ICMP, fragments, every other port, and the frames of queues
//! without a socket. It takes root, or `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`.
//!
//! ```no_run
//! use tautline_io::{Driver as _, ListenOptions};
//!
//! let mut driver = tautline_xdp::Driver::new("eth1")?;
//! let (_, address) = driver.listen(&"10.0.0.1:443".parse().unwrap(), &ListenOptions::default())?;
//! println!("listening on {address}, native: {}, zero copy: {}", driver.is_native(), driver.is_zero_copy());
//! # std::io::Result::Ok(())
//! ```
//!
//! What differs from the kernel's sockets:
//! - One driver owns an interface; a second one, in this process or another, is refused. It serves all receive queues.
//! - When the process ends, its connections end: the kernel takes the program away, also after a crash, and answers the
//!   peers with resets.
//! - Memory is bounded: [`Config::connections`] times the buffers of one. Handshakes that do not complete are bounded
//!   apart, and the oldest gives way; there are no SYN cookies.
//! - Local endpoints are reserved in the kernel by bound sockets that never listen, so ports in use are refused as usual.
//!
//! Rings and program are our own few hundred lines rather than a crate's: `libxdp` and `libbpf` need a C toolchain and
//! libclang to build and two shared libraries to run, and the crates in Rust that were tried read no wakeup flags or
//! produce no program. TCP is smoltcp, unmodified; see `stack.rs` for what is made up for.
#![deny(unsafe_code)]

mod config;
mod conn;
mod dialing;
mod driver;
mod ending;
mod faulty;
mod frame;
mod hash;
mod listening;
mod netlink;
mod path;
mod port;
mod program;
mod serve;
mod slab;
mod stack;
mod sys;
#[cfg(test)]
mod tests;
mod wake;
mod wire;

pub use config::{Attach, Config, Copies};
pub use driver::Driver;
#[doc(hidden)]
pub use faulty::Faults;
