//! One WebSocket connection without I/O: no sockets, no clock, no threads.
//!
//! A loop's connection (`tautline-engine`) and the socket without I/O that runtimes of others pull are made of these parts. They
//! must not differ in what they tell a peer, so each part is here once.
//!
//! | module | part |
//! |---|---|
//! | [`phase`] | the states of a connection, with the diagram |
//! | [`proxy`] | the tunnel through a proxy |
//! | [`front`] | the proxies before a server, and the client behind them |
//! | [`proxy_header`], [`forwarded`], [`prefixes`] | the header of the PROXY protocol, clients of requests, networks |
//! | [`inbound`] | the way of received bytes through tunnel, TLS session and HTTP to the frames |
//! | [`head`] | the requests that a server reads |
//! | [`upgrade`] | a server's answer to a request for a WebSocket |
//! | [`frames`] | the frames of an open connection, and their visitor |
//! | [`message`], [`queue`] | messages to send, and the policy for a peer that reads slowly |
//! | [`cork`] | frames that are not sealed yet, and their encoder |
//! | [`outbound`], [`wire`] | the way of messages through queue, cork and TLS session to an [outlet](wire::Outlet) |
//! | [`held`] | the way out of a connection whose caller writes the bytes |
//! | [`window`] | received bytes that stay where the caller has read them, for one event at a time |
//! | [`config`], [`due`] | the deadlines, and which of them is next |
//! | [`closed`], [`verdict`] | how a connection ends, and what its peer is told |
//! | [`keys`] | mask keys and nonces |
//! | [`notes`] | what an application adds to an entry of the access log |
//! | [`supplies`] | buffers and mask keys of the connections of a thread whose callers do the I/O |
//! | [`sized`] | the memory that collections take |
//!
//! Times are numbers of the caller ([`tick::Tick`]), and randomness follows from a seed of the caller.
#![forbid(unsafe_code)]

pub mod closed;
pub mod config;
pub mod cork;
pub mod due;
pub mod forwarded;
pub mod frames;
pub mod front;
pub mod gate;
pub mod head;
pub mod held;
pub mod inbound;
pub mod keys;
pub mod message;
pub mod notes;
pub mod outbound;
pub mod phase;
pub mod pieces;
pub mod prefixes;
pub mod proxy;
pub mod proxy_header;
pub mod queue;
mod retry_after;
pub mod sized;
pub mod supplies;
pub mod tick;
pub mod upgrade;
pub mod verdict;
pub mod window;
pub mod wire;
