//! A driver that bypasses the kernel's TCP/IP stack: AF_XDP frames (`xdp(7)` in the kernel's documentation) and smoltcp.
//!
//! [`Driver`] implements [`tautline_io::Driver`] over one Ethernet interface. An XDP program on that interface redirects
//! the TCP segments of our endpoints to the driver, and routers' messages about too long segments. All else stays with the
//! kernel: ARP, neighbour discovery, ICMP, fragments, every other port, and the frames of queues without a socket. The
//! driver needs root, or `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`.
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
//! The differences from the kernel's sockets:
//! - One driver owns an interface and serves all its receive queues. A second driver, in any process, is rejected.
//! - When the process ends, even by a crash, the kernel removes the program and answers the peers with resets.
//! - Memory is bounded by [`Config::connections`] times the buffers of one. Incomplete handshakes have a limit of their
//!   own, beyond which a new one evicts the oldest. There are no SYN cookies.
//! - Kernel sockets that are bound and never listen reserve the local endpoints. So ports in use are rejected as usual.
//!
//! Rings and program are a few hundred lines of our own. `libxdp` and `libbpf` need a C toolchain and libclang to build and
//! two shared libraries to run. The Rust crates that were tried read no wakeup flags or make no program. TCP is unmodified
//! smoltcp; `stack.rs` lists what the driver adds.
#![deny(unsafe_code)]

mod config;
mod conn;
mod dialing;
mod driver;
mod ending;
mod faulty;
mod frame;
mod listeners;
mod listening;
mod netlink;
mod path;
mod port;
mod program;
mod serve;
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
