//! How connections end: failures, deadlines, draining, and giving everything back.

use crate::closed::{Cause, Closed, ConnectError, Deadline};
use crate::handler::Handler;
use crate::link::{Due, Link, Phase, Stop, millis};
use crate::probe::Probe;
use crate::shard::{Core, Slot};
use http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tautline_io::{Driver, End, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::CloseCode;

/// A handler that sends from `on_drain` is asked so often in one turn, then in the next.
const MAX_DRAINS: usize = 16;

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Input cannot go on.
    pub(crate) fn stop(&mut self, link: &mut Link<E::Session, H::State>, stop: Stop) {
        match stop {
            Stop::Failed(cause) => self.fail(link, cause),
            Stop::Refused(error) => self.dial_failed(link, ConnectError::Handshake(Arc::new(error))),
            Stop::Proxy(error) => self.dial_failed(link, ConnectError::Proxy(error)),
        }
    }

    /// Tells the peer as far as that is possible, tells the handler, and ends the connection.
    pub(crate) fn fail(&mut self, link: &mut Link<E::Session, H::State>, cause: Cause) {
        if let Phase::Request(head) = &link.phase
            && head.answered
            && head.bytes.is_empty()
            && !matches!(cause, Cause::Tls(_))
        {
            // Between two requests a connection may end, once the answers are gone.
            log::debug!("{}: {cause}", link.info.peer);
            link.out.finish();
            self.linger(link);
            return;
        }
        if link.is_handshaking() {
            log::info!("{}: handshake failed: {cause}", link.info.peer);
            if link.info.dial.is_some() {
                let told = matches!(cause, Cause::Tls(_));
                self.dial_failed(link, ConnectError::Ended(cause));
                if told {
                    link.gone = false;
                    link.out.abandon();
                    self.linger(link);
                }
                return;
            }
            match (&link.phase, &cause) {
                // Browsers open connections ahead of need, and take an answer to nothing for that to their next request.
                (Phase::Request(head), Cause::Timeout(_)) if !head.bytes.is_empty() => {
                    self.refuse_with(link, StatusCode::REQUEST_TIMEOUT);
                }
                (_, Cause::Tls(_)) => {
                    self.shared.counters.handshakes_failed += 1;
                    link.out.abandon();
                    self.linger(link);
                }
                // Earlier requests may have answers on their way.
                (Phase::Request(_), Cause::Finished | Cause::Truncated | Cause::Timeout(_)) => {
                    self.shared.counters.handshakes_failed += 1;
                    link.out.finish();
                    self.linger(link);
                }
                _ => {
                    self.shared.counters.handshakes_failed += 1;
                    link.gone = true;
                }
            }
            return;
        }
        if link.reported {
            log::info!("{}: {cause}", link.info.peer);
        }
        match &cause {
            Cause::WebSocket(error) => {
                link.out.close_now(error.close_code(), &error.to_string());
                link.out.finish();
            }
            Cause::SlowConsumer => {
                link.out.close_now(CloseCode::POLICY, "too slow a reader");
                link.out.finish();
            }
            Cause::Timeout(Deadline::Idle) => {
                link.out.close_now(CloseCode::GOING_AWAY, "idle for too long");
                link.out.finish();
            }
            Cause::Finished | Cause::Truncated => link.out.finish(),
            Cause::Tls(_) => link.out.abandon(),
            _ => link.gone = true,
        }
        self.report(link, cause);
        if !link.gone && !matches!(link.phase, Phase::Linger) {
            self.linger(link);
        }
    }

    /// No more bytes come from the peer.
    pub(crate) fn peer_ended(&mut self, link: &mut Link<E::Session, H::State>, end: End) {
        match (end, &link.phase) {
            (End::Failed(error), _) => {
                if link.is_handshaking() || link.reported {
                    self.fail(link, Cause::Io(Arc::new(error)));
                }
                link.gone = true;
            }
            (End::Finished, Phase::Linger) => {
                link.peer_finished = true;
                link.out.finish();
            }
            (End::Finished, _) => {
                // Behind close_notify the end is a whole one; without TLS there is no telling.
                let whole = E::Session::PASSTHROUGH || link.peer_finished;
                let cause = if whole { Cause::Finished } else { Cause::Truncated };
                link.peer_finished = true;
                self.fail(link, cause);
            }
        }
    }

    /// Tells the handler, once, that an open connection ended.
    pub(crate) fn report(&mut self, link: &mut Link<E::Session, H::State>, cause: Cause) {
        if !link.reported {
            return;
        }
        link.reported = false;
        self.shared.counters.open -= 1;
        self.unsubscribe_all(link);
        let peer_close = link.rare.as_mut().and_then(|rare| rare.peer_close.take());
        let (code, reason) = peer_close.unwrap_or((CloseCode::ABNORMAL, String::new()));
        let by_us = matches!(cause, Cause::Local | Cause::Stopped);
        let closed = Closed { code, reason, cause };
        link.out.refuse();
        link.lend_ended(&mut self.shared, |conn| self.handler.on_close(conn, &closed));
        // What the handler subscribed to in there.
        self.unsubscribe_all(link);
        if let Some(dial) = link.info.dial {
            self.dial_lost(dial, by_us);
        }
    }

    fn unsubscribe_all(&mut self, link: &mut Link<E::Session, H::State>) {
        let Some(rare) = &mut link.rare else { return };
        for topic in std::mem::take(&mut rare.subscriptions) {
            self.shared.topics.unsubscribe(&topic, link.token);
        }
    }

    pub(crate) fn leave_handshake(&mut self, link: &Link<E::Session, H::State>) {
        if link.is_handshaking() {
            self.shared.counters.handshaking -= 1;
        }
    }

    /// Sends what a connection has to say, and puts it back or lets it go.
    pub(crate) fn settle<D: Driver>(&mut self, driver: &mut D, mut link: Box<Link<E::Session, H::State>>) {
        self.flush(driver, &mut link);
        let mut drains = 0;
        while link.reported && link.out.is_drained() {
            if drains == MAX_DRAINS {
                self.shared.dirty.push(link.token);
                break;
            }
            drains += 1;
            link.out.tell_drained();
            link.lend(driver, &mut self.shared, |conn| self.handler.on_drain(conn));
            self.flush(driver, &mut link);
        }
        let pause_above = self.shared.config.limits.pause_receive_above;
        while link.held && !link.holds_back(pause_above) {
            if let Err(stop) = self.resume(driver, &mut link) {
                self.stop(&mut link, stop);
            }
            self.flush(driver, &mut link);
        }
        if let Some(error) = link.out.take_failure() {
            self.fail(&mut link, Cause::Tls(error));
            link.out.flush(driver, link.token, &mut link.session, &mut self.shared);
        }
        if matches!(link.phase, Phase::Open) && link.out.is_closing() {
            link.phase = Phase::CloseSent;
            link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.close);
            self.schedule(&mut link);
        }
        if link.out.is_in_flight() {
            self.schedule(&mut link);
        } else if link.peer_finished && matches!(link.phase, Phase::Linger) && !link.out.is_dirty() {
            link.gone = true;
        }
        if link.gone {
            self.let_go(driver, link);
            return;
        }
        if link.out.kernel.is_active() {
            self.enter_kernel(driver, &mut link);
        }
        link.out.tidy(&mut self.shared.pool);
        let pause = link.holds_back(pause_above);
        if pause != link.driver_paused {
            link.driver_paused = pause;
            link.clock.heard = self.shared.now;
            link.ping_sent = false;
            driver.pause_receive(link.token, pause);
            self.schedule(&mut link);
        }
        self.put(link.token, Slot::Link(link));
    }

    /// Gives the driver what there is to send, or gives the peer up by the policy for slow consumers.
    fn flush<D: Driver>(&mut self, driver: &mut D, link: &mut Link<E::Session, H::State>) {
        if link.out.is_overrun() && link.reported {
            self.fail(link, Cause::SlowConsumer);
        }
        link.out.flush(driver, link.token, &mut link.session, &mut self.shared);
    }

    fn let_go<D: Driver>(&mut self, driver: &mut D, mut link: Box<Link<E::Session, H::State>>) {
        self.report(&mut link, Cause::Stopped);
        self.leave_handshake(&link);
        self.shared.counters.connections -= 1;
        // Who got no answer to its ClientHello learns of it by the reset.
        let abort = link.out.is_in_flight() || matches!(link.phase, Phase::Away(_));
        if let Phase::Away(Some(number)) = link.phase {
            self.give_up(number);
        }
        driver.close(link.token, abort);
        link.out.release(&mut self.shared.pool);
        link.decoder.recycle(&mut self.shared.pool);
        self.shared.pool.give(std::mem::take(&mut link.carry));
    }

    /// Acts on every deadline that is over.
    pub(crate) fn expire<D: Driver>(&mut self, driver: &mut D) {
        let now = self.shared.now;
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(now, &mut due);
        for token in due.drain(..) {
            self.expire_link(driver, token);
        }
        self.due = due;
        self.expire_dials(driver);
        if self.drain_end.is_some_and(|end| end <= now) && self.shared.counters.connections > 0 {
            self.abort_all(driver);
        }
    }

    fn expire_link<D: Driver>(&mut self, driver: &mut D, token: Token) {
        let Some(mut link) = self.take(token) else { return };
        let now = self.shared.now;
        if link.clock.scheduled > now {
            // A later entry replaced this one.
            self.put(token, Slot::Link(link));
            return;
        }
        let (at, due) = link.next_due(&self.shared.config.deadlines);
        if at <= now {
            match due {
                Due::Ping => {
                    if link.driver_paused {
                        link.clock.heard = now;
                    } else {
                        link.ping_sent = true;
                    }
                    // An empty ping cannot be too long.
                    let _ = link.out.ping(&[], &mut self.shared);
                }
                Due::Miss(Deadline::Send) if link.out.progresses(driver, token, now) => {}
                Due::Miss(deadline @ (Deadline::Close | Deadline::Send)) => {
                    self.fail(&mut link, Cause::Timeout(deadline));
                    link.gone = true;
                }
                Due::Miss(deadline) => self.fail(&mut link, Cause::Timeout(deadline)),
            }
        }
        if !link.gone {
            self.schedule(&mut link);
        }
        self.settle(driver, link);
    }

    /// Stops accepting and closes what is open.
    pub(crate) fn drain<D: Driver>(&mut self, driver: &mut D, code: CloseCode, reason: &str, deadline: Duration) {
        driver.stop_listening();
        self.drain_end = Some(self.shared.now + millis(deadline));
        self.give_up_dials(driver);
        for index in 0..self.slots.len() {
            let Slot::Link(link) = &self.slots[index] else { continue };
            let token = link.token;
            let Some(mut link) = self.take(token) else { continue };
            match link.phase {
                Phase::Open => link.out.close(code, reason),
                // Whoever is in the middle of a request gets its answer: 503.
                Phase::Request(ref head) if !head.bytes.is_empty() => {}
                Phase::Linger | Phase::CloseSent => {}
                Phase::Request(_) if link.out.is_in_flight() => {
                    link.out.finish();
                    self.linger(&mut link);
                }
                _ if link.info.dial.is_some() => self.dial_failed(&mut link, ConnectError::Ended(Cause::Stopped)),
                _ => {
                    link.out.finish();
                    link.gone = true;
                }
            }
            self.settle(driver, link);
        }
    }

    fn abort_all<D: Driver>(&mut self, driver: &mut D) {
        log::warn!("{} connections did not close in time and are cut", self.shared.counters.connections);
        for index in 0..self.slots.len() {
            let Slot::Link(link) = &self.slots[index] else { continue };
            let token = link.token;
            if let Some(mut link) = self.take(token) {
                link.gone = true;
                self.settle(driver, link);
            }
        }
    }
}
