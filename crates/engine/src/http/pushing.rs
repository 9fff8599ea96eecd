//! Responses whose pieces the application sends, when it has them.
//!
//! The connection is then open like one with a WebSocket that goes out only: the same calls send, publish, tell the application
//! that all is sent or that the connection has ended, and bound what waits for a slow reader. [`PieceWriter`](tautline_conn::pieces::PieceWriter) has the place of
//! frames. Nothing is read from the client, and no other request follows.

use crate::handler::{Handler, Opening};
use crate::http::push::Push;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::visit::REQUEST;
use http::{Request, Version};
use tautline_conn::closed::Cause;
use tautline_conn::pieces::Pieces;
use tautline_io::Driver;
use tautline_tls::{Engine, Session};
use tautline_ws::handshake::{self, Framing};

impl<E: Engine, H: Handler> Core<E, H> {
    /// Answers a request with a response whose pieces the application sends, and opens the connection for it.
    pub(crate) fn push(
        &mut self,
        driver: &mut dyn Driver,
        link: &mut Link<E::Session, H::State>,
        request: &Request<()>,
        push: Push<H::State>,
    ) {
        let Push { response, writer, state } = push;
        self.access.note_answer(link, response.status(), &self.shared);
        let is_chunked = request.version() == Version::HTTP_11;
        let framing = if is_chunked { Framing::Chunked } else { Framing::UntilEnd };
        let reply = handshake::Reply { keep_alive: false, ..handshake::Reply::to(request) };
        let date = self.shared.date();
        self.shared.visit.spend(REQUEST);
        let out = link.out.raw(&mut self.shared.pool);
        let (has_body, _) = handshake::write_response_head(&response, framing, reply, Some(&date), out);
        if !has_body {
            return self.end(link, Phase::finishing(false), Cause::Local);
        }
        if let Some(state) = state {
            link.state = state;
        }
        link.out.set_pieces(Pieces::new(writer, is_chunked));
        let before = std::mem::replace(&mut link.phase, Phase::Open);
        (link.clock.phase_end, link.clock.heard) = (self.shared.now, self.shared.now);
        self.admission.end_handshake(link, &before, &self.shared);
        self.shared.counters.open.add(1);
        self.shared.counters.opened.add(1);
        self.schedule(link);
        let tls = link.session.tls_info();
        let opening = Opening {
            request: Some(request),
            response: None,
            subprotocol: None,
            deflate: false,
            tls: &tls,
            times: None,
        };
        link.lend(Some(driver), &mut self.shared, &mut self.links, |conn| {
            self.application.handler.on_open(conn, &opening)
        });
    }
}
