//! Requests with a body, which is read before the application is asked.

use crate::accept::limits::Limit;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use log::Level;
use tautline_conn::head::{Begun, Body, CONTINUE};
use tautline_io::Driver;
use tautline_tls::Engine;
use tautline_ws::handshake::HandshakeError;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Asks the application for its reply, or begins to read the request's body.
    pub(crate) fn on_head(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: http::Request<()>,
    ) {
        let limit = self.shared.config.limits.max_body;
        let Phase::Request(head) = &mut link.phase else { return };
        match head.begin_body(request, limit) {
            Ok(Begun::Whole(request)) => self.ask(driver, link, request, &[]),
            Ok(Begun::Body { is_awaited }) => {
                if is_awaited && self.drain_end.is_none() {
                    link.out.raw(&mut self.shared.pool).put(CONTINUE);
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
        head.body.as_ref()?;
        match head.read_body(plain) {
            Ok((used, whole)) => {
                if let Some(Body { request, reader }) = whole.map(|body| *body) {
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
