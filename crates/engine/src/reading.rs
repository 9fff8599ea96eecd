//! Requests with a body, which is read before the application is asked.

use crate::core::Core;
use crate::handler::Handler;
use crate::limits::Limit;
use crate::link::Link;
use crate::phase::{Body, Phase};
use log::Level;
use tautline_io::Driver;
use tautline_tls::Engine;
use tautline_ws::handshake::{self, BodyReader, HandshakeError};

/// Bytes that ask a client for the body that it announced.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

impl<E: Engine, H: Handler> Core<E, H> {
    /// Asks the application for its reply, or begins to read the request's body.
    pub(crate) fn on_head(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: http::Request<()>,
    ) {
        // An upgrade with a body is refused with the reason.
        if handshake::is_upgrade(&request) {
            return self.ask(driver, link, request, &[]);
        }
        match BodyReader::new(&request, self.shared.config.limits.max_body) {
            Ok(None) => self.ask(driver, link, request, &[]),
            Ok(Some(reader)) => {
                if BodyReader::is_awaited(&request) && self.drain_end.is_none() {
                    link.out.raw(&mut self.shared.pool).put(CONTINUE);
                }
                if let Phase::Request(head) = &mut link.phase {
                    head.body = Some(Box::new(Body { request, reader }));
                }
            }
            Err(error) => self.refuse_body(link, &error),
        }
    }

    /// Reads from a request's body. Returns the bytes of `plain` that belonged to it; `None` if no body is read.
    pub(crate) fn body(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        plain: &[u8],
    ) -> Option<usize> {
        let Phase::Request(head) = &mut link.phase else { return None };
        match head.body.as_mut()?.reader.read(plain) {
            Ok((used, false)) => Some(used),
            Ok((used, true)) => {
                if let Some(Body { request, reader }) = head.body.take().map(|body| *body) {
                    self.ask(driver, link, request, reader.content());
                }
                Some(used)
            }
            Err(error) => {
                self.refuse_body(link, &error);
                Some(plain.len())
            }
        }
    }

    fn refuse_body(&mut self, link: &mut Link<E::Session, H::State>, error: &HandshakeError) {
        let limit = Limit::of_head(error, &self.shared.counters);
        self.shared.log_peer(Level::Info, &link.info.peer, format_args!("{error}{limit}"));
        self.refuse_with(link, error.status().unwrap_or(http::StatusCode::BAD_REQUEST));
    }
}
