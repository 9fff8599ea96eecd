use super::context::Context;
use super::event::Event;
use super::output::Phase;
use super::state::Connection;
use crate::http::reply::status_response;
use crate::turn::timer::Tick;
use http::StatusCode;
use std::sync::Arc;
use std::time::Instant;
use tautline_conn::closed::{Cause, Closed, ConnectError, Deadline};
use tautline_conn::due::Due;
use tautline_conn::phase::{Finish, Linger};
use tautline_conn::tick::millis;
use tautline_conn::verdict::Stop;
use tautline_conn::verdict::{End, Notice, Verdict};
use tautline_tls::Session;
use tautline_ws::CloseCode;
use tautline_ws::handshake::{self, HandshakeError};

impl<S: Session> Connection<S> {
    /// Sends a close frame behind all messages. [`Event::Closed`] follows when the peer answers it, or at the deadline.
    ///
    /// A second call does nothing, and so does a call before the connection is open.
    pub fn close(&mut self, code: CloseCode, reason: &str, context: &mut Context, now: Instant) {
        if self.is_open() {
            self.output.close(code, reason, context);
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
        self.output.close_now(code, "", context);
        self.finish(context);
        let mut closed = Closed::new(code, cause);
        closed.reason = reason;
        Event::Closed(Box::new(closed))
    }

    /// The peer has ended the stream.
    pub(super) fn peer_ended(&mut self, context: &mut Context) -> Option<Event> {
        let cause = if self.output.is_plain { Cause::Finished } else { Cause::Truncated };
        self.stop(Stop::Failed(cause), context)
    }

    /// Ends a connection whose input cannot be processed further, and returns the event that says so, once.
    pub(super) fn stop(&mut self, stop: Stop, context: &mut Context) -> Option<Event> {
        if self.output.phase.is_ending() {
            return None;
        }
        let was_open = self.output.phase.is_open();
        let verdict = Verdict::of(&stop, self.output.phase.stage(), self.role);
        let stop = match stop {
            Stop::Failed(cause) => self.output.phase.take_rejection().map_or(Stop::Failed(cause), Stop::Refused),
            stop => stop,
        };
        self.carry_out(verdict, context);
        Some(match stop {
            Stop::Failed(cause) if was_open => Event::Closed(Box::new(Closed::new(CloseCode::ABNORMAL, cause))),
            stop => Event::Failed(Box::new(stop.into())),
        })
    }

    fn carry_out(&mut self, verdict: Verdict, context: &mut Context) {
        match verdict.notice {
            Notice::Close(code, reason) if self.is_open() => self.output.close_now(code, &reason, context),
            Notice::Status(status) => self.write_status(status, context),
            Notice::Close(..) | Notice::Nothing => {}
        }
        match verdict.end {
            End::Finish => self.finish(context),
            End::Abandon => {
                self.output.clear();
                self.over();
            }
            End::Gone | End::Reset => {
                self.output.abort();
                self.over();
            }
        }
    }

    /// The opening handshake was refused, and the response that says so is written.
    pub(super) fn refused(&mut self, error: HandshakeError, context: &mut Context) {
        self.finish(context);
        self.pending = Some(Event::Failed(Box::new(ConnectError::Handshake(Arc::new(error)))));
    }

    fn write_status(&mut self, status: StatusCode, context: &mut Context) {
        let date = context.date();
        let out = self.output.raw(&mut context.pool);
        handshake::write_response(&status_response(status), handshake::Reply::LAST, Some(&date), out);
    }

    /// Ends our direction behind all output.
    fn finish(&mut self, context: &mut Context) {
        self.output.finish(context);
        self.over();
    }

    /// Our direction has its end, which the caller writes behind the output.
    fn over(&mut self) {
        self.output.phase = Phase::Linger(Linger { ours: Finish::Done, peer_finished: self.input.ended });
        self.clock.phase_end = Tick::MAX;
    }
}
