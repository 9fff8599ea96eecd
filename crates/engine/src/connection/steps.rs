use super::context::Context;
use super::event::{Event, Opened, Unsent};
use super::state::{Connection, Output, Phase};
use crate::config::Config;
use http::HeaderMap;
use std::sync::Arc;
use std::time::Instant;
use tautline_conn::closed::{Cause, Closed, ConnectError, Deadline};
use tautline_conn::due::{Due, Times};
use tautline_conn::frames;
use tautline_conn::head::framing_of;
use tautline_conn::tick::{Tick, millis};
use tautline_conn::upgrade::{Flaw, accept, refuse};
use tautline_conn::verdict::Stop;
use tautline_tls::Session;
use tautline_ws::CloseCode;
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::handshake::{self, HandshakeError, Negotiated};

impl<S: Session> Connection<S> {
    /// Sends a close frame behind all messages. [`Event::Closed`] follows when the peer answers it, or at the deadline.
    ///
    /// A second call does nothing, and so does a call before the connection is open.
    pub fn close(&mut self, code: CloseCode, reason: &str, _: &mut Context, now: Instant) {
        if self.is_open() {
            self.output.close(code, reason);
            self.clock.times.phase_end = self.clock.tick(now) + millis(self.config.deadlines.close);
        }
    }

    /// When [`on_time`](Self::on_time) is to be called at the latest; `None` if no deadline runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.clock.at(self.next_due().0)
    }

    /// Acts on deadlines that have passed: sends a ping, or ends the connection, which [`next`](Self::next) reports.
    ///
    /// Read what the peer has sent before this call, so that a program that was late does not blame its peer.
    pub fn on_time(&mut self, now: Instant, context: &mut Context) {
        let now = self.clock.tick(now);
        if self.clock.held_back && !self.holds_back() {
            self.clock.restart(now);
            if self.is_open() {
                self.clock.times.phase_end = now;
            }
        }
        loop {
            self.clock.times.reads = !self.holds_back();
            let (at, due) = self.next_due();
            if at > now {
                return;
            }
            match due {
                Due::Ping => {
                    self.clock.times.pinged(at, now);
                    if let Err(error) = self.output.ping(&[], context) {
                        log::debug!("no ping was sent: {error}");
                    }
                }
                Due::Miss(deadline) => return self.miss(deadline, context),
            }
        }
    }

    /// Ends the connection since the peer missed a deadline, which [`next`](Self::next) reports.
    ///
    /// For a caller that keeps a deadline itself.
    pub fn miss(&mut self, deadline: Deadline, context: &mut Context) {
        self.stop(Stop::Failed(Cause::Timeout(deadline)), context);
        if matches!(deadline, Deadline::Send | Deadline::Close) {
            // Its last event may be known already.
            self.output.abort();
        }
    }

    /// When bytes have waited for too long, while the caller writes and does not read.
    #[must_use]
    pub fn send_deadline(&self) -> Option<Instant> {
        self.clock.at(self.clock.times.stuck_since? + millis(self.config.deadlines.send))
    }

    /// The connection broke: the caller could not read or write.
    pub fn broken(&mut self, error: std::io::Error, context: &mut Context) {
        self.stop(Stop::Failed(Cause::Io(Arc::new(error))), context);
        self.output.abort();
    }

    fn next_due(&self) -> (Tick, Due) {
        let times = Times { reads: !self.holds_back(), ..self.clock.times };
        let (at, due) = times.next(&self.output.phase, &self.config.deadlines);
        (if self.is_finished() { Tick::MAX } else { at }, due)
    }

    /// The peer's close frame arrived: answers it, and ends the connection.
    pub(super) fn peer_closed(&mut self, code: CloseCode, reason: String, context: &mut Context) {
        let cause = if self.is_open() { Cause::Peer } else { Cause::Local };
        let Output { out, phase, .. } = &mut self.output;
        out.close_now(phase, code, "");
        self.end(Phase::finishing(false), context);
        let mut closed = Closed::new(code, cause);
        closed.reason = reason;
        self.pending = Some(Event::Closed(Box::new(closed)));
    }

    /// Ends a connection whose input cannot be processed further. [`next`](Self::next) reports it once.
    pub(super) fn stop(&mut self, stop: Stop, context: &mut Context) {
        let Output { out, phase, .. } = &mut self.output;
        if phase.is_ending() {
            return;
        }
        let (was_open, date) = (phase.is_open(), context.date());
        let (end, stop) = out.stop(phase, stop, &date, &mut context.pool);
        self.end(end, context);
        self.pending = Some(match stop {
            Stop::Failed(cause) if was_open => Event::Closed(Box::new(Closed::new(CloseCode::ABNORMAL, cause))),
            stop => Event::Failed(Box::new(stop.into())),
        })
    }

    /// The opening handshake was refused, and the response that says so is written.
    pub(super) fn refused(&mut self, error: HandshakeError, context: &mut Context) {
        self.end(Phase::finishing(false), context);
        self.pending = Some(Event::Failed(Box::new(ConnectError::Handshake(Arc::new(error)))));
    }

    /// Ends our direction behind all output, or drops it.
    fn end(&mut self, end: Phase, context: &mut Context) {
        self.output.end(end, context);
        self.clock.times.phase_end = Tick::MAX;
    }
}

/// Answers to requests, and the beginning of messages.
impl<S: Session> Connection<S> {
    /// Accepts the WebSocket that the [request](Self::request) asks for, with further headers in the response (server).
    ///
    /// If the request breaks a rule, or if [`Config::upgrade`](Config) forbids it, it is refused by a response that says
    /// why. [`next`](Self::next) reports either.
    ///
    /// # Errors
    /// [`Unsent::Invalid`] if no request waits for an answer.
    pub fn upgrade(&mut self, headers: HeaderMap, context: &mut Context, now: Instant) -> Result<(), Unsent> {
        let request = self.take_request()?;
        match accept(&request, &self.config.upgrade, headers, None, self.output.out.raw(&mut context.pool)) {
            Ok(negotiated) => {
                // An application that was slow to answer leaves its peer the usual time.
                self.clock.restart(self.clock.tick(now));
                let opened = Opened { request: Some(request), ..self.enter(negotiated) };
                self.pending = Some(Event::Open(Box::new(opened)));
            }
            Err(flaw) => {
                if let Flaw::Request(refused) = flaw {
                    let date = context.date();
                    refuse(&request, &refused, &date, self.output.out.raw(&mut context.pool));
                }
                self.refused(HandshakeError::Malformed("the request is no valid upgrade"), context);
            }
        }
        Ok(())
    }

    /// Answers the [request](Self::request) as plain HTTP (server).
    ///
    /// Another request may follow on the connection, within [`Deadlines::http`](crate::Deadlines). Otherwise the connection
    /// ends.
    ///
    /// # Errors
    /// [`Unsent::Invalid`] if no request waits for an answer.
    pub fn respond<B: AsRef<[u8]>>(
        &mut self,
        response: &http::Response<B>,
        context: &mut Context,
        now: Instant,
    ) -> Result<(), Unsent> {
        let request = self.take_request()?;
        // This answer is the last if too many bytes of earlier answers wait.
        let reply = framing_of(&request, self.output.len() <= self.config.limits.pause_receive_above);
        if handshake::write_response(response, reply, Some(&context.date()), self.output.out.raw(&mut context.pool)) {
            let next = self.output.phase.await_next(self.clock.tick(now), &self.config.deadlines);
            self.clock.times.phase_end = next.map_or(Tick::MAX, |(end, _)| end);
        } else {
            self.refused(HandshakeError::Malformed("the request was answered as plain HTTP"), context);
        }
        Ok(())
    }

    fn take_request(&mut self) -> Result<http::Request<()>, Unsent> {
        let (request, _) = self.output.phase.take_waiting().ok_or(Unsent::Invalid("no request waits for an answer"))?;
        Ok(request)
    }

    /// Opens the connection. Returns what is known of it.
    pub(super) fn enter(&mut self, negotiated: Negotiated) -> Opened {
        let deflate = negotiated.deflate.zip(self.deflate);
        self.open_with(deflate);
        let (subprotocol, tls) = (negotiated.subprotocol, self.tls_info());
        Opened { subprotocol, deflate: deflate.is_some(), tls, ..Opened::default() }
    }

    /// Opens the connection with this compression.
    pub(super) fn open_with(&mut self, deflate: Option<(DeflateParams, DeflateConfig)>) {
        let Config { limits, streaming, .. } = &*self.config;
        frames::open(&mut self.input.decoder, &mut self.output.out, deflate.as_ref(), limits.max_message, *streaming);
        self.output.phase = Phase::Open;
        self.clock.times.phase_end = self.clock.times.heard;
    }
}
