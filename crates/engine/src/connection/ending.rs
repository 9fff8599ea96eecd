use super::context::Context;
use super::event::Event;
use super::output::{Output, Phase};
use super::state::Connection;
use crate::http::reply::status_response;
use crate::turn::timer::Tick;
use std::sync::Arc;
use std::time::Instant;
use tautline_conn::closed::{Cause, Closed, ConnectError, Deadline};
use tautline_conn::due::Due;
use tautline_conn::tick::millis;
use tautline_conn::verdict::{Notice, Stop, Verdict};
use tautline_tls::Session;
use tautline_ws::CloseCode;
use tautline_ws::handshake::{self, HandshakeError};

impl<S: Session> Connection<S> {
    /// Sends a close frame behind all messages. [`Event::Closed`] follows when the peer answers it, or at the deadline.
    ///
    /// A second call does nothing, and so does a call before the connection is open.
    pub fn close(&mut self, code: CloseCode, reason: &str, _: &mut Context, now: Instant) {
        if self.is_open() {
            let Output { out, phase, .. } = &mut self.output;
            out.close(phase, code, reason);
            phase.close_sent();
            self.clock.phase_end = self.clock.tick(now) + millis(self.config.deadlines.close);
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
                self.clock.phase_end = now;
            }
        }
        loop {
            let (at, due) = self.next_due();
            if at > now {
                return;
            }
            match due {
                Due::Ping if self.holds_back() => {
                    self.clock.heard = now;
                    self.send_ping(context);
                }
                Due::Ping => {
                    self.clock.ping_sent = true;
                    // A caller that is late leaves the peer the same time to answer.
                    self.clock.heard += now - at;
                    self.send_ping(context);
                }
                Due::Miss(deadline) => return self.miss(deadline, context),
            }
        }
    }

    fn send_ping(&mut self, context: &mut Context) {
        if let Err(error) = self.output.ping(&[], context) {
            log::debug!("no ping was sent: {error}");
        }
    }

    /// Ends the connection since the peer missed a deadline, which [`next`](Self::next) reports.
    ///
    /// For a caller that keeps a deadline itself.
    pub fn miss(&mut self, deadline: Deadline, context: &mut Context) {
        if let Some(event) = self.stop(Stop::Failed(Cause::Timeout(deadline)), context) {
            self.pending = Some(event);
        }
        if matches!(deadline, Deadline::Send | Deadline::Close) {
            // Its last event may be known already.
            self.output.abort();
        }
    }

    /// When bytes have waited for too long, while the caller writes and does not read.
    #[must_use]
    pub fn send_deadline(&self) -> Option<Instant> {
        self.clock.at(self.clock.stuck? + millis(self.config.deadlines.send))
    }

    /// The connection broke: the caller could not read or write.
    pub fn broken(&mut self, error: std::io::Error, context: &mut Context) {
        if let Some(event) = self.stop(Stop::Failed(Cause::Io(Arc::new(error))), context) {
            self.pending = Some(event);
        }
        self.output.abort();
    }

    fn next_due(&self) -> (Tick, Due) {
        let (at, due) = self.clock.next(&self.output.phase, !self.holds_back(), &self.config.deadlines);
        let is_done = self.is_finished();
        (if is_done { Tick::MAX } else { at }, due)
    }

    /// The peer's close frame arrived: answers it, and ends the connection.
    pub(super) fn peer_closed(&mut self, code: CloseCode, reason: String, context: &mut Context) -> Event {
        let cause = if self.is_open() { Cause::Peer } else { Cause::Local };
        let Output { out, phase, .. } = &mut self.output;
        out.close_now(phase, code, "");
        self.end(Phase::finishing(false), context);
        let mut closed = Closed::new(code, cause);
        closed.reason = reason;
        Event::Closed(Box::new(closed))
    }

    /// The peer has ended the stream.
    pub(super) fn peer_ended(&mut self, context: &mut Context) -> Option<Event> {
        let cause = if self.output.session.is_plain() { Cause::Finished } else { Cause::Truncated };
        self.stop(Stop::Failed(cause), context)
    }

    /// Ends a connection whose input cannot be processed further, and returns the event that says so, once.
    pub(super) fn stop(&mut self, stop: Stop, context: &mut Context) -> Option<Event> {
        let Output { out, phase, .. } = &mut self.output;
        if phase.is_ending() {
            return None;
        }
        let was_open = phase.is_open();
        let verdict = Verdict::of(&stop, phase.stage(), self.role);
        let stop = match stop {
            Stop::Failed(cause) => phase.take_rejection().map_or(Stop::Failed(cause), Stop::Refused),
            stop => stop,
        };
        if let Notice::Status(status) = verdict.notice {
            let date = context.date();
            let response = status_response(status);
            handshake::write_response(&response, handshake::Reply::LAST, Some(&date), out.raw(&mut context.pool));
        }
        let cause = if let Stop::Failed(cause) = &stop { cause } else { &Cause::Local };
        let end = out.begin_end(phase, verdict, cause);
        self.end(end, context);
        Some(match stop {
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
        self.output.phase = end;
        self.clock.phase_end = Tick::MAX;
        if self.output.phase.is_gone() {
            self.output.abort();
        } else {
            self.output.flush(context);
        }
    }
}
