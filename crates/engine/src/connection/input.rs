use super::context::Context;
use super::event::{Event, Opened};
use super::state::{Connection, Output};
use core::convert::Infallible;
use core::ops::ControlFlow;
use tautline_conn::closed::Cause;
use tautline_conn::frames::Read;
use tautline_conn::inbound::{self, Inward, Parts};
use tautline_conn::phase::{Answer, Phase};
use tautline_conn::proxy_header::ProxyHeader;
use tautline_conn::tick::millis;
use tautline_conn::verdict::Stop;
use tautline_conn::window::{self, Window, Windowed};
use tautline_tls::Session;
use tautline_ws::Role;
use tautline_ws::handshake::{BodyReader, Established, HeadLimits};

impl<S: Session> Connection<S> {
    /// The next event. `None` if the peer's next bytes are needed, or if [too much](Self::holds_back) waits for it.
    ///
    /// Write the [`output`](Self::output) after `None` at the latest. Pings and close frames are answered by then.
    pub fn next(&mut self, context: &mut Context) -> Option<Event> {
        self.input.forget(&mut context.pool);
        if self.is_quiet() {
            return None;
        }
        if self.pending.is_none() {
            let read = match self.output.wire.take_failure() {
                Some(error) => Err(error.into()),
                None => window::read(&mut Pull { connection: self, context }),
            };
            match read {
                Err(stop) => self.stop(stop, context),
                Ok(()) if self.pending.is_none() && self.input.ended && !self.lags() => {
                    let cause = if self.output.session.is_plain() { Cause::Finished } else { Cause::Truncated };
                    self.stop(Stop::Failed(cause), context);
                }
                Ok(()) => {}
            }
            self.clock.held_back |= self.lags();
        }
        self.pending.take()
    }

    /// The socket to the server is established: begins TLS, if there is any.
    pub(super) fn secure(&mut self, context: &mut Context) -> Result<(), Stop> {
        inbound::secure(&mut Pull { connection: self, context })
    }

    /// Whether input waits until some output is written, since the peer does not read the answers to it (server).
    ///
    /// A client holds nothing back: otherwise both ends could wait for each other for ever.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.request().is_some() || self.lags()
    }

    /// Whether the peer of an open connection does not read the answers to its messages.
    fn lags(&self) -> bool {
        self.is_open()
            && matches!(self.output.out.role(), Role::Server)
            && self.output.len() > self.config.limits.pause_receive_above
    }

    /// Whether an open connection has nothing to report and nothing to read: so it is before and after each wait.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.is_open()
            && self.input.is_empty()
            && !self.input.ended
            && self.pending.is_none()
            && !self.output.wire.has_failed()
            && !self.lags()
    }
}

/// A connection that reads up to its next event, which waits in [`Connection::pending`].
struct Pull<'a, S> {
    connection: &'a mut Connection<S>,
    context: &'a mut Context,
}

impl<S: Session> Windowed for Pull<'_, S> {
    fn window(&mut self) -> &mut Window {
        &mut self.connection.input
    }
}

impl<S: Session> Inward for Pull<'_, S> {
    type Session = S;
    type Kept = Option<BodyReader>;
    type Made = Infallible;

    #[inline]
    fn parts(&mut self) -> Parts<'_, S, Option<BodyReader>, Infallible> {
        let Output { phase, session, wire, out, .. } = &mut self.connection.output;
        Parts { phase, session, wire, out, pool: &mut self.context.pool }
    }

    fn head_limits(&self) -> HeadLimits {
        self.connection.config.limits.head
    }

    fn announced(&mut self, header: ProxyHeader) {
        if let Some(client) = &mut self.connection.client {
            client.note_header(header);
        }
    }

    fn secured(&mut self) -> Result<(), Stop> {
        let Connection { opening, output, config, .. } = &mut *self.connection;
        output.phase = match opening.take() {
            Some(opening) => Phase::Answer(Answer::to(*opening, output.out.raw(&mut self.context.pool))),
            None => Phase::request(config.limits.head),
        };
        Ok(())
    }

    fn holds_back(&self) -> bool {
        self.connection.lags()
    }

    fn has_stopped(&self) -> bool {
        self.connection.pending.is_some()
    }

    fn max_body(&self) -> usize {
        self.connection.config.limits.max_body
    }

    fn headed(&mut self, request: http::Request<()>) -> Option<http::Request<()>> {
        let Connection { client, config, .. } = &mut *self.connection;
        if let Some(client) = client {
            client.note_forwarded(&config.front, request.headers());
        }
        Some(request)
    }

    fn requested(&mut self, request: http::Request<()>, body: Option<BodyReader>) -> Result<(), Stop> {
        let Connection { output, clock, config, pending, .. } = &mut *self.connection;
        output.phase.wait(request, body);
        clock.times.phase_end = clock.times.heard + millis(config.deadlines.answer);
        *pending = Some(Event::Request);
        Ok(())
    }

    fn established(&mut self, established: Established) {
        let opened = self.connection.enter(established.negotiated);
        let opened = Opened { response: Some(established.response), ..opened };
        self.connection.pending = Some(Event::Open(Box::new(opened)));
    }

    fn frames(&mut self, plain: &mut [u8]) -> Result<usize, Stop> {
        let Connection { input, output, clock, pending, config, .. } = &mut *self.connection;
        let most = if output.out.role() == Role::Server { config.limits.pause_receive_above } else { usize::MAX };
        match input.frames(plain, most, output, self.context, Event::of)? {
            Read::Closed(code, reason) => {
                self.connection.peer_closed(code, reason, self.context);
                Ok(plain.len())
            }
            Read::Used((used, event)) => {
                if matches!(event, Some(Event::Message(_) | Event::Chunk { .. })) {
                    clock.times.phase_end = clock.times.heard;
                }
                *pending = event;
                Ok(used)
            }
        }
    }

    fn other(&mut self, plain: &mut [u8]) -> ControlFlow<usize, usize> {
        // Bytes behind a request wait for its answer.
        if self.connection.request().is_some() { ControlFlow::Break(0) } else { ControlFlow::Continue(plain.len()) }
    }

    fn closed(&mut self) -> Result<(), Stop> {
        Err(Stop::Failed(Cause::Finished))
    }
}
