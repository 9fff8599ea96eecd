use super::context::Context;
use super::event::{Event, Unsent};
use super::input::Step;
use super::state::{Answer, Connection, Dialing, Head, Stage};
use crate::config::Config;
use crate::link::Stop;
use crate::upgrade::whole_head;
use http::HeaderMap;
use std::time::Instant;
use tautline_buf::Buf;
use tautline_tls::Session;
use tautline_ws::Decoder;
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Deflater, Inflater};
use tautline_ws::handshake::{self, HandshakeError, HeadReader};

impl<S: Session> Connection<S> {
    /// Accepts the WebSocket that the [request](Self::request) asks for, with further headers in the response (server).
    ///
    /// If the request breaks a rule, or if [`Config::upgrade`](Config) forbids it, it is refused by a response that says
    /// why. [`next`](Self::next) reports either.
    ///
    /// # Errors
    /// [`Unsent::Invalid`] if no request waits for an answer.
    pub fn upgrade(&mut self, headers: HeaderMap, context: &mut Context, now: Instant) -> Result<(), Unsent> {
        let request = self.take_request()?;
        match handshake::accept(&request, &self.config.upgrade) {
            Ok(mut accepted) => {
                accepted.response.headers_mut().extend(headers);
                accepted.write(self.output.raw(&mut context.pool));
                let params = accepted.negotiated.deflate;
                let deflate = params.zip(self.config.upgrade.deflate);
                // An application that was slow to answer leaves its peer the usual time.
                self.times.restart(now);
                self.enter(deflate);
                let mut opened = self.opened();
                opened.request = Some(*request);
                opened.subprotocol = accepted.negotiated.subprotocol;
                opened.deflate = deflate.is_some();
                self.pending = Some(Event::Open(Box::new(opened)));
            }
            Err(refused) => {
                let reply = handshake::Reply { keep_alive: false, ..handshake::Reply::to(&request) };
                handshake::write_response(&refused.response, reply, self.output.raw(&mut context.pool));
                self.refused(HandshakeError::Malformed("the request is no valid upgrade"), context);
            }
        }
        Ok(())
    }

    /// Answers the [request](Self::request) as plain HTTP (server).
    ///
    /// Another request may follow on the connection, within the same deadline. Otherwise the connection ends.
    ///
    /// # Errors
    /// [`Unsent::Invalid`] if no request waits for an answer.
    pub fn respond<B: AsRef<[u8]>>(
        &mut self,
        response: &http::Response<B>,
        context: &mut Context,
    ) -> Result<(), Unsent> {
        let request = self.take_request()?;
        let reply = handshake::Reply::to(&request);
        if handshake::write_response(response, reply, self.output.raw(&mut context.pool)) {
            self.stage = Self::first_request(&self.config);
        } else {
            self.refused(HandshakeError::Malformed("the request was answered as plain HTTP"), context);
        }
        Ok(())
    }

    fn take_request(&mut self) -> Result<Box<http::Request<()>>, Unsent> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asked(request) => Ok(request),
            other => {
                self.stage = other;
                Err(Unsent::Invalid("no request waits for an answer"))
            }
        }
    }

    /// The socket or the tunnel to the server is established: begins TLS, if there is any.
    pub(super) fn secure(&mut self, dialing: Dialing, context: &mut Context) -> Result<(), tautline_tls::Error> {
        let is_plain = self.output.is_plain;
        self.stage = Stage::Tls(Some(Box::new(dialing)));
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
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Tls(Some(dialing)) => {
                dialing.opening.write(self.output.raw(&mut context.pool));
                Stage::Answer(Box::new(Answer { bytes: Buf::new(), dialing: *dialing }))
            }
            _ => Self::first_request(&self.config),
        };
    }

    pub(super) fn first_request(config: &Config) -> Stage {
        Stage::Request(Box::new(Head { bytes: Buf::new(), reader: HeadReader::new(config.limits.head) }))
    }

    /// Reads plaintext as the head of a request or a response.
    pub(super) fn head(&mut self, context: &mut Context) -> Result<Step, Stop> {
        let Some(plain) = &mut self.input.plain else { return Ok(Step::Wait) };
        let source = if plain.in_scratch { &self.input.scratch } else { &self.input.wire };
        let bytes = &source.filled()[plain.rest.clone()];
        let step = match &mut self.stage {
            Stage::Request(head) => {
                let reader = &mut head.reader;
                let whole = whole_head(&mut head.bytes, bytes, |bytes| reader.request(bytes)).map_err(Stop::Refused)?;
                plain.rest.start += whole.as_ref().map_or(bytes.len(), |(_, used)| *used);
                whole.map(|(request, _)| {
                    self.stage = Stage::Asked(Box::new(request));
                    Event::Request
                })
            }
            Stage::Answer(answer) => {
                let Answer { bytes: before, dialing } = &mut **answer;
                let opening = &mut dialing.opening;
                let whole = whole_head(before, bytes, |bytes| opening.read(bytes)).map_err(Stop::Refused)?;
                plain.rest.start += whole.as_ref().map_or(bytes.len(), |(_, used)| *used);
                let target = dialing.target.clone();
                whole.map(|(established, _)| {
                    let deflate = established.negotiated.deflate.zip(target.deflate);
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
            self.output.set_deflater(Deflater::new(params, self.role, config.level), config.min_size);
        }
        self.stage = Stage::Open;
        self.output.open();
        self.times.stage_end = None;
        self.times.message = self.times.heard;
    }
}
