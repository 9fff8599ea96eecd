//! The way in: bytes of the wire → tunnel → TLS → records → HTTP → frames.
//!
//! [`advance`] takes received bytes as far as it can. It calls its [`Inward`] with what it finds, where it lies.

use crate::head::{Begun, CONTINUE, Read};
use crate::outbound::Outbound;
use crate::phase::Phase;
use crate::proxy_header::ProxyHeader;
use crate::verdict::Stop;
use crate::wire::Wire;
use core::ops::ControlFlow;
use tautline_buf::{Buf, Pool};
use tautline_tls::{Content, Error, Handshake, Opened, Plain, Session};
use tautline_ws::handshake::{BodyReader, Established, HeadLimits};

/// Most bytes that wait for the rest of their record. An engine uses whole records, so more is a bug of the engine.
const MAX_CARRY: usize = 64 << 10;

/// A connection that reads: it lends its parts, and takes what was read.
///
/// That of a loop calls the handler. That of a connection without I/O keeps one event for its caller.
pub trait Inward {
    /// Its TLS session.
    type Session: Session;
    /// The part of a request that waits: see [`Phase`].
    type Kept;
    /// A response that is made while it is sent: see [`Phase`].
    type Made;

    /// The parts that all connections have.
    fn parts(&mut self) -> Parts<'_, Self::Session, Self::Kept, Self::Made>;

    /// The limits of heads.
    fn head_limits(&self) -> HeadLimits;

    /// The most bytes of a request's body.
    fn max_body(&self) -> usize;

    /// The tunnel through the proxy stands.
    fn tunneled(&mut self) {}

    /// The connection began with this header of the PROXY protocol.
    fn announced(&mut self, header: ProxyHeader);

    /// Chooses the place of the next step of the TLS handshake, which has these bytes.
    ///
    /// # Errors
    /// The connection cannot go on.
    #[inline]
    fn next_step(&mut self, bytes: &[u8]) -> Result<Step, Stop> {
        Ok(Step::Here(bytes.len()))
    }

    /// Does a step of the TLS handshake. Returns the bytes used.
    ///
    /// # Errors
    /// The handshake failed.
    fn handshake(&mut self, bytes: &mut [u8]) -> Result<(usize, Handshake), Stop> {
        let Parts { session, wire, pool, .. } = self.parts();
        Ok(session.handshake(bytes, wire.buf(pool))?)
    }

    /// TLS is established, or there is none: begins HTTP, or what follows instead.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn secured(&mut self) -> Result<(), Stop>;

    /// Whether input is to wait. If so, it is [held](Self::hold).
    fn holds_back(&self) -> bool;

    /// Input is left, and waits.
    #[inline]
    fn hold(&mut self) {}

    /// A record is opened next.
    #[inline]
    fn opens(&mut self) {}

    /// A record was opened, and has plaintext.
    #[inline]
    fn opened(&mut self) {}

    /// Whether nothing further is read now, since an event waits for its taker.
    #[inline]
    fn has_stopped(&self) -> bool {
        false
    }

    /// Whether others have their turn now, before the next record or request.
    #[inline]
    fn yields(&mut self) -> bool {
        false
    }

    /// The head of a request is whole. Returns the request, unless it is answered without its body.
    fn headed(&mut self, request: http::Request<()>) -> Option<http::Request<()>>;

    /// A request is whole, with its body if it has one.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn requested(&mut self, request: http::Request<()>, body: Option<BodyReader>) -> Result<(), Stop>;

    /// These bytes, or those that were gathered before them, are no request.
    fn unreadable(&mut self, _plain: &[u8]) {}

    /// The server accepted the WebSocket (client).
    fn established(&mut self, established: Established);

    /// Takes plaintext of an open connection. Returns the bytes used: all, unless the others wait.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn frames(&mut self, plain: &mut [u8]) -> Result<usize, Stop>;

    /// Takes plaintext in a phase that reads neither HTTP nor frames. Returns the bytes used: the others wait after `Break`.
    fn other(&mut self, plain: &mut [u8]) -> ControlFlow<usize, usize> {
        ControlFlow::Continue(plain.len())
    }

    /// The peer has ended its direction by close_notify.
    ///
    /// # Errors
    /// The connection ends by it.
    fn closed(&mut self) -> Result<(), Stop>;
}

/// The parts of a connection that reads.
pub struct Parts<'a, S, W, R> {
    /// Its state.
    pub phase: &'a mut Phase<W, R>,
    /// Its TLS session.
    pub session: &'a mut S,
    /// Its sealed bytes.
    pub wire: &'a mut Wire,
    /// Its messages that are not sealed.
    pub out: &'a mut Outbound,
    /// Unused buffers.
    pub pool: &'a mut Pool,
}

/// The place of the next step of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Here, with this number of bytes.
    Here(usize),
    /// Elsewhere: the session was taken out, with all bytes.
    Taken,
    /// Nowhere, until more bytes have arrived.
    Waits,
}

/// The result of [`advance`].
#[derive(Debug, Default)]
pub struct Advanced {
    /// Bytes of the wire that are used up.
    pub used: usize,
    /// The record behind them, of which a part was used.
    pub amid: Option<Record>,
}

/// An opened record, of which a part was used. Without TLS, all bytes together are one.
#[derive(Debug)]
pub struct Record {
    /// The rest of its plaintext. If it lies in the wire, its range counts from the record's first byte.
    pub plain: Plain,
    /// Bytes of the wire that it has.
    pub len: usize,
}

impl Advanced {
    const fn to(used: usize) -> Self {
        Self { used, amid: None }
    }
}

/// Processes received bytes, and opens records in them, in the connection's phase and later ones.
///
/// Bytes that were not used are given again, with more behind them. The rest of a record that is `amid` goes to [`plaintext`]
/// before that.
///
/// # Errors
/// The connection cannot go on.
#[inline]
pub fn advance<C: Inward>(conn: &mut C, bytes: &mut [u8], scratch: &mut Buf) -> Result<Advanced, Stop> {
    let mut used = 0;
    loop {
        if !conn.parts().phase.is_open() {
            match before_records(conn, bytes, used)? {
                Progress::Records(begin) => used = begin,
                Progress::Further(begin) => {
                    used = begin;
                    continue;
                }
                Progress::Stops(end) => return Ok(Advanced::to(end)),
            }
        }
        if used < bytes.len() {
            if conn.holds_back() {
                conn.hold();
                return Ok(Advanced::to(used));
            }
            conn.opens();
        }
        let rest = &mut bytes[used..];
        let Parts { session, wire, .. } = conn.parts();
        let Opened { used: len, content } = session.open(rest, scratch, wire.sealed_mut())?;
        match content {
            Content::Data(mut plain) => {
                conn.opened();
                let data = plain.bytes(rest, scratch);
                let all = data.len();
                let taken = plaintext(conn, data)?;
                if conn.has_stopped() || taken < all && !conn.parts().session.is_plain() {
                    plain.range.start += taken;
                    return Ok(Advanced { used, amid: Some(Record { plain, len }) });
                }
                used += len - (all - taken);
                // No bytes give no data.
                if used == bytes.len() {
                    return Ok(Advanced::to(used));
                }
                conn.yields();
            }
            Content::Control => used += len,
            Content::Partial => {
                check_carry(bytes.len() - used - len)?;
                return Ok(Advanced::to(used + len));
            }
            Content::Closed => {
                conn.closed()?;
                return Ok(Advanced::to(bytes.len()));
            }
        }
    }
}

/// Takes plaintext, or the rest of it. Returns the bytes used.
///
/// # Errors
/// The connection cannot go on.
#[inline]
pub fn plaintext<C: Inward>(conn: &mut C, plain: &mut [u8]) -> Result<usize, Stop> {
    if conn.parts().phase.is_open() { conn.frames(plain) } else { before_frames(conn, plain) }
}

/// The socket or the tunnel to the server is established: begins TLS, if there is any.
///
/// # Errors
/// The connection cannot go on.
pub fn secure<C: Inward>(conn: &mut C) -> Result<(), Stop> {
    let Parts { phase, session, wire, pool, .. } = conn.parts();
    if session.is_plain() {
        return conn.secured();
    }
    *phase = Phase::Tls;
    // A client speaks first.
    let _ = session.handshake(&mut [], wire.buf(pool))?;
    Ok(())
}

/// The state of input after a step of a connection that is not open. The numbers are the bytes that were used.
enum Progress {
    /// Records are opened next.
    Records(usize),
    /// Another phase began, or more of it follows.
    Further(usize),
    /// Nothing more can be done with these bytes for now.
    Stops(usize),
}

/// Processes bytes of a connection that is not open yet or no more, as far as no record needs to be opened.
#[inline(never)]
fn before_records<C: Inward>(conn: &mut C, bytes: &mut [u8], mut used: usize) -> Result<Progress, Stop> {
    let Parts { phase, wire, pool, .. } = conn.parts();
    match phase {
        Phase::Proxy(tunnel) => {
            let (read, stands) = tunnel.read(&bytes[used..], wire.buf(pool)).map_err(Stop::Proxy)?;
            used += read;
            if !stands {
                return Ok(Progress::Stops(used));
            }
            conn.tunneled();
            secure(conn)?;
            Ok(Progress::Further(used))
        }
        Phase::ProxyHeader => {
            let Some((header, len)) = ProxyHeader::read(&bytes[used..]).map_err(Stop::Header)? else {
                return Ok(Progress::Stops(used));
            };
            let limits = conn.head_limits();
            let Parts { phase, session, .. } = conn.parts();
            *phase = Phase::first(session.is_plain(), limits);
            conn.announced(header);
            Ok(Progress::Further(used + len))
        }
        Phase::Tls => {
            let len = match conn.next_step(&bytes[used..])? {
                Step::Here(len) => len,
                Step::Taken => return Ok(Progress::Stops(bytes.len())),
                Step::Waits => return Ok(Progress::Stops(used)),
            };
            let (read, handshake) = conn.handshake(&mut bytes[used..used + len])?;
            used += read;
            if handshake == Handshake::Complete {
                conn.secured()?;
            } else if read < len || used == bytes.len() {
                check_carry(bytes.len() - used)?;
                return Ok(Progress::Stops(used));
            }
            Ok(Progress::Further(used))
        }
        Phase::Offloaded(_) | Phase::Waiting(_) | Phase::Streaming(_) => {
            if used < bytes.len() {
                conn.hold();
            }
            Ok(Progress::Stops(used))
        }
        phase if !phase.reads() => Ok(Progress::Stops(bytes.len())),
        _ => Ok(Progress::Records(used)),
    }
}

/// Takes plaintext of a connection that is not open yet or no more.
#[inline(never)]
fn before_frames<C: Inward>(conn: &mut C, plain: &mut [u8]) -> Result<usize, Stop> {
    let mut used = 0;
    while used < plain.len() && !conn.has_stopped() {
        if used > 0 && matches!(conn.parts().phase, Phase::Request(_)) && conn.yields() {
            return Ok(used);
        }
        let rest = &mut plain[used..];
        match conn.parts().phase {
            Phase::Request(_) => used += request(conn, rest)?,
            Phase::Answer(answer) => {
                let (read, whole) = answer.read(rest)?;
                used += read;
                if let Some(established) = whole {
                    conn.established(established);
                }
            }
            phase if phase.is_open() => return Ok(used + conn.frames(rest)?),
            _ => match conn.other(rest) {
                ControlFlow::Continue(taken) => used += taken,
                ControlFlow::Break(taken) => return Ok(used + taken),
            },
        }
    }
    Ok(used)
}

/// Reads the next part of a request. Returns the bytes of `plain` that belonged to it.
fn request<C: Inward>(conn: &mut C, plain: &[u8]) -> Result<usize, Stop> {
    let Phase::Request(head) = conn.parts().phase else { return Ok(0) };
    match head.read(plain) {
        Ok((used, read)) => {
            match read {
                Read::Partial => {}
                Read::Head(request) => {
                    if let Some(request) = conn.headed(request) {
                        begin_body(conn, request)?;
                    }
                }
                Read::Whole(body) => conn.requested(body.request, Some(body.reader))?,
            }
            Ok(used)
        }
        Err(error) => {
            conn.unreadable(plain);
            Err(Stop::Refused(error))
        }
    }
}

/// Begins to read the body of a request. A request without one is whole.
fn begin_body<C: Inward>(conn: &mut C, request: http::Request<()>) -> Result<(), Stop> {
    let limit = conn.max_body();
    let Parts { phase: Phase::Request(head), out, pool, .. } = conn.parts() else { return Ok(()) };
    match head.begin_body(request, limit).map_err(Stop::Refused)? {
        Begun::Whole(request) => return conn.requested(request, None),
        Begun::Body { is_awaited: true } => out.raw(pool).put(CONTINUE),
        Begun::Body { is_awaited: false } => {}
    }
    Ok(())
}

/// An engine uses whole records, so less than one waits for more bytes.
#[inline]
fn check_carry(len: usize) -> Result<(), Stop> {
    if len > MAX_CARRY {
        return Err(Error::Library("the engine does not consume its input".into()).into());
    }
    Ok(())
}
