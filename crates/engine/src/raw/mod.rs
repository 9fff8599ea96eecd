//! Connections whose bytes are the application's: it forwards them, or speaks a protocol of its own.
//!
//! The input of a link calls it with a request's head, and with plaintext from then on. A dial calls it once its connection is
//! secured. The application gets a connection lent together with the others of the loop, so that bytes go from one's receive
//! buffer into another's seal. Its wishes for a connection are granted behind the call.
//!
//! A raw connection can become a WebSocket: an application that has made both opening handshakes of a pair joins their messages.

pub(crate) mod event;
pub(crate) mod joining;
pub(crate) mod lent;
mod parts;
pub(crate) mod serving;
pub(crate) mod slots;
pub(crate) mod terms;
