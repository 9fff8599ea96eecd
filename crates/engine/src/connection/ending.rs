use super::context::Context;
use super::event::Event;
use super::state::{Connection, Stage};
use super::times::Due;
use crate::closed::{Cause, Closed, ConnectError, Deadline};
use crate::link::Stop;
use http::StatusCode;
use std::sync::Arc;
use std::time::Instant;
use tautline_tls::Session;
use tautline_ws::handshake::{self, HandshakeError};
use tautline_ws::{CloseCode, Role};

impl<S: Session> Connection<S> {
    /// Sends a close frame behind all messages. [`Event::Closed`] follows when the peer answers it, or at the deadline.
    ///
    /// A second call does nothing, and so does a call before the connection is open.
    pub fn close(&mut self, code: CloseCode, reason: &str, context: &mut Context, now: Instant) {
        if self.is_open() {
            self.output.close(Some((code, reason)), context);
            self.stage = Stage::Closing;
            self.times.stage_end = now.checked_add(self.config.deadlines.close).map(|end| (end, Deadline::Close));
        }
    }

    /// When [`on_time`](Self::on_time) is to be called at the latest; `None` if no deadline runs.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_due().map(|(at, _)| at)
    }

    /// Acts on deadlines that have passed: sends a ping, or ends the connection, which [`next`](Self::next) reports.
    ///
    /// Read what the peer has sent before this call, so that a program that was late does not blame its peer.
    pub fn on_time(&mut self, now: Instant, context: &mut Context) {
        if self.times.held_back && !self.holds_back() {
            self.times.restart(now);
        }
        while let Some((_, due)) = self.next_due().filter(|(at, _)| *at <= now) {
            match due {
                Due::Ping => {
                    self.times.ping_sent = true;
                    // A caller that is late leaves the peer the same time to answer.
                    let ping = self.config.deadlines.ping.unwrap_or_default();
                    self.times.heard = now.checked_sub(ping).unwrap_or(now).max(self.times.heard);
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
        if let Some(event) = self.stop(Stop::Failed(Cause::Timeout(deadline)), context) {
            self.pending = Some(event);
        }
        if matches!(deadline, Deadline::Send | Deadline::Close) {
            self.output.abort();
        }
    }

    /// When bytes have waited for too long, while the caller writes and does not read.
    #[must_use]
    pub fn send_deadline(&self) -> Option<Instant> {
        self.times.stuck.and_then(|since| since.checked_add(self.config.deadlines.send))
    }

    /// The connection broke: the caller could not read or write.
    pub fn broken(&mut self, error: std::io::Error, context: &mut Context) {
        if let Some(event) = self.stop(Stop::Failed(Cause::Io(Arc::new(error))), context) {
            self.pending = Some(event);
        }
        self.output.abort();
        self.finishing = true;
    }

    fn next_due(&self) -> Option<(Instant, Due)> {
        let is_over = matches!(self.stage, Stage::Over);
        self.times
            .next(self.is_open() && !self.holds_back(), &self.config.deadlines)
            .filter(|_| !is_over || self.has_output())
    }

    /// The peer's close frame arrived: answers it, and ends the connection.
    pub(super) fn peer_closed(&mut self, code: CloseCode, reason: String, context: &mut Context) -> Event {
        let cause = if self.is_open() { Cause::Peer } else { Cause::Local };
        self.output.close(Some((code, "")), context);
        self.finish(context);
        Event::Closed(Box::new(Closed { code, reason, cause }))
    }

    /// The peer has ended the stream.
    pub(super) fn peer_ended(&mut self, context: &mut Context) -> Option<Event> {
        let cause = if self.output.is_plain { Cause::Finished } else { Cause::Truncated };
        self.stop(Stop::Failed(cause), context)
    }

    /// Ends a connection whose input cannot be processed further, and returns the event that says so, once.
    pub(super) fn stop(&mut self, stop: Stop, context: &mut Context) -> Option<Event> {
        let was_open = matches!(self.stage, Stage::Open | Stage::Closing);
        if matches!(self.stage, Stage::Over) {
            return None;
        }
        let rejection = match (&mut self.stage, &stop) {
            (Stage::Answer(answer), Stop::Failed(_)) => answer.dialing.opening.take_rejection(),
            _ => None,
        };
        self.tell_peer(&stop, context);
        if let Some(error) = rejection {
            return Some(Event::Failed(Box::new(ConnectError::Handshake(Arc::new(error)))));
        }
        Some(match stop {
            Stop::Failed(cause) if was_open => Event::Closed(Box::new(Closed::new(CloseCode::ABNORMAL, cause))),
            Stop::Failed(cause) => Event::Failed(Box::new(ConnectError::Ended(cause))),
            Stop::Refused(error) => Event::Failed(Box::new(ConnectError::Handshake(Arc::new(error)))),
            Stop::Proxy(error) => Event::Failed(Box::new(ConnectError::Proxy(error))),
        })
    }

    fn tell_peer(&mut self, stop: &Stop, context: &mut Context) {
        match stop {
            // The session has appended its alert, and can seal nothing more.
            Stop::Failed(Cause::Tls(_)) => {
                self.output.clear();
                self.over();
                return;
            }
            Stop::Failed(Cause::WebSocket(error)) if self.is_open() => {
                self.output.close(Some((error.close_code(), &error.to_string())), context);
            }
            Stop::Failed(Cause::Timeout(Deadline::Idle)) if self.is_open() => {
                self.output.close(Some((CloseCode::GOING_AWAY, "idle for too long")), context);
            }
            Stop::Failed(Cause::Timeout(_)) if matches!(&self.stage, Stage::Request(head) if !head.bytes.is_empty()) => {
                self.write_status(StatusCode::REQUEST_TIMEOUT, context);
            }
            Stop::Refused(error) if self.role == Role::Server => {
                self.write_status(error.status().unwrap_or(StatusCode::BAD_REQUEST), context);
            }
            _ => {}
        }
        // close_notify needs keys.
        if matches!(self.stage, Stage::Tls(_) | Stage::Tunnel(..)) {
            self.over();
        } else {
            self.finish(context);
        }
    }

    /// The opening handshake was refused, and the response that says so is written.
    pub(super) fn refused(&mut self, error: HandshakeError, context: &mut Context) {
        self.finish(context);
        self.pending = Some(Event::Failed(Box::new(ConnectError::Handshake(Arc::new(error)))));
    }

    fn write_status(&mut self, status: StatusCode, context: &mut Context) {
        if let crate::Reply::Respond(response) = crate::Reply::<()>::status(status) {
            handshake::write_response(&response, handshake::Reply::LAST, self.output.raw(&mut context.pool));
        }
    }

    /// Ends our direction behind all output.
    fn finish(&mut self, context: &mut Context) {
        self.output.finish(&mut context.pool);
        self.over();
    }

    fn over(&mut self) {
        self.stage = Stage::Over;
        self.times.stage_end = None;
        self.finishing = true;
    }
}
