//! How connections end: failures, deadlines and draining.

use crate::accept::limits::Limit;
use crate::handler::Handler;
use crate::ids::ConnId;
use crate::link::phase::{Finish, Linger, Phase};
use crate::link::state::Link;
use crate::raw::event::RawEvent;
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use http::StatusCode;
use log::Level;
use tautline_conn::closed::{Cause, Closed, ConnectError, Deadline};
use tautline_conn::due::Due;
use tautline_conn::tick::millis;
use tautline_conn::verdict::Stop;
use tautline_conn::verdict::{Notice, Stage, Verdict, write_status};
use tautline_io::Driver;
use tautline_tls::{Engine, Session};
use tautline_ws::CloseCode;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Ends a connection whose input cannot be processed further.
    pub(crate) fn stop(&mut self, link: &mut Link<E::Session, H::State>, stop: Stop) {
        match stop {
            Stop::Failed(cause) => self.fail(link, cause),
            Stop::Refused(error) if link.info.dial.is_none() => {
                let limit = Limit::of_head(&error, &self.shared.counters);
                self.shared.log_peer(Level::Info, &link.info.peer, format_args!("{error}{limit}"));
                self.refuse_with(link, error.status().unwrap_or(StatusCode::BAD_REQUEST));
            }
            Stop::Header(error) => {
                self.shared.counters.handshakes_failed.add(1);
                self.shared.counters.proxy_headers_refused.add(1);
                self.shared.log_peer(Level::Warn, &link.info.peer, format_args!("refused: it sent {error}"));
                self.end(link, Phase::Gone { reset: true }, Cause::Finished);
            }
            Stop::Refused(_) | Stop::Proxy(_) => self.dial_failed(link, Phase::GONE, stop.into()),
        }
    }

    /// Ends a failed connection: reports the failure to the handler, and to the peer if possible.
    pub(crate) fn fail(&mut self, link: &mut Link<E::Session, H::State>, cause: Cause) {
        let verdict = Verdict::of_failure(link.phase.stage(), &cause);
        let is_failure = self.shared.note_failure(link, &cause);
        if link.phase.is_handshaking()
            && let Notice::Status(status) = verdict.notice
        {
            return self.refuse_with(link, status);
        }
        let end = link.begin_end(verdict, &cause);
        if is_failure && link.info.dial.is_some() {
            let stop = link.phase.take_rejection().map_or(Stop::Failed(cause), Stop::Refused);
            return self.dial_failed(link, end, stop.into());
        }
        self.shared.counters.handshakes_failed.add(u64::from(is_failure));
        self.end(link, end, cause);
    }

    /// The peer ended its direction (`true` after close_notify), or the connection broke for a cause.
    pub(crate) fn peer_ended(&mut self, link: &mut Link<E::Session, H::State>, end: Result<bool, Cause>) {
        match end {
            Err(cause) => {
                if link.phase.is_handshaking() || link.phase.is_open() || link.phase.is_raw() {
                    self.fail(link, cause);
                }
                self.end(link, Phase::GONE, Cause::Finished);
            }
            Ok(_) if matches!(link.phase, Phase::Linger(_)) => link.phase.peer_finished(),
            Ok(whole) if link.phase.is_raw() => self.raw_finished(None, link, whole || link.session.is_plain()),
            // The client sends no further request, and still reads this response.
            Ok(_) if let Phase::Streaming(streaming) = &mut link.phase => streaming.peer_finished = true,
            // After close_notify nothing is missing. Without TLS a truncation cannot be detected.
            Ok(whole) if whole || link.session.is_plain() => self.fail(link, Cause::Finished),
            Ok(_) => self.fail(link, Cause::Truncated),
        }
    }

    /// Moves a connection to its end, and reports that to the handler once, if the connection was open.
    pub(crate) fn end(&mut self, link: &mut Link<E::Session, H::State>, end: Phase, cause: Cause) {
        let before = link.phase.end(end);
        if matches!(before, Phase::Streaming(_)) {
            self.access.note_cut(link, &self.shared);
        }
        if before.is_handshaking() {
            self.admission.end_handshake(link, &before, &self.shared);
        }
        if let Phase::Offloaded(Some(number)) = before {
            self.offloading.withdraw(number, &mut self.shared.pool);
        }
        if matches!(link.phase, Phase::Linger(_)) && !matches!(before, Phase::Linger(_)) {
            link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
            self.schedule(link);
        }
        if before.is_open() {
            self.report_closed(link, cause);
        } else if let Phase::Raw(raw) = before {
            self.report_raw_closed(link, &raw, cause);
        }
    }

    fn report_closed(&mut self, link: &mut Link<E::Session, H::State>, cause: Cause) {
        self.note_begun(link);
        self.shared.counters.open.sub(1);
        self.shared.unsubscribe_all(link);
        let peer_close = link.cold.as_mut().and_then(|cold| cold.peer_close.take());
        let (code, reason) = peer_close.map_or((CloseCode::ABNORMAL, String::new()), |close| *close);
        let by_us = matches!(cause, Cause::Local | Cause::Stopped) && !link.reconnects();
        let is_silent = matches!(cause, Cause::Timeout(Deadline::Silence));
        let of_target = self.dialer.target(link.info.dial).and_then(|target| target.silence);
        let silence = of_target.or(self.shared.config.deadlines.silence).filter(|_| is_silent).unwrap_or_default();
        if let Some(handle) = link.cold.as_mut().and_then(|cold| cold.more.as_mut()?.handle.take()) {
            handle.end();
        }
        self.shared.remote.live_outcomes().count_end(code, &cause);
        if matches!(cause, Cause::Peer | Cause::Local | Cause::Stopped) {
            // Other causes are logged as failures.
            self.shared.log_peer(Level::Info, &link.info.peer, format_args!("{cause} ({})", code.get()));
        }
        let mut closed = Closed::new(code, cause);
        closed.reason = reason;
        self.access.note_closed(link, &closed, &self.shared);
        let told = closed.retry_after();
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.application.guard(&mut self.shared, format_args!("the end of connection {id}"), |handler, shared| {
            link.lend(None, shared, &mut self.links, |conn| handler.on_close(conn, &closed));
        });
        // The handler may have subscribed again in `on_close`. It has nothing for this connection from now on.
        self.shared.unsubscribe_all(link);
        self.shared.forget_application(link);
        if let Some(dial) = link.info.dial
            && self.dialer.lost(dial, by_us, silence, told, &mut self.shared)
        {
            self.application.end_dial(&mut self.shared, dial);
        }
    }

    pub(crate) fn miss_deadline(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        let now = self.shared.now;
        let (at, due) = self.dialer.next_deadline(link, &self.shared.config.deadlines);
        if at <= now {
            match due {
                Due::Ping => {
                    let mut times = link.times();
                    times.pinged(at, now);
                    (link.clock.heard, link.ping_sent) = (times.heard, times.ping_sent);
                    // An empty ping cannot be too long.
                    let _ = link.out.ping(&[], &link.wire, self.shared.means());
                }
                Due::Miss(Deadline::Send) if link.wire.progresses(driver.unsent(link.token), now) => {}
                Due::Miss(deadline @ (Deadline::Close | Deadline::Send)) => {
                    self.fail(link, Cause::Timeout(deadline));
                    self.end(link, Phase::GONE, Cause::Timeout(deadline));
                }
                Due::Miss(deadline) => self.fail(link, Cause::Timeout(deadline)),
            }
        }
        if !link.phase.is_gone() {
            self.schedule(link);
        }
    }

    pub(crate) fn drain_link(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        code: CloseCode,
        reason: &str,
    ) {
        match &link.phase {
            Phase::Open => link.close(code, reason),
            // A client that has sent a part of a request gets 503 for it.
            Phase::Request(head) if head.has_begun() => {}
            Phase::Waiting(_) => self.refuse_with(link, StatusCode::SERVICE_UNAVAILABLE),
            Phase::Overrun | Phase::CloseQueued | Phase::CloseSent | Phase::Linger(_) | Phase::Gone { .. } => {}
            // It ends with its response, at the latest when the drain does.
            Phase::Streaming(_) => {}
            Phase::Raw(_) => self.report_raw(Some(driver), link, RawEvent::Drain),
            Phase::Request(_) if link.wire.is_in_flight() => {
                self.end(link, Phase::finishing(false), Cause::Stopped);
            }
            _ if link.info.dial.is_some() => {
                self.dial_failed(link, Phase::GONE, ConnectError::Ended(Cause::Stopped));
            }
            _ => self.end(link, Phase::GONE, Cause::Stopped),
        }
    }

    /// Answers with `status`, and ends the connection.
    pub(crate) fn refuse_with(&mut self, link: &mut Link<E::Session, H::State>, status: StatusCode) {
        self.shared.counters.handshakes_failed.add(1);
        let date = self.shared.date();
        self.access.note_answer(link, status, &self.shared);
        write_status(status, &date, link.out.raw(&mut self.shared.pool));
        self.end(link, Phase::finishing(false), Cause::Local);
    }

    /// A connection failed before it was open. Moves it to the phase `end`, and fails its dial.
    pub(crate) fn dial_failed(&mut self, link: &mut Link<E::Session, H::State>, end: Phase, error: ConnectError) {
        self.shared.counters.handshakes_failed.add(1);
        self.end(link, end, Cause::Local);
        if let Some(id) = link.info.dial {
            self.dialer.fail(id, error, &mut self.application, &mut self.links, &mut self.shared);
        }
    }
}

impl Shared {
    /// Logs the failure of a connection. Returns whether it is one of a handshake.
    fn note_failure<S, T>(&mut self, link: &Link<S, T>, cause: &Cause) -> bool {
        let limit = Limit::met(cause, &link.phase, &self.counters);
        let (level, what, is_failure) = match (link.phase.stage(), cause) {
            _ if link.phase.is_open() => (Level::Info, "", false),
            _ if !link.phase.is_handshaking() => return false,
            (Stage::Streaming, _) => (Level::Debug, "a response was cut off: ", false),
            // The end of a connection between two requests is no failure.
            (Stage::Request { begun: false, answered: true }, cause)
                if !matches!(cause, Cause::Tls(_) | Cause::Panicked) =>
            {
                (Level::Debug, "", false)
            }
            _ if matches!(link.phase, Phase::ProxyHeader) => {
                self.counters.proxy_headers_refused.add(1);
                (Level::Warn, "no whole header of the PROXY protocol came: ", true)
            }
            _ => (Level::Info, "handshake failed: ", true),
        };
        self.log_peer(level, &link.info.peer, format_args!("{what}{cause:#}{limit}"));
        is_failure
    }
}

impl<S, T> Link<S, T> {
    /// Answers the peer's close frame. The WebSocket connection is then closed (RFC 6455, section 7.1.4). Returns its phase, and
    /// who closed it.
    pub(crate) fn answer_close(&mut self, code: CloseCode, reason: String) -> (Phase, Cause) {
        let cause = if self.phase.takes_messages() { Cause::Peer } else { Cause::Local };
        self.cold.get_or_insert_default().peer_close = Some(Box::new((code, reason)));
        self.close_now(code, "");
        // The server closes the TCP connection first, and a client waits for that (section 7.1.1).
        let ours = if self.info.dial.is_none() { Finish::Wanted } else { Finish::AfterPeer };
        (Phase::Linger(Linger { ours, peer_finished: false }), cause)
    }
}
