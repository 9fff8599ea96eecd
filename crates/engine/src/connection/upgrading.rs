use super::context::Context;
use super::event::{Event, Unsent};
use super::input::Step;
use super::output::Phase;
use super::state::Connection;
use crate::config::Config;
use http::HeaderMap;
use std::time::Instant;
use tautline_buf::Buf;
use tautline_conn::head::{Begun, CONTINUE, Head, framing_of, whole_head};
use tautline_conn::phase::{Answer, Wait};
use tautline_conn::tick::millis;
use tautline_conn::verdict::Stop;
use tautline_tls::Session;
use tautline_ws::Decoder;
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Inflater};
use tautline_ws::handshake::{self, BodyReader, HandshakeError};

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
        match handshake::accept(&request, &self.config.upgrade) {
            Ok(mut accepted) => {
                accepted.response.headers_mut().extend(headers);
                accepted.write(self.output.raw(&mut context.pool));
                let deflate = accepted.negotiated.deflate.zip(self.deflate);
                // An application that was slow to answer leaves its peer the usual time.
                self.clock.restart(self.clock.tick(now));
                self.enter(deflate);
                let mut opened = self.opened();
                opened.request = Some(request);
                opened.subprotocol = accepted.negotiated.subprotocol;
                opened.deflate = deflate.is_some();
                self.pending = Some(Event::Open(Box::new(opened)));
            }
            Err(refused) => {
                let reply = handshake::Reply { keep_alive: false, ..handshake::Reply::to(&request) };
                let date = context.date();
                let out = self.output.raw(&mut context.pool);
                handshake::write_response(&refused.response, reply, Some(&date), out);
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
        if handshake::write_response(response, reply, Some(&date), self.output.raw(&mut context.pool)) {
            let (now, deadlines) = (self.clock.tick(now), &self.config.deadlines);
            let end = *head.http_end.get_or_insert_with(|| now + millis(deadlines.http));
            self.clock.phase_end = end.min(now + millis(deadlines.handshake));
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
        let is_plain = self.output.is_plain;
        self.output.phase = Phase::Tls;
        if is_plain {
            self.secured(context);
            return Ok(());
        }
        // A client speaks first.
        let (session, wire) = self.output.parts();
        session.handshake(&mut [], wire).map(drop)
    }

    /// TLS is established, or there is none: begins HTTP.
    pub(super) fn secured(&mut self, context: &mut Context) {
        self.output.phase = match self.opening.take() {
            Some(opening) => {
                opening.write(self.output.raw(&mut context.pool));
                Phase::Answer(Box::new(Answer { bytes: Buf::new(), opening: *opening }))
            }
            None => Self::first_request(&self.config),
        };
    }

    pub(super) fn first_request(config: &Config) -> Phase {
        Phase::Request(Box::new(Head::new(config.limits.head)))
    }

    /// Reads plaintext as the head of a request or a response.
    pub(super) fn head(&mut self, context: &mut Context) -> Result<Step, Stop> {
        let Some(plain) = &mut self.input.plain else { return Ok(Step::Wait) };
        let source = if plain.in_scratch { &self.input.scratch } else { &self.input.wire };
        let bytes = &source.filled()[plain.rest.clone()];
        let (cork, pool, limit) = (&mut self.output.cork, &mut context.pool, self.config.limits.max_body);
        let step = match &mut self.output.phase {
            Phase::Request(head) => {
                let (used, asked) = read_request(head, bytes, limit, |bytes| cork.raw(pool).put(bytes))?;
                plain.rest.start += used;
                match (asked, std::mem::replace(&mut self.output.phase, Phase::GONE)) {
                    (Some((request, body)), Phase::Request(head)) => {
                        self.output.phase = Phase::Waiting(Box::new(Wait { head, request, with: body }));
                        self.clock.phase_end = self.clock.heard + millis(self.config.deadlines.answer);
                        Some(Event::Request)
                    }
                    (_, phase) => {
                        self.output.phase = phase;
                        None
                    }
                }
            }
            Phase::Answer(answer) => {
                let Answer { bytes: before, opening } = &mut **answer;
                let whole = whole_head(before, bytes, |bytes| opening.read(bytes)).map_err(Stop::Refused)?;
                plain.rest.start += whole.as_ref().map_or(bytes.len(), |(_, used)| *used);
                whole.map(|(established, _)| {
                    let deflate = established.negotiated.deflate.zip(self.deflate);
                    self.enter(deflate);
                    let mut opened = self.opened();
                    opened.response = Some(established.response);
                    opened.subprotocol = established.negotiated.subprotocol;
                    opened.deflate = deflate.is_some();
                    Event::Open(Box::new(opened))
                })
            }
            _ => None,
        };
        self.forget(context);
        Ok(step.map_or(Step::Again, Step::Event))
    }

    /// Opens the connection.
    pub(super) fn enter(&mut self, deflate: Option<(DeflateParams, DeflateConfig)>) {
        if let Some((params, config)) = &deflate {
            let decoder = Decoder::new(self.role, self.config.limits.max_message);
            self.input.decoder = decoder.with_inflater(Inflater::new(params, self.role, config.max_ratio));
            self.output.cork.set_deflate(params, config);
        }
        self.input.decoder.set_streaming(self.config.streaming);
        self.output.phase = Phase::Open;
        self.clock.phase_end = self.clock.heard;
    }
}

/// A request, with its body if it has one.
type Whole = (http::Request<()>, Option<BodyReader>);

/// Reads a request with its body, and asks for the body by `ask_for` if the client awaits that. Returns the bytes of `plain`
/// that belonged to it, and the request if it is whole.
fn read_request(
    head: &mut Head,
    plain: &[u8],
    max_body: usize,
    ask_for: impl FnOnce(&[u8]),
) -> Result<(usize, Option<Whole>), Stop> {
    if head.body.is_some() {
        let (used, whole) = head.read_body(plain).map_err(Stop::Refused)?;
        return Ok((used, whole.map(|body| (body.request, Some(body.reader)))));
    }
    let Some((request, used)) = head.read(plain).map_err(Stop::Refused)? else { return Ok((plain.len(), None)) };
    Ok(match head.begin_body(request, max_body).map_err(Stop::Refused)? {
        Begun::Whole(request) => (used, Some((request, None))),
        Begun::Body { is_awaited } => {
            if is_awaited {
                ask_for(CONTINUE);
            }
            (used, None)
        }
    })
}
