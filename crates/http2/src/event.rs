use crate::code::Code;
use crate::fields::{RequestHead, ResponseHead};
use tautline_io::StreamFault;

/// The result of one [read](crate::Connection::read).
#[derive(Debug)]
pub struct Read<'a> {
    /// Bytes that were used. Without an event they are all.
    pub used: usize,
    /// The first event that they led to.
    pub event: Option<Event<'a>>,
}

/// An event of a connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request (server). It is valid: no field can smuggle another one.
    Request {
        /// The new stream.
        stream: u32,
        /// The head.
        head: Box<RequestHead>,
        /// Whether no body follows.
        end: bool,
    },
    /// The final response to a request (client). Informational ones are left out.
    Response {
        /// The request's stream.
        stream: u32,
        /// The head.
        head: Box<ResponseHead>,
        /// Whether no body follows.
        end: bool,
    },
    /// A part of a body, where it lies. The caller says when it has [taken](crate::Connection::took) the bytes.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes. They may be none at the end.
        data: &'a mut [u8],
        /// Whether the peer's direction has ended.
        end: bool,
    },
    /// The peer has ended its direction by trailers, which are dropped.
    End {
        /// The stream.
        stream: u32,
    },
    /// A stream has ended at once: the peer reset it, or broke a rule and was told so.
    Reset {
        /// The stream.
        stream: u32,
        /// The code of the frame.
        code: Code,
        /// The fault of the peer, if this end has reset the stream.
        why: Option<StreamFault>,
    },
    /// A stream of which no other event tells was refused, or a frame for one that is over: the peer was told so.
    Refused {
        /// The stream.
        stream: u32,
        /// The fault of the peer.
        why: StreamFault,
    },
    /// More may be sent: on this stream, or on all of them.
    Window {
        /// The stream.
        stream: Option<u32>,
    },
    /// The answer to a [ping](crate::Connection::ping).
    Pong([u8; 8]),
    /// The peer takes no more streams. Those above the number were not processed, and are over.
    GoAway {
        /// The highest of our streams that the peer has processed, or may process.
        last: u32,
        /// The reason.
        code: Code,
    },
}
