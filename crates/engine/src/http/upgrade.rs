//! The opening handshake of both sides, and plain HTTP requests to a server.

use crate::accept::counting::memory_of;
use crate::config::Config;
use crate::dial::times::DialStep;
use crate::handler::{Handler, Opening};
use crate::http::reply::{Later, Reply, Upgrade};
use crate::http::wanted::Wanted;
use crate::ids::DialId;
use crate::link::info::Info;
use crate::link::kernel_tls::Handover;
use crate::link::phase::{Answer, Asked, Pages, Phase, Raw};
use crate::link::state::{Awaits, Clock, HandshakeCost, Link};
use crate::raw::event::RawEvent;
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use crate::turn::visit::REQUEST;
use http::StatusCode;
use log::Level;
use std::borrow::Cow;
use tautline_buf::Buf;
use tautline_conn::closed::Cause;
use tautline_conn::frames;
use tautline_conn::outbound::Outbound;
use tautline_conn::proxy_header::looks_like;
use tautline_conn::tick::millis;
use tautline_conn::upgrade::{Flaw, accept, refuse};
use tautline_conn::verdict::{Stop, status_response};
use tautline_conn::wire::Wire;
use tautline_io::{Address, Driver, Token};
use tautline_tls::{Engine, Session};
use tautline_ws::handshake::{self, HandshakeError, Negotiated, Refusal};
use tautline_ws::{Decoder, Role};

impl<E: Engine, H: Handler> Core<E, H> {
    /// Makes a connection; `None` if the application's default for its state panics. The handshake deadline runs until it is open.
    pub(crate) fn open_link(
        &mut self,
        token: Token,
        phase: Phase,
        session: E::Session,
        peer: Address,
        dial: Option<DialId>,
    ) -> Option<Box<Link<E::Session, H::State>>> {
        let of = format_args!("a connection from {peer}");
        let state = self.application.guard(&mut self.shared, of, |_, _| H::State::default())?;
        let config = &self.shared.config;
        let role = if dial.is_some() { Role::Client } else { Role::Server };
        let now = self.shared.now;
        let clock = Clock { heard: now, phase_end: now + millis(config.deadlines.handshake), ..Clock::default() };
        let mut link = self.batch_alloc.place(Link {
            token,
            phase,
            session,
            cost: HandshakeCost::Plain,
            decoder: Decoder::new(role, config.limits.max_message),
            carry: Buf::new(),
            out: Outbound::new(role),
            wire: Wire::new(),
            info: Info { peer, dial },
            cold: None,
            state,
            paused: false,
            driver_paused: false,
            dirty: false,
            charged: true,
            held: false,
            awaits: Awaits::Nothing,
            kernel: Handover::new(self.kernel_tls),
            answered: 0,
            ping_sent: false,
            clock,
        });
        let memory = memory_of(&link, &self.engine);
        self.admission.begin_connection(&link, memory, &mut self.shared);
        self.schedule(&mut link);
        Some(link)
    }

    /// TLS is established, or there is none: begins HTTP.
    pub(crate) fn secured(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
    ) -> Result<(), Stop> {
        let Some(dial) = link.info.dial else {
            if !link.session.is_plain() {
                self.shared.count_handshake(link);
            }
            if self.shared.config.http2 && link.session.tls_info().alpn.as_deref() == Some(b"h2") {
                let phase = Phase::Raw(Raw { carrier: Some(Pages::default()), ..Raw::new(None) });
                let before = std::mem::replace(&mut link.phase, phase);
                self.admission.end_handshake(link, &before, &self.shared);
                self.shared.counters.carriers.add(1);
                self.shared.counters.carrying.add(1);
                self.admission.begin_carrier(link, self.shared.now);
                self.schedule(link);
                driver.opened(link.token, &mut []);
                return Ok(());
            }
            link.phase = Phase::request(self.shared.config.limits.head);
            return Ok(());
        };
        if !link.session.is_plain() {
            self.dialer.end_step(dial, DialStep::Secured, &self.shared);
        }
        let Some(target) = self.dialer.target(Some(dial)).cloned() else {
            return Err(Stop::Refused(HandshakeError::Options("the connection was cancelled")));
        };
        if target.raw {
            let before = std::mem::replace(&mut link.phase, Phase::Raw(Raw::new(None)));
            self.admission.end_handshake(link, &before, &self.shared);
            let _ = self.dialer.opened(dial, &self.shared);
            self.schedule(link);
            self.report_raw(None, link, RawEvent::Opened);
            return Ok(());
        }
        let options = target.options(self.shared.config.limits.head);
        let nonce = self.shared.keys.nonce();
        let opening = handshake::Opening::new(&target.uri, nonce, &options).map_err(Stop::Refused)?;
        link.phase = Phase::Answer(Answer::to(opening, link.out.raw(&mut self.shared.pool)));
        Ok(())
    }

    /// Acts on the application's reply to a request. `wanted` belongs to the request's ticket, if there is one.
    pub(crate) fn reply(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: http::Request<()>,
        reply: Reply<H::State>,
        wanted: Option<Wanted>,
    ) {
        match (reply, wanted) {
            (Reply::Upgrade(upgrade), _) => self.upgrade(driver, link, &request, upgrade),
            (Reply::Respond(response), _) => self.respond(link, &request, &response),
            (Reply::Stream(response), _) => {
                self.access.note_answer(link, response.status(), &self.shared);
                // It counts as plain HTTP from now on: it gives way to others, but has no deadline other than to send.
                self.admission.keep_for_http(link, &self.shared);
                link.begin_stream(&request, response, &mut self.shared);
            }
            (Reply::Push(push), _) => self.push(driver, link, &request, push),
            (Reply::Later(Later(number)), Some(wanted)) if number + 1 == self.admission.next_ticket => {
                if link.phase.wait(request, Asked { number, rest: Buf::new(), wanted }) {
                    self.admission.unanswered += 1;
                    self.admission.leave_crowd(link);
                    link.clock.phase_end = self.shared.now + millis(self.shared.config.deadlines.answer);
                    self.schedule(link);
                }
            }
            (Reply::Later(_), _) => {
                log::error!("a request was answered with the mark of another request");
                self.respond(link, &request, &status_response(StatusCode::INTERNAL_SERVER_ERROR));
            }
        }
    }

    /// Answers a request as plain HTTP.
    fn respond(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        request: &http::Request<()>,
        response: &http::Response<Vec<u8>>,
    ) {
        self.access.note_answer(link, response.status(), &self.shared);
        let (reply, date) = (self.shared.framing_of(link, request), self.shared.date());
        self.shared.visit.spend(REQUEST + response.body().len());
        let out = link.out.raw(&mut self.shared.pool);
        if handshake::write_response(response, reply, Some(&date), out) {
            self.admission.keep_for_http(link, &self.shared);
            // The deadline of requests may be before that of the handshake.
            self.schedule(link);
        } else {
            self.end(link, Phase::finishing(false), Cause::Local);
        }
    }

    /// Accepts a WebSocket, if the request is a valid one.
    fn upgrade(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: &http::Request<()>,
        upgrade: Upgrade<H::State>,
    ) {
        let Upgrade { headers, subprotocol, context_takeover, state } = upgrade;
        let mut policy = Cow::Borrowed(&self.shared.config.upgrade);
        if !context_takeover && let Some(deflate) = &mut policy.to_mut().deflate {
            (deflate.server_no_context_takeover, deflate.client_no_context_takeover) = (true, true);
        }
        let out = link.out.raw(&mut self.shared.pool);
        match accept(request, &policy, headers, subprotocol, out) {
            Ok(negotiated) => {
                if let Some(state) = state {
                    link.state = state;
                }
                self.opened(driver, link, negotiated, Some(request), None);
            }
            Err(Flaw::Request(refused)) => {
                let date = self.shared.date();
                refuse(request, &refused, &date, link.out.raw(&mut self.shared.pool));
                self.shared.log_peer(Level::Info, &link.info.peer, format_args!("{refused}"));
                self.shared.counters.handshakes_failed.add(1);
                let is_origin = matches!(refused.reason, Refusal::Origin | Refusal::Rebinding);
                self.shared.counters.origins_refused.add(u64::from(is_origin));
                self.access.note_answer(link, refused.response.status(), &self.shared);
                self.end(link, Phase::finishing(false), Cause::Local);
            }
            Err(Flaw::Subprotocol(name)) => {
                let line = format_args!("the application chose the subprotocol {name:?}, which was not offered");
                self.shared.log_peer(Level::Error, &link.info.peer, line);
                self.refuse_with(link, StatusCode::INTERNAL_SERVER_ERROR);
            }
        }
    }

    /// The opening handshake is complete: opens the connection and calls `on_open`.
    pub(crate) fn opened(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        negotiated: Negotiated,
        request: Option<&http::Request<()>>,
        response: Option<&http::Response<()>>,
    ) {
        if request.is_some() {
            self.access.note_answer(link, StatusCode::SWITCHING_PROTOCOLS, &self.shared);
        }
        let deflate = match link.info.dial {
            dial @ Some(_) => self.dialer.target(dial).and_then(|target| target.deflate),
            None => self.shared.config.upgrade.deflate,
        };
        let deflate = negotiated.deflate.zip(deflate);
        let Config { limits, streaming, .. } = &*self.shared.config;
        frames::open(&mut link.decoder, &mut link.out, deflate.as_ref(), limits.max_message, *streaming);
        let subprotocol = negotiated.subprotocol.map(String::into_boxed_str);
        if subprotocol.is_some() {
            link.cold.get_or_insert_default().subprotocol.clone_from(&subprotocol);
        }
        let before = std::mem::replace(&mut link.phase, Phase::Open);
        link.clock.phase_end = self.shared.now;
        self.admission.end_handshake(link, &before, &self.shared);
        let times = link.info.dial.and_then(|dial| self.dialer.opened(dial, &self.shared));
        self.shared.counters.open.add(1);
        self.shared.counters.opened.add(1);
        self.schedule(link);
        let tls = link.session.tls_info();
        self.shared.counters.resumed.add(u64::from(tls.resumed));
        let opening = Opening {
            request,
            response,
            subprotocol: subprotocol.as_deref(),
            deflate: negotiated.deflate.is_some(),
            tls: &tls,
            times,
        };
        link.lend(Some(driver), &mut self.shared, &mut self.links, |conn| {
            self.application.handler.on_open(conn, &opening)
        });
    }
}

impl Shared {
    /// Counts a TLS handshake with a client, and its time. The deadline of the handshake tells when the connection began.
    fn count_handshake<S: Session, T>(&self, link: &Link<S, T>) {
        let left = link.clock.phase_end.saturating_sub(self.now);
        let took = millis(self.config.deadlines.handshake).saturating_sub(left);
        let outcomes = self.remote.live_outcomes();
        let times = if link.session.tls_info().resumed { &outcomes.resumed } else { &outcomes.full };
        times.add(took);
    }

    /// The bytes of a connection that are no request may be those of another protocol.
    pub(crate) fn hint_at_protocol<S: Session, T>(&mut self, link: &Link<S, T>, plain: &[u8], is_plain: bool) {
        let Phase::Request(head) = &link.phase else { return };
        if head.body.is_some() {
            return;
        }
        let begun = if head.bytes.is_empty() { plain } else { head.bytes.filled() };
        // 22 is the type of a TLS handshake record. No HTTP request begins with it.
        if link.session.is_plain() && begun.first() == Some(&22) {
            let hint = format_args!("sent a TLS handshake to a port without TLS: use ws:// or http://");
            self.log_peer(Level::Info, &link.info.peer, hint);
        }
        if is_plain && !head.answered {
            self.hint_at_header(link, looks_like(begun));
        }
    }
}
