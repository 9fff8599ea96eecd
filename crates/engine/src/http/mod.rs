//! Requests and responses before and beside WebSockets, and the access log.
//!
//! The input of a link calls it with plaintext, a ticket with an answer of another thread. It calls the application for its reply.

pub(crate) mod access;
pub(crate) mod access_table;
pub(crate) mod accessing;
pub(crate) mod answering;
pub(crate) mod content;
pub(crate) mod date;
pub(crate) mod late_reply;
pub(crate) mod push;
pub(crate) mod pushing;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod streaming;
pub(crate) mod ticket;
pub(crate) mod upgrade;
pub(crate) mod wanted;
