//! Requests that a server reads.

use crate::config::Deadlines;
use crate::notes::Notes;
use crate::tick::{Tick, millis};
use tautline_buf::Buf;
use tautline_ws::handshake::{self, BodyReader, HandshakeError, HeadLimits, HeadReader};

/// Bytes that ask a client for the body that it announced.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The HTTP request that a server reads, and what it knows of those before.
pub struct Head {
    /// The bytes of a partial head.
    pub bytes: Buf,
    /// The parser of heads.
    pub reader: HeadReader,
    /// Whether a request was answered on this connection before.
    pub answered: bool,
    /// The end of the time for plain HTTP, once a request was answered and another may follow.
    pub http_end: Option<Tick>,
    /// A request whose body is being read.
    pub body: Option<Box<Body>>,
    /// The end of the peer's direction, if it came behind bytes that are held back: whether close_notify came before it.
    pub late: Option<bool>,
    /// The application's part of the entry in the access log.
    pub notes: Notes,
}

/// A request whose body is not whole.
pub struct Body {
    /// Its head.
    pub request: http::Request<()>,
    /// The reader of its body, with the content so far.
    pub reader: BodyReader,
}

/// The result of [`Head::read`].
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Read {
    /// The client's next bytes are needed.
    Partial,
    /// The head of a request. [`Head::begin_body`] follows, unless the request is answered without its body.
    Head(http::Request<()>),
    /// A request whose body has become whole.
    Whole(Box<Body>),
}

/// The part that follows the head of a request.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Begun {
    /// Nothing that is read here: the request has no body, or it is an upgrade, which must have none.
    Whole(http::Request<()>),
    /// Its body. The client awaits [`CONTINUE`] if `is_awaited`.
    Body {
        /// Whether the client sends nothing before it has got [`CONTINUE`].
        is_awaited: bool,
    },
}

impl Head {
    /// Nothing was read.
    #[must_use]
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            bytes: Buf::new(),
            reader: HeadReader::new(limits),
            answered: false,
            http_end: None,
            body: None,
            late: None,
            notes: Notes::default(),
        }
    }

    /// Reads the next part of a request. Returns it, and the bytes of `plain` that belonged to it.
    ///
    /// # Errors
    /// The bytes are no request, or exceed a limit.
    pub fn read(&mut self, plain: &[u8]) -> Result<(usize, Read), HandshakeError> {
        if let Some(body) = &mut self.body {
            let (used, is_whole) = body.reader.read(plain)?;
            let whole = if is_whole { self.body.take() } else { None };
            return Ok((used, whole.map_or(Read::Partial, Read::Whole)));
        }
        let Self { bytes, reader, .. } = self;
        let parsed = whole_head(bytes, plain, |bytes| reader.request(bytes))?;
        self.answered |= parsed.is_some();
        Ok(parsed.map_or((plain.len(), Read::Partial), |(request, used)| (used, Read::Head(request))))
    }

    /// Begins to read the body of a request, of at most `limit` bytes.
    ///
    /// # Errors
    /// The body is longer, or its length is malformed.
    pub fn begin_body(&mut self, request: http::Request<()>, limit: usize) -> Result<Begun, HandshakeError> {
        // An upgrade with a body is refused later, with the reason.
        if handshake::is_upgrade(&request) {
            return Ok(Begun::Whole(request));
        }
        Ok(match BodyReader::new(&request, limit)? {
            None => Begun::Whole(request),
            Some(reader) => {
                let is_awaited = BodyReader::is_awaited(&request);
                self.body = Some(Box::new(Body { request, reader }));
                Begun::Body { is_awaited }
            }
        })
    }

    /// A request was answered, and another may follow. Returns the deadline for it, and whether this answer was the first.
    ///
    /// An answer is no progress towards a WebSocket, so all requests together have [`Deadlines::http`].
    pub fn await_next(&mut self, now: Tick, deadlines: &Deadlines) -> (Tick, bool) {
        let is_first = self.http_end.is_none();
        let end = *self.http_end.get_or_insert_with(|| now + millis(deadlines.http));
        (end.min(now + millis(deadlines.handshake)), is_first)
    }

    /// Whether a part of a request has arrived.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.body.is_some()
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.notes.memory() + self.body.as_ref().map_or(0, |body| body.reader.memory())
    }
}

/// The framing of the response to a request, whose body was read. `may_follow`: another request may follow.
#[must_use]
pub fn framing_of(request: &http::Request<()>, may_follow: bool) -> handshake::Reply {
    // The body of an upgrade, which must have none, is not read.
    let is_read = !handshake::is_upgrade(request);
    let reply = if is_read { handshake::Reply::after_body(request) } else { handshake::Reply::to(request) };
    handshake::Reply { keep_alive: reply.keep_alive && may_follow, ..reply }
}

/// Reads an HTTP head from `plain`, in place if it is whole. A partial head is gathered in `bytes`.
///
/// Returns the head and the bytes of `plain` that belonged to it.
///
/// # Errors
/// Those of `read`.
pub(crate) fn whole_head<T>(
    bytes: &mut Buf,
    plain: &[u8],
    read: impl FnOnce(&[u8]) -> Result<Option<(T, usize)>, HandshakeError>,
) -> Result<Option<(T, usize)>, HandshakeError> {
    if bytes.is_empty() {
        let parsed = read(plain)?;
        if parsed.is_none() {
            bytes.put(plain);
        }
        return Ok(parsed);
    }
    let before = bytes.len();
    bytes.put(plain);
    let parsed = read(bytes.filled())?;
    // The gathered bytes were no whole head, so the head ends within the new ones.
    let parsed = parsed.map(|(head, used)| (head, used.saturating_sub(before)));
    if parsed.is_some() {
        *bytes = Buf::new();
    }
    Ok(parsed)
}
