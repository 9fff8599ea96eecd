//! Requests that the application answers later, from any thread.
//!
//! While a request waits, its connection is in the phase `Waiting`: nothing more is read from the client than one read of the
//! driver. The number of such connections and their time are bounded.

use crate::http::content::Content;
use crate::http::late_reply::LateReply;
use crate::http::push::Push;
use crate::http::reply::{Upgrade, status_response};
use crate::http::wanted::{IsWanted, Wanted};
use crate::ids::ConnId;
use crate::threads::command::Command;
use crate::threads::remote::{ShardHandle, ShardHandleError};
use http::{Response, StatusCode};
use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::marker::PhantomData;
use tautline_io::Token;

/// The right and the duty to answer one request, on any thread. Made by [`Request::later`](crate::Request::later).
///
/// A ticket that is dropped answers with status 500.
///
/// ```
/// # mod tautline { pub use {tautline_engine::{Conn, Handler, Reply, Request, Ticket, Upgrade}, tautline_ws::Message}; }
/// use http::StatusCode;
/// use tautline::{Conn, Handler, Message, Reply, Request, Ticket, Upgrade};
///
/// struct Members;
///
/// /// Asks a slow database for the user of a cookie.
/// fn user_of(cookie: &str) -> Option<String> {
///     Some(cookie.to_owned())
/// }
///
/// impl Handler for Members {
///     /// The user's name.
///     type State = String;
///     fn on_request(&mut self, request: &Request<'_>) -> Reply<String> {
///         let Some(cookie) = request.http.headers().get("cookie") else {
///             return Reply::status(StatusCode::UNAUTHORIZED);
///         };
///         let cookie = cookie.to_str().unwrap_or_default().to_owned();
///         request.later(move |ticket: Ticket<String>| {
///             std::thread::spawn(move || match user_of(&cookie) {
///                 Some(name) => ticket.upgrade(Upgrade::new().with_state(name)),
///                 None => ticket.status(StatusCode::FORBIDDEN),
///             });
///         })
///     }
///     fn on_message(&mut self, conn: &mut Conn<'_, String>, message: Message<'_>) {
///         println!("{}: {:?}", conn.state(), message.text());
///     }
/// }
/// ```
pub struct Ticket<T> {
    /// `None` once it is answered, and in tests of applications.
    waiting: Option<Waiting>,
    state: PhantomData<fn(T)>,
}

/// The connection that waits for a ticket.
struct Waiting {
    shard: ShardHandle,
    token: Token,
    number: u64,
    wanted: IsWanted,
}

impl<T> Ticket<T> {
    /// A ticket that nobody waits for.
    pub(crate) const fn unconnected() -> Self {
        Self { waiting: None, state: PhantomData }
    }

    /// Whether the client still waits. It may leave, or the time may be over, at any moment.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.wanted.get())
    }

    /// Accepts the WebSocket.
    ///
    /// # Errors
    /// If nobody waits any more: [`Ended`](ShardHandleError::Ended) or [`Stopped`](ShardHandleError::Stopped).
    pub fn upgrade(self, upgrade: Upgrade<T>) -> Result<(), ShardHandleError>
    where
        T: Send + 'static,
    {
        let Upgrade { headers, subprotocol, context_takeover, state } = upgrade;
        let state = state.map(|state| -> Box<dyn Any + Send> { Box::new(state) });
        self.give(LateReply::Upgrade(Upgrade { headers, subprotocol, context_takeover, state }))
    }

    /// Answers as plain HTTP.
    ///
    /// # Errors
    /// If nobody waits any more: [`Ended`](ShardHandleError::Ended) or [`Stopped`](ShardHandleError::Stopped).
    pub fn respond(self, response: Response<Vec<u8>>) -> Result<(), ShardHandleError> {
        self.give(LateReply::Respond(response))
    }

    /// Answers as plain HTTP with content that is made while it is sent.
    ///
    /// # Errors
    /// If nobody waits any more: [`Ended`](ShardHandleError::Ended) or [`Stopped`](ShardHandleError::Stopped).
    pub fn stream(self, response: Response<Content>) -> Result<(), ShardHandleError> {
        self.give(LateReply::Stream(response))
    }

    /// Answers as plain HTTP with a response whose pieces the application sends.
    ///
    /// # Errors
    /// If nobody waits any more: [`Ended`](ShardHandleError::Ended) or [`Stopped`](ShardHandleError::Stopped).
    pub fn push(self, push: Push<T>) -> Result<(), ShardHandleError>
    where
        T: Send + 'static,
    {
        let Push { response, writer, state } = push;
        let state = state.map(|state| -> Box<dyn Any + Send> { Box::new(state) });
        self.give(LateReply::Push(Push { response, writer, state }))
    }

    /// Answers with a status, like [`Reply::status`](crate::Reply::status).
    ///
    /// # Errors
    /// If nobody waits any more: [`Ended`](ShardHandleError::Ended) or [`Stopped`](ShardHandleError::Stopped).
    pub fn status(self, status: StatusCode) -> Result<(), ShardHandleError> {
        self.respond(status_response(status))
    }

    fn give(mut self, reply: LateReply) -> Result<(), ShardHandleError> {
        self.waiting.take().map_or(Err(ShardHandleError::Ended), |waiting| waiting.give(reply))
    }
}

impl Waiting {
    fn give(self, reply: LateReply) -> Result<(), ShardHandleError> {
        let Self { shard, token, number, wanted } = self;
        if !wanted.get() {
            return Err(ShardHandleError::Ended);
        }
        // A full queue takes it, since the number of tickets is bounded.
        shard.force(Command::Reply { to: token, number, reply: Box::new(reply) })
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            // A shard that has stopped, or a client that has left, needs no answer.
            let _ = waiting.give(LateReply::Respond(status_response(StatusCode::INTERNAL_SERVER_ERROR)));
        }
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("is_wanted", &self.is_wanted()).finish()
    }
}

/// The source of the ticket of one request.
pub(crate) struct Source<'a> {
    pub(crate) shard: &'a ShardHandle,
    pub(crate) token: Token,
    pub(crate) number: u64,
    pub(crate) has_room: bool,
    pub(crate) wanted: OnceCell<Wanted>,
}

impl Source<'_> {
    /// The request's connection.
    pub(crate) fn conn(&self) -> ConnId {
        ConnId { shard: self.shard.number(), token: self.token }
    }

    pub(crate) fn ticket<T>(&self) -> Ticket<T> {
        let wanted = self.wanted.get_or_init(Wanted::new).observer();
        let (shard, token, number) = (self.shard.clone(), self.token, self.number);
        Ticket { waiting: Some(Waiting { shard, token, number, wanted }), state: PhantomData }
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}
