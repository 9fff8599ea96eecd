//! Responses that are made while they are sent.
//!
//! While one is on its way, its connection is in the phase `Streaming`: nothing more is read from the client than one read of
//! the driver. At most one piece waits for the client. The deadline to send ends a connection whose client takes nothing.

use crate::handler::Handler;
use crate::http::content::{Content, ContentSource};
use crate::link::phase::{Phase, Streaming};
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use crate::turn::visit::{BYTES, REQUEST};
use http::{Request, Response, Version};
use log::Level;
use std::io;
use tautline_buf::Buf;
use tautline_conn::closed::Cause;
use tautline_conn::head::framing_of;
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::handshake::{self, Framing};

/// Bytes of one piece. With a head of usual size it fits into a buffer of 64 KiB.
const PIECE: usize = 60 << 10;
/// The least room for a reader.
const ROOM: usize = 1 << 10;
/// Digits of a chunk's size, with the end of their line.
const SIZE_LINE: usize = 7;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Sends the next pieces of a response, as many as the driver takes.
    pub(crate) fn stream(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        while let Phase::Streaming(streaming) = &mut link.phase {
            if !link.wire.is_flushed() || !link.out.is_empty() {
                // The driver reports when the client has taken the bytes.
                return;
            }
            if self.shared.visit.is_over(&self.shared.clock) {
                return self.shared.rest(link);
            }
            let (plain, most) = (link.session.is_plain().then_some(link.token), self.shared.visit.left() as u64);
            let sent = plain.map_or(0, |token| streaming.send_file(driver, token, most));
            self.shared.visit.spend(usize::try_from(sent).unwrap_or(BYTES));
            self.shared.counters.bytes_out.add(sent);
            let out = link.out.raw(&mut self.shared.pool);
            match streaming.put_piece(out) {
                Ok(is_last) => {
                    if is_last && let Phase::Streaming(streaming) = std::mem::replace(&mut link.phase, Phase::Tls) {
                        let Streaming { head, keep_alive, peer_finished, rest, .. } = *streaming;
                        link.phase = Phase::Request(head);
                        if keep_alive && !peer_finished && self.shared.drain_end.is_none() {
                            // Another request may follow.
                            self.admission.keep_for_http(link, &self.shared);
                            self.schedule(link);
                            link.keep_plain(rest, &mut self.shared.pool);
                        } else {
                            self.end(link, Phase::finishing(peer_finished), Cause::Local);
                        }
                    }
                    link.flush(driver, &mut self.shared);
                }
                Err(error) => {
                    let line = format_args!("a response was cut off, since its content failed: {error}");
                    self.shared.log_peer(Level::Error, &link.info.peer, line);
                    return self.end(link, Phase::Gone { reset: true }, Cause::Local);
                }
            }
        }
    }
}

impl<S, T> Link<S, T> {
    /// Begins to answer a request with content that is made while it is sent.
    pub(crate) fn begin_stream(&mut self, request: &Request<()>, response: Response<Content>, shared: &mut Shared) {
        let framing = match response.body().len {
            Some(len) => Framing::Length(len),
            None if request.version() == Version::HTTP_11 => Framing::Chunked,
            None => Framing::UntilEnd,
        };
        let (reply, date) = (shared.framing_of(self, request), shared.date());
        let out = self.out.raw(&mut shared.pool);
        let (has_body, keep_alive) = handshake::write_response_head(&response, framing, reply, Some(&date), out);
        let Content { source, len } = response.into_body();
        shared.visit.spend(REQUEST);
        let Phase::Request(head) = std::mem::replace(&mut self.phase, Phase::Tls) else { return };
        self.phase = Phase::Streaming(Box::new(Streaming {
            head,
            source,
            left: if has_body { len.unwrap_or(u64::MAX) } else { 0 },
            chunked: has_body && framing == Framing::Chunked,
            is_measured: len.is_some(),
            keep_alive,
            peer_finished: false,
            rest: Buf::new(),
        }));
    }
}

impl Shared {
    /// The framing of the response to a request.
    pub(crate) fn framing_of<S, T>(&self, link: &Link<S, T>, request: &Request<()>) -> handshake::Reply {
        // This answer is the last if too many bytes of earlier answers wait.
        let has_room = link.out.buffered(&link.wire) <= self.config.limits.pause_receive_above;
        framing_of(request, has_room && self.drain_end.is_none())
    }
}

impl Streaming {
    /// Has the kernel send a part of a file, if there is more than a piece of it. Returns its bytes.
    fn send_file(&mut self, driver: &dyn Driver, token: Token, most: u64) -> u64 {
        let ContentSource::File(part) = &mut self.source else { return 0 };
        // The last piece goes the way of other bytes, on which the driver notices when the client takes no more.
        let most = most.min(self.left.saturating_sub(PIECE as u64));
        if most == 0 {
            return 0;
        }
        let sent = driver.direct(token).map_or(0, |socket| socket.send_file(&part.file, &mut part.at, most));
        self.left -= sent;
        sent
    }

    /// Appends the next piece. Returns whether it was the last one.
    fn put_piece(&mut self, out: &mut Buf) -> io::Result<bool> {
        let mut read = 0;
        if self.left > 0 {
            let most = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
            let start = if self.chunked { SIZE_LINE } else { 0 };
            let least = if self.is_measured { 1 } else { ROOM };
            // Short reads are gathered, since each piece becomes a record of its own.
            let room = &mut out.reserve(start + PIECE)[start..start + most];
            while most - read >= least {
                match self.source.read(&mut room[read..])? {
                    0 => break,
                    more => read += more.min(most - read),
                }
            }
            if read < most && self.is_measured {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.is_measured {
                self.left -= read as u64;
                if self.left == 0 {
                    self.source.check_version()?;
                }
            }
            if self.chunked && read > 0 {
                let line = format!("{read:05x}\r\n");
                out.reserve(SIZE_LINE)[..SIZE_LINE].copy_from_slice(line.as_bytes());
                out.commit(SIZE_LINE + read);
                out.put(b"\r\n");
            } else {
                out.commit(read);
            }
        }
        let is_last = self.left == 0 || !self.is_measured && read == 0;
        if is_last && self.chunked {
            out.put(b"0\r\n\r\n");
        }
        Ok(is_last)
    }
}
