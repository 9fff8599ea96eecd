//! The life of a raw connection in a loop.

use crate::handler::Handler;
use crate::http::request::Request;
use crate::ids::ConnId;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::Transport;
use crate::link::phase::{Finish, Pages, Phase, Raw as RawPhase, Wish};
use crate::link::state::Link;
use crate::raw::event::RawEvent;
use crate::raw::joining::Crossed;
use crate::raw::slots::{Parts, Slots};
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use crate::turn::visit::{MESSAGE, REQUEST};
use http::StatusCode;
use std::time::Duration;
use tautline_conn::closed::{Cause, Closed};
use tautline_conn::tick::millis;
use tautline_io::{Driver, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::CloseCode;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Offers a request to the application before its body is read. True if it takes the connection.
    pub(crate) fn offer_raw(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: &http::Request<()>,
    ) -> bool {
        let before = std::mem::replace(&mut link.phase, Phase::GONE);
        self.admission.end_handshake(link, &before, &self.shared);
        let Phase::Request(head) = before else { return false };
        let is_http = head.http_end.is_some();
        link.phase = Phase::Raw(RawPhase { late: head.late, ..RawPhase::new(Some(head)) });
        self.shared.visit.spend(REQUEST);
        let (tls, peer) = (link.session.tls_info(), link.info.peer.clone());
        let via = link.cold.as_ref().and_then(|cold| cold.via()).cloned();
        let asked = Request { via: via.as_ref(), ..Request::new(request, &peer, &tls) };
        let Self { application, shared, links, .. } = self;
        let is_taken =
            link.lend_raw(Some(driver), shared, links, |raw| application.handler.on_raw_request(raw, &asked));
        if is_taken {
            self.schedule(link);
            self.grant(link);
            return true;
        }
        if let Phase::Raw(RawPhase { head: Some(head), .. }) = std::mem::replace(&mut link.phase, Phase::GONE) {
            link.phase = Phase::Request(head);
            let counters = &self.shared.counters;
            if is_http { &counters.http } else { &counters.handshaking }.add(1);
            self.admission.rejoin_crowd(link, self.shared.now);
        }
        false
    }

    /// Passes plaintext to the application, or to the driver. Returns the bytes that it used.
    pub(crate) fn raw_bytes(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &mut [u8],
    ) -> usize {
        if link.paused {
            return 0;
        }
        if matches!(&link.phase, Phase::Raw(raw) if raw.wish != Wish::Stay) {
            // An event of another connection in this turn has ended the application's part, so these bytes are what follows it.
            self.grant(link);
            return 0;
        }
        self.shared.visit.spend(MESSAGE);
        let len = plain.len();
        if link.phase.carries() {
            driver.opened(link.token, plain);
            self.shared.visit.spend(len);
            let held = driver.held_for_carrier(link.token);
            if let Phase::Raw(raw) = &mut link.phase {
                raw.carrier = Some(Pages::of(held));
                link.charged |= held > 0;
            }
            return len;
        }
        let Self { application, shared, links, .. } = self;
        let used = link.lend_raw(Some(driver), shared, links, |raw| application.handler.on_bytes(raw, plain)).min(len);
        self.shared.visit.spend(used);
        self.grant(link);
        used
    }

    /// Reports an event of a raw connection.
    pub(crate) fn report_raw(
        &mut self,
        driver: Option<&mut dyn Driver>,
        link: &mut Link<E::Session, H::State>,
        event: RawEvent<'_>,
    ) {
        if link.phase.carries() {
            match event {
                RawEvent::Finished { whole } => {
                    let cause = if whole { Cause::Finished } else { Cause::Truncated };
                    self.end(link, Phase::finishing(true), cause);
                }
                RawEvent::Drain => {
                    if let Some(driver) = driver {
                        driver.go_away(link.token);
                    }
                }
                _ => {}
            }
            return;
        }
        let Self { application, shared, links, .. } = self;
        link.lend_raw(driver, shared, links, |raw| application.handler.on_raw(raw, event));
        self.grant(link);
    }

    /// The peer of a raw connection has ended its direction.
    pub(crate) fn raw_finished(
        &mut self,
        driver: Option<&mut dyn Driver>,
        link: &mut Link<E::Session, H::State>,
        whole: bool,
    ) {
        let is_behind = !link.carry.is_empty();
        let Phase::Raw(raw) = &mut link.phase else { return };
        if raw.ends.peer_finished {
            return;
        }
        if is_behind && link.held {
            // A FIN follows close_notify.
            raw.late = Some(whole || raw.late == Some(true));
            return;
        }
        raw.ends.peer_finished = true;
        self.report_raw(driver, link, RawEvent::Finished { whole });
    }

    /// Reports the end of the peer's direction, if it waited for bytes that are not held back any more. A client that reads requests
    /// sends no further one.
    pub(crate) fn report_late_end(&mut self, driver: &mut dyn Driver, link: &mut Link<E::Session, H::State>) {
        if !link.carry.is_empty() {
            return;
        }
        let late = match &mut link.phase {
            Phase::Raw(RawPhase { late, .. }) => late.take(),
            Phase::Request(head) => head.late.take(),
            _ => None,
        };
        if let Some(whole) = late {
            if link.phase.is_raw() {
                self.raw_finished(Some(&mut *driver), link, whole);
            } else {
                self.peer_ended(link, Ok(whole));
            }
            link.flush(driver, &mut self.shared);
        }
    }

    /// Does what the application wants of a raw connection.
    pub(crate) fn grant(&mut self, link: &mut Link<E::Session, H::State>) {
        self.note_begun(link);
        let Phase::Raw(raw) = &mut link.phase else { return };
        let (wish, ends) = (raw.wish, raw.ends);
        raw.wish = Wish::Stay;
        // Wishes of another connection's event set it, too.
        link.held = !link.carry.is_empty();
        // Requests that wait before the end of the client's direction are answered.
        let may_go_on = ends.ours == Finish::AfterPeer && !ends.peer_finished && self.shared.drain_end.is_none();
        match wish {
            Wish::Stay => {}
            Wish::Reset => self.end(link, Phase::Gone { reset: true }, Cause::Local),
            Wish::Http if may_go_on => self.give_back(link),
            Wish::Open if may_go_on && let Some(terms) = self.shared.joining.terms.take() => {
                Parts::of(link).become_open(&terms, &self.shared);
                self.note_begun(link);
            }
            Wish::Http | Wish::Open | Wish::End => {
                let is_drained = wish == Wish::Open && self.shared.drain_end.is_some();
                let cause = if is_drained { Cause::Stopped } else { Cause::Local };
                self.end(link, Phase::finishing(ends.peer_finished), cause);
            }
        }
    }

    /// A client's connection reads requests again. Each wait for one has the time that requests have together elsewhere.
    fn give_back(&mut self, link: &mut Link<E::Session, H::State>) {
        let Phase::Raw(raw) = &mut link.phase else { return };
        let Some(mut head) = raw.head.take() else {
            return self.end(link, Phase::finishing(false), Cause::Local);
        };
        head.late = raw.late;
        self.access.note_notes(link, std::mem::take(&mut head.notes), &self.shared);
        let Phase::Raw(raw) = &mut link.phase else { return };
        if let Some(status) = raw.status.take() {
            self.access.note_answer(link, status, &self.shared);
        }
        let end = self.shared.now + millis(self.shared.config.deadlines.http);
        head.http_end = Some(end);
        link.phase = Phase::Request(head);
        link.clock.phase_end = end;
        link.paused = false;
        self.shared.counters.http.add(1);
        self.admission.rejoin_crowd(link, self.shared.now);
        self.schedule(link);
    }

    /// Notes that a raw connection has become a WebSocket, if it has.
    pub(crate) fn note_begun(&mut self, link: &mut Link<E::Session, H::State>) {
        let more = link.cold.as_mut().and_then(|cold| cold.more.as_mut());
        let Some(more) = more.filter(|more| more.begins) else { return };
        more.begins = false;
        if let Some(notes) = more.notes.take() {
            self.access.note_notes(link, *notes, &self.shared);
        }
        link.held = !link.carry.is_empty();
        if link.info.dial.is_none() {
            self.access.note_answer(link, StatusCode::SWITCHING_PROTOCOLS, &self.shared);
        }
        self.schedule(link);
    }

    /// Reports the end of a raw connection.
    pub(crate) fn report_raw_closed(&mut self, link: &mut Link<E::Session, H::State>, raw: &RawPhase, cause: Cause) {
        if raw.carrier.is_some() {
            self.shared.counters.carrying.sub(1);
            self.carrier_ends.add(link.token, cause);
            return self.admission.leave_crowd(link);
        }
        if let Some(head) = &raw.head {
            self.access.note_notes(link, head.notes.clone(), &self.shared);
        }
        if let Some(status) = raw.status
            && raw.head.is_some()
        {
            self.access.note_answer(link, status, &self.shared);
            if status == StatusCode::SWITCHING_PROTOCOLS {
                self.access.note_closed(link, &Closed::new(CloseCode::ABNORMAL, cause.clone()), &self.shared);
            }
        }
        let id = ConnId { shard: self.shared.shard, token: link.token };
        self.application.guard(&mut self.shared, format_args!("the end of connection {id}"), |handler, shared| {
            link.lend_raw(None, shared, &mut self.links, |raw| handler.on_raw(raw, RawEvent::Closed(&cause)));
        });
        self.shared.forget_application(link);
        if let Some(dial) = link.info.dial
            && self.dialer.lost(dial, true, Duration::ZERO, None, &mut self.shared)
        {
            self.application.end_dial(&mut self.shared, dial);
        }
    }
}

impl Shared {
    /// Sends the bytes of a raw connection that got many of another one's event: its next event reuses their memory while it is in
    /// the CPU's cache. The end of the turn handles all that follows from the send.
    #[inline(never)]
    pub(crate) fn send_filled<T>(&mut self, slots: &mut dyn Slots<T>, driver: &mut dyn Driver, token: Token) {
        if let Some(Parts { phase, wire, session, out, in_kernel, .. }) = slots.parts(token)
            && phase.is_raw()
        {
            let mut transport = Transport { phase, wire, session, in_kernel };
            let before = self.counters.bytes_out.get();
            out.flush(&mut transport, &mut DriverOutlet { driver: Some(driver), token, shared: self });
            self.note_crossed(token, 0, before);
        }
    }

    /// Notes what has been sent to another connection than that of the event since `before` bytes of all were sent: it is the
    /// traffic of that one.
    pub(crate) fn note_crossed(&self, to: Token, messages: u64, before: u64) {
        if self.config.access_log.is_none() {
            return;
        }
        let bytes = self.counters.bytes_out.get() - before;
        let mut crossed = self.joining.crossed.borrow_mut();
        match crossed.last_mut().filter(|(token, _)| *token == to) {
            Some((_, sent)) => (sent.messages, sent.bytes) = (sent.messages + messages, sent.bytes + bytes),
            None => crossed.push((to, Crossed { messages, bytes })),
        }
    }
}
