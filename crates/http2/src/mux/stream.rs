//! A stream, as its loop sees it: a connection that speaks HTTP/1.1.

use super::request::Body;
use super::response::{Answer, Step};
use crate::code::Code;
use crate::connection::Connection;
use http::{HeaderMap, StatusCode};
use tautline_buf::Buf;
use tautline_io::Token;

/// A stream of a carrier.
#[derive(Debug)]
pub(super) struct Stream {
    /// The connection that carries it.
    pub(super) carrier: Token,
    /// Its number there.
    pub(super) id: u32,
    pub(super) body: Body,
    /// Whether the response may have a body: not for HEAD.
    has_body: bool,
    /// Bytes for the loop.
    pub(super) inbound: Buf,
    /// Bytes in the last chunk among them (`request::write_body`).
    pub(super) open: usize,
    /// Bytes of the peer's body among them, which its window gets back once the loop has taken them.
    pub(super) owed: usize,
    /// Whether the loop has had bytes of it, or its end.
    pub(super) is_begun: bool,
    /// Whether the loop pauses.
    pub(super) is_paused: bool,
    /// Whether the peer's direction has ended.
    pub(super) peer_ended: bool,
    /// Whether the loop knows that.
    pub(super) told: bool,
    answer: Answer,
    /// Bytes of the answer for which the window had no room. They stay in the loop's buffer, where that ends with them.
    unsent: Buf,
    /// Whether the loop waits for a buffer, which it gets back once they have left.
    is_awaited: bool,
    /// That buffer, or one without memory.
    spent: Buf,
    /// Whether our direction ends behind them.
    ends: bool,
    /// Whether the end has been sent.
    has_ended: bool,
}

/// The result of a stream's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// All of it is with the carrier, or it waits for a window.
    Taken,
    /// All of it is done with: the peer has this status instead.
    Replaced(StatusCode),
    /// The loop's answer cannot be sent: the stream was reset.
    Reset,
}

impl Stream {
    pub(super) const fn new(carrier: Token, id: u32, body: Body, has_body: bool, ended: bool) -> Self {
        Self {
            carrier,
            id,
            body,
            has_body,
            inbound: Buf::new(),
            open: 0,
            owed: 0,
            is_begun: false,
            is_paused: false,
            peer_ended: ended,
            told: false,
            answer: Answer::Head(Vec::new()),
            unsent: Buf::new(),
            is_awaited: false,
            spent: Buf::new(),
            ends: false,
            has_ended: false,
        }
    }

    /// Bytes that wait for a window.
    pub(super) const fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Takes bytes of the loop's answer. The loop [waits](Self::take_spent) for its buffer from now on.
    pub(super) fn answer(&mut self, mut buf: Buf, conn: &mut Connection, most: usize, out: &mut Buf) -> Output {
        self.is_awaited = true;
        let (mut rest, mut left, mut output) = (buf.filled(), 0, Output::Taken);
        loop {
            match self.answer.read(&mut rest, self.has_body) {
                Step::Head(head) if self.refuses_tunnel(head.status) => {
                    // Any success would open the WebSocket, and the page would be read as its frames.
                    let status = StatusCode::NOT_IMPLEMENTED;
                    conn.respond(self.id, status, &HeaderMap::new(), true, out);
                    (self.answer, self.has_ended) = (Answer::Whole, true);
                    output = Output::Replaced(status);
                }
                Step::Head(head) => {
                    let status = match head.status {
                        // RFC 8441, section 5: any status of success opens the WebSocket.
                        StatusCode::SWITCHING_PROTOCOLS => StatusCode::OK,
                        status => status,
                    };
                    let end = matches!(self.answer, Answer::Whole);
                    conn.answer(self.id, status, end, out, |out| out.put(head.fields.filled()));
                    self.has_ended |= end;
                }
                Step::Part(part) => {
                    self.ends |= matches!(self.answer, Answer::Whole);
                    let unsent = self.part(part, conn, most, out);
                    if rest.is_empty() && self.unsent.is_empty() {
                        left = unsent.len();
                    } else if !unsent.is_empty() {
                        self.unsent.put(unsent);
                    }
                }
                Step::More => break,
                Step::Wrong => {
                    conn.reset(self.id, Code::INTERNAL_ERROR, out);
                    output = Output::Reset;
                    break;
                }
            }
        }
        if left > 0 {
            buf.take(buf.len() - left);
            buf.fit();
            self.unsent = buf;
        } else if self.unsent.is_empty() {
            buf.clear();
            self.spent = buf;
        }
        if output == Output::Reset {
            return output;
        }
        self.ends |= matches!(self.answer, Answer::Whole) && !self.has_ended;
        self.go_on(conn, most, out);
        output
    }

    /// Whether the loop's answer is whole, and opened no WebSocket.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.answer, Answer::Whole)
    }

    /// Whether the loop answers a request for a WebSocket as if it were one for a page.
    fn refuses_tunnel(&self, status: StatusCode) -> bool {
        self.body == Body::Tunnel && status.is_success()
    }

    /// Sends a part of a body, as far as windows and the carrier have room, and returns the rest.
    fn part<'p>(&mut self, part: &'p [u8], conn: &mut Connection, most: usize, out: &mut Buf) -> &'p [u8] {
        if !self.unsent.is_empty() {
            return part;
        }
        let room = most.saturating_sub(out.len()).min(part.len());
        let end = self.ends && room == part.len();
        let sent = conn.data(self.id, &part[..room], end, out);
        self.has_ended |= end && sent == part.len();
        &part[sent..]
    }

    /// Sends bytes that waited, and the end.
    pub(super) fn go_on(&mut self, conn: &mut Connection, most: usize, out: &mut Buf) {
        if self.has_ended || self.unsent.is_empty() && !self.ends {
            return;
        }
        let room = most.saturating_sub(out.len()).min(self.unsent.len());
        let end = self.ends && room == self.unsent.len();
        let sent = conn.data(self.id, &self.unsent.filled()[..room], end, out);
        self.unsent.take(sent);
        if self.unsent.is_empty() {
            if self.unsent.has_memory() {
                self.spent = core::mem::take(&mut self.unsent);
            }
            self.has_ended |= end;
        }
    }

    /// The loop ends its direction. A body that is not whole resets the stream.
    pub(super) fn shut(&mut self, conn: &mut Connection, most: usize, out: &mut Buf) -> Output {
        if !self.answer.may_end() {
            conn.reset(self.id, Code::INTERNAL_ERROR, out);
            return Output::Reset;
        }
        self.ends = true;
        self.go_on(conn, most, out);
        Output::Taken
    }

    /// The loop's buffer, if it waits and all its bytes have left.
    pub(super) fn take_spent(&mut self) -> Option<Buf> {
        if !self.unsent.is_empty() {
            return None;
        }
        let spent = core::mem::take(&mut self.spent);
        core::mem::take(&mut self.is_awaited).then_some(spent)
    }

    /// The code by which the loop's end of the connection ends a stream that is still open.
    pub(super) const fn code(&self, abort: bool) -> Code {
        match () {
            // The loop has refused it: it may come again (RFC 9113, section 8.7).
            () if !self.is_begun => Code::REFUSED_STREAM,
            // The rest of the request is not needed (RFC 9113, section 8.1).
            () if self.has_ended && !abort => Code::NO_ERROR,
            () if matches!(self.body, Body::Tunnel) => Code::CANCEL,
            () => Code::INTERNAL_ERROR,
        }
    }
}
