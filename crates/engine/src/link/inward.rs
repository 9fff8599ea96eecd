//! The effects of received bytes on a connection of a loop, up to its messages.

use crate::conn::Conn;
use crate::dial::times::DialStep;
use crate::handler::Handler;
use crate::http::reply::Reply;
use crate::link::input::Inbound;
use crate::link::outlet::DriverOutlet;
use crate::link::phase::{Asked, Phase, Streaming, Transport};
use crate::link::state::Link;
use crate::link::visitor::Visited;
use crate::turn::core::Core;
use core::ops::ControlFlow;
use http::StatusCode;
use tautline_conn::closed::Cause;
use tautline_conn::frames::{self, Read};
use tautline_conn::inbound::{Inward, Parts, Step};
use tautline_conn::proxy_header::{ProxyHeader, looks_like};
use tautline_conn::verdict::Stop;
use tautline_tls::{Engine, Handshake, Session};
use tautline_ws::handshake::{BodyReader, Established, HeadLimits};

impl<E: Engine, H: Handler> Inward for Inbound<'_, E, H> {
    type Session = E::Session;
    type Kept = Asked;
    type Made = Streaming;

    #[inline]
    fn parts(&mut self) -> Parts<'_, E::Session, Asked, Streaming> {
        let Link { phase, session, wire, out, .. } = &mut *self.link;
        Parts { phase, session, wire, out, pool: &mut self.core.shared.pool }
    }

    fn head_limits(&self) -> HeadLimits {
        self.core.shared.config.limits.head
    }

    fn tunneled(&mut self) {
        if let Some(dial) = self.link.info.dial {
            self.core.dialer.end_step(dial, DialStep::Tunneled, &self.core.shared);
        }
    }

    fn announced(&mut self, header: ProxyHeader) {
        if !self.core.admission.note_header(self.link, header, &mut self.core.shared) {
            self.core.end(self.link, Phase::Gone { reset: true }, Cause::Overloaded);
        }
    }

    fn next_step(&mut self, bytes: &[u8]) -> Result<Step, Stop> {
        let Core { offloading, engine, admission, shared, .. } = &mut *self.core;
        offloading.next_step(self.link, bytes, engine, admission, shared)
    }

    fn handshake(&mut self, bytes: &mut [u8]) -> Result<(usize, Handshake), Stop> {
        let header = looks_like(bytes);
        let Core { offloading, openings, shared, .. } = &mut *self.core;
        let step = offloading.handshake_step(self.link, bytes, &mut openings.pace, shared);
        step.inspect_err(|_| shared.hint_at_header(self.link, header))
    }

    fn secured(&mut self) -> Result<(), Stop> {
        self.core.secured(self.driver, self.link)
    }

    #[inline]
    fn holds_back(&self) -> bool {
        self.link.holds_back(self.core.shared.config.limits.pause_receive_above)
    }

    #[inline]
    fn hold(&mut self) {
        self.link.held = true;
    }

    #[inline]
    fn opens(&mut self) {
        if let Some(probe) = &mut self.core.shared.probe {
            probe.opening();
        }
    }

    #[inline]
    fn opened(&mut self) {
        if let Some(probe) = &mut self.core.shared.probe {
            probe.opened();
        }
    }

    #[inline]
    fn yields(&mut self) -> bool {
        let is_over = self.core.shared.visit.is_over(&self.core.shared.clock);
        if is_over {
            self.core.shared.rest(self.link);
        }
        is_over
    }

    fn max_body(&self) -> usize {
        self.core.shared.config.limits.max_body
    }

    fn headed(&mut self, request: http::Request<()>) -> Option<http::Request<()>> {
        let Self { core, driver, link } = self;
        core.access.note_request(link, &request, &core.shared);
        core.admission.note_forwarded(link, request.headers(), &mut core.shared);
        if core.shared.drain_end.is_some() {
            core.reply(*driver, link, request, Reply::status(StatusCode::SERVICE_UNAVAILABLE), None);
            return None;
        }
        let is_taken = core.shared.config.raw && core.offer_raw(*driver, link, &request);
        (!is_taken).then_some(request)
    }

    fn requested(&mut self, request: http::Request<()>, body: Option<BodyReader>) -> Result<(), Stop> {
        let body = body.as_ref().map_or(&[][..], BodyReader::content);
        let Core { application, admission, shared, .. } = &mut *self.core;
        let (reply, wanted) = application.ask(self.link, &request, body, admission, shared);
        self.core.reply(self.driver, self.link, request, reply, wanted);
        Ok(())
    }

    fn unreadable(&mut self, plain: &[u8]) {
        self.core.shared.hint_at_protocol(self.link, plain, self.core.engine.is_plain());
    }

    fn established(&mut self, established: Established) {
        let Established { negotiated, response, .. } = established;
        self.core.opened(self.driver, self.link, negotiated, None, Some(&response));
    }

    /// Decodes frames, answers pings and calls the handler.
    fn frames(&mut self, plain: &mut [u8]) -> Result<usize, Stop> {
        if self.link.out.is_push() {
            // A client has nothing to say while it reads its response.
            return Ok(plain.len());
        }
        let Core { shared, links, application, .. } = &mut *self.core;
        let Link {
            token, phase, session, decoder, out, wire, info, cold, state, paused, answered, kernel, clock, ..
        } = &mut *self.link;
        let may_hold_back = session.is_plain();
        // Built once for all messages of a record, since a small message costs little more than this.
        let mut conn = Conn {
            out,
            transport: Transport { phase, wire, session, in_kernel: kernel.in_kernel() },
            outlet: DriverOutlet { driver: Some(self.driver), token: *token, shared },
            cold,
            info,
            state,
            paused,
            slots: links,
        };
        // All that it refers to lies elsewhere, so that the compiler can keep its fields in registers.
        let mut visitor = Visited {
            conn: &mut conn,
            handler: &mut application.handler,
            last_message: &mut clock.phase_end,
            answered,
            may_hold_back,
            is_over: false,
        };
        let read = frames::read(decoder, plain, &mut visitor)?;
        if visitor.is_over {
            self.core.shared.rest(self.link);
        }
        match read {
            Read::Used(used) => Ok(used),
            Read::Closed(code, reason) => {
                let (end, cause) = self.link.answer_close(code, reason);
                self.core.end(self.link, end, cause);
                Ok(plain.len())
            }
        }
    }

    fn other(&mut self, plain: &mut [u8]) -> ControlFlow<usize, usize> {
        let Self { core, driver, link } = self;
        match &mut link.phase {
            Phase::Waiting(_) | Phase::Streaming(_) if link.session.is_plain() => ControlFlow::Break(0),
            Phase::Waiting(wait) => {
                wait.with.rest.put(plain);
                ControlFlow::Continue(plain.len())
            }
            Phase::Streaming(streaming) => {
                streaming.rest.put(plain);
                ControlFlow::Continue(plain.len())
            }
            Phase::Raw(_) => {
                let taken = core.raw_bytes(*driver, link, plain);
                if taken < plain.len() && link.phase.is_raw() {
                    link.paused = true;
                    return ControlFlow::Break(taken);
                }
                ControlFlow::Continue(taken)
            }
            _ => ControlFlow::Continue(plain.len()),
        }
    }

    fn closed(&mut self) -> Result<(), Stop> {
        self.core.peer_ended(self.link, Ok(true));
        Ok(())
    }
}
