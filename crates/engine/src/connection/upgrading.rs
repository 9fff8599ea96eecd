use super::context::Context;
use super::event::{Event, Opened, Unsent};
use super::input::Step;
use super::output::{Output, Phase};
use super::state::{Connection, Input, Record};
use crate::config::Config;
use http::HeaderMap;
use std::time::Instant;
use tautline_conn::frames;
use tautline_conn::head::{Begun, CONTINUE, Head, Read, framing_of};
use tautline_conn::phase::{Answer, Wait};
use tautline_conn::tick::millis;
use tautline_conn::upgrade::{Flaw, accept, refuse};
use tautline_conn::verdict::Stop;
use tautline_tls::Session;
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::handshake::{self, BodyReader, Established, HandshakeError, Negotiated};

impl<S: Session> Connection<S> {
    /// Accepts the WebSocket that the [request](Self::request) asks for, with further headers in the response (server).
    ///
    /// If the request breaks a rule, or if [`Config::upgrade`](Config) forbids it, it is refused by a response that says
    /// why. [`next`](Self::next) reports either.
    ///
    /// # Errors
    /// [`Unsent::Invalid`] if no request waits for an answer.
    pub fn upgrade(&mut self, headers: HeaderMap, context: &mut Context, now: Instant) -> Result<(), Unsent> {
        let Wait { request, .. } = *self.take_asked()?;
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
        let Wait { mut head, request, .. } = *self.take_asked()?;
        // This answer is the last if too many bytes of earlier answers wait.
        let reply = framing_of(&request, self.output.len() <= self.config.limits.pause_receive_above);
        let date = context.date();
        if handshake::write_response(response, reply, Some(&date), self.output.out.raw(&mut context.pool)) {
            (self.clock.phase_end, _) = head.await_next(self.clock.tick(now), &self.config.deadlines);
            self.output.phase = Phase::Request(head);
        } else {
            self.refused(HandshakeError::Malformed("the request was answered as plain HTTP"), context);
        }
        Ok(())
    }

    fn take_asked(&mut self) -> Result<Box<Wait<Option<BodyReader>>>, Unsent> {
        match std::mem::replace(&mut self.output.phase, Phase::GONE) {
            Phase::Waiting(wait) => Ok(wait),
            other => {
                self.output.phase = other;
                Err(Unsent::Invalid("no request waits for an answer"))
            }
        }
    }

    /// The socket or the tunnel to the server is established: begins TLS, if there is any.
    pub(super) fn secure(&mut self, context: &mut Context) -> Result<(), tautline_tls::Error> {
        self.output.phase = Phase::Tls;
        if self.output.session.is_plain() {
            self.secured(context);
            return Ok(());
        }
        // A client speaks first.
        let Output { session, wire, .. } = &mut self.output;
        session.handshake(&mut [], wire.buf(&mut context.pool)).map(drop)
    }

    /// TLS is established, or there is none: begins HTTP.
    pub(super) fn secured(&mut self, context: &mut Context) {
        self.output.phase = match self.opening.take() {
            Some(opening) => Phase::Answer(Answer::to(*opening, self.output.out.raw(&mut context.pool))),
            None => Self::first_request(&self.config),
        };
    }

    pub(super) fn first_request(config: &Config) -> Phase {
        Phase::Request(Box::new(Head::new(config.limits.head)))
    }

    /// Reads plaintext as a part of a request or a response.
    pub(super) fn http(&mut self, context: &mut Context) -> Result<Step, Stop> {
        let Input { wire, scratch, record: Some(Record { plain, .. }), .. } = &mut self.input else {
            return Ok(Step::Wait);
        };
        let bytes = plain.bytes(wire.filled_mut(), scratch);
        let event = match &mut self.output.phase {
            Phase::Request(head) => {
                let (used, read) = head.read(bytes).map_err(Stop::Refused)?;
                plain.range.start += used;
                match read {
                    Read::Partial => None,
                    Read::Whole(body) => self.ask(body.request, Some(body.reader)),
                    Read::Head(request) => {
                        if let Some(client) = &mut self.client {
                            client.note_forwarded(&self.config.front, request.headers());
                        }
                        match head.begin_body(request, self.config.limits.max_body).map_err(Stop::Refused)? {
                            Begun::Whole(request) => self.ask(request, None),
                            Begun::Body { is_awaited } => {
                                if is_awaited {
                                    self.output.out.raw(&mut context.pool).put(CONTINUE);
                                }
                                None
                            }
                        }
                    }
                }
            }
            Phase::Answer(answer) => {
                let (used, whole) = answer.read(bytes)?;
                plain.range.start += used;
                whole.map(|Established { response, negotiated, .. }| {
                    Event::Open(Box::new(Opened { response: Some(response), ..self.enter(negotiated) }))
                })
            }
            _ => None,
        };
        self.forget(context);
        Ok(event.map_or(Step::Again, Step::Event))
    }

    /// The application has a whole request from now on.
    fn ask(&mut self, request: http::Request<()>, with: Option<BodyReader>) -> Option<Event> {
        let Phase::Request(head) = std::mem::replace(&mut self.output.phase, Phase::GONE) else { return None };
        self.output.phase = Phase::Waiting(Box::new(Wait { head, request, with }));
        self.clock.phase_end = self.clock.heard + millis(self.config.deadlines.answer);
        Some(Event::Request)
    }

    /// Opens the connection. Returns what is known of it.
    fn enter(&mut self, negotiated: Negotiated) -> Opened {
        let deflate = negotiated.deflate.zip(self.deflate);
        self.open_with(deflate);
        Opened {
            subprotocol: negotiated.subprotocol,
            deflate: deflate.is_some(),
            tls: self.tls_info(),
            ..Opened::default()
        }
    }

    /// Opens the connection with this compression.
    pub(super) fn open_with(&mut self, deflate: Option<(DeflateParams, DeflateConfig)>) {
        self.input.decoder = frames::decoder(self.role, self.config.limits.max_message, deflate.as_ref());
        self.input.decoder.set_streaming(self.config.streaming);
        if let Some((params, config)) = &deflate {
            self.output.out.set_deflate(*params, config);
        }
        self.output.phase = Phase::Open;
        self.clock.phase_end = self.clock.heard;
    }
}
