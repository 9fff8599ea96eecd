//! `tautline` for Python: connections in loops of their own threads, and batches of events for the interpreter.
//!
//! ```text
//! loop's thread    Relay (the handler) ──events──► Inbox ──eventfd──► Hub::drain   asyncio's or a caller's thread
//! (without GIL)    Outbox::take        ◄───────────── operations ──── Link         (with the GIL)
//! ```
//! A loop's thread never takes the GIL. It appends what arrived to a [`crossing::Inbox`], and wakes Python once for each
//! turn. Python takes the whole batch, makes an object of each message, and appends operations to a
//! [`crossing::Outbox`], which the loop takes before its next turn.
//!
//! A loop can also run on the thread of the event loop ([`local`]). The queues are the same, and nobody is woken. [`tls`] is
//! TLS for transports of asyncio, without a loop.

mod crossing;
mod dialer;
mod ended;
mod failure;
mod fork;
mod frame;
mod freed;
mod head;
mod hub;
mod keepalive;
mod later;
mod link;
mod local;
mod lock;
mod messages;
mod options;
mod relay;
mod request;
mod server;
mod sys;
mod tls;
mod waiter;
mod windows;
mod worker;

/// The native part of `tautline`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::dialer::{Dialer, host_of};
    #[pymodule_export]
    use crate::frame::Frame;
    #[pymodule_export]
    use crate::head::Head;
    #[pymodule_export]
    use crate::hub::Hub;
    #[pymodule_export]
    use crate::link::{Link, broadcast};
    #[pymodule_export]
    use crate::local::forked;
    #[pymodule_export]
    use crate::messages::Messages;
    #[pymodule_export]
    use crate::request::Asked;
    #[pymodule_export]
    use crate::server::Server;
    #[pymodule_export]
    use crate::tls::{Engine, Session};
    #[pymodule_export]
    use crate::waiter::Waiter;
}
