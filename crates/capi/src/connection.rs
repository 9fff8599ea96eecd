//! A connection without I/O behind one virtual call, since C has no type parameters.

use std::sync::Arc;
use std::time::Instant;
use tautline::http::{HeaderMap, Request, Response};
use tautline::layers::engine::connection::{Connection, Context, Event, Payload, Unsent};
use tautline::{CloseCode, Config, ConnectError, Outgoing, Target};
use tautline_tls::{Engine, Session, TlsInfo};

/// A [`Connection`] over the session of any engine; the methods are those of that type.
pub(crate) trait AnyConnection: Send {
    fn window(&mut self, least: usize, context: &mut Context) -> &mut [u8];
    fn filled(&mut self, n: usize, now: Instant);
    fn ended(&mut self);
    fn broken(&mut self, error: std::io::Error, context: &mut Context);
    fn next(&mut self, context: &mut Context) -> Option<Event>;
    fn payload(&self) -> Payload<'_>;
    fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Unsent>;
    fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent>;
    fn close(&mut self, code: CloseCode, reason: &str, context: &mut Context, now: Instant);
    fn upgrade(&mut self, headers: HeaderMap, context: &mut Context, now: Instant) -> Result<(), Unsent>;
    fn respond(&mut self, response: &Response<&[u8]>, context: &mut Context) -> Result<(), Unsent>;
    fn request(&self) -> Option<&Request<()>>;
    fn output(&mut self, context: &mut Context) -> &[u8];
    fn written(&mut self, n: usize, context: &mut Context);
    fn blocked(&mut self, now: Instant);
    fn waiting(&mut self) -> usize;
    fn rest(&mut self, context: &mut Context);
    fn on_time(&mut self, now: Instant, context: &mut Context);
    fn next_deadline(&self) -> Option<Instant>;
    fn is_open(&self) -> bool;
    fn is_over(&self) -> bool;
    fn is_finished(&self) -> bool;
    fn holds_back(&self) -> bool;
    fn tls_info(&self) -> TlsInfo;
}

/// A server's end over a session of this engine.
pub(crate) fn accept<E: Engine>(
    engine: &E,
    config: Arc<Config>,
    now: Instant,
) -> Result<Box<dyn AnyConnection>, tautline_tls::Error> {
    Ok(Box::new(Connection::server(engine.accept()?, config, now)))
}

/// A client's end over a session of this engine.
pub(crate) fn connect<E: Engine>(
    engine: &E,
    target: Arc<Target>,
    config: Arc<Config>,
    context: &mut Context,
    now: Instant,
) -> Result<Box<dyn AnyConnection>, ConnectError> {
    let session = engine.connect(target.tls_name());
    let session = session.map_err(|error| ConnectError::Ended(tautline::Cause::Tls(error)))?;
    Ok(Box::new(Connection::client(session, target, config, context, now)?))
}

impl<S: Session> AnyConnection for Connection<S> {
    fn window(&mut self, least: usize, context: &mut Context) -> &mut [u8] {
        self.window_with(least, context)
    }

    fn filled(&mut self, n: usize, now: Instant) {
        self.filled(n, now);
    }

    fn ended(&mut self) {
        self.ended();
    }

    fn broken(&mut self, error: std::io::Error, context: &mut Context) {
        self.broken(error, context);
    }

    fn next(&mut self, context: &mut Context) -> Option<Event> {
        self.next(context)
    }

    fn payload(&self) -> Payload<'_> {
        self.payload()
    }

    fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Unsent> {
        self.send(message, context)
    }

    fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Unsent> {
        self.ping(payload, context)
    }

    fn close(&mut self, code: CloseCode, reason: &str, context: &mut Context, now: Instant) {
        self.close(code, reason, context, now);
    }

    fn upgrade(&mut self, headers: HeaderMap, context: &mut Context, now: Instant) -> Result<(), Unsent> {
        self.upgrade(headers, context, now)
    }

    fn respond(&mut self, response: &Response<&[u8]>, context: &mut Context) -> Result<(), Unsent> {
        self.respond(response, context)
    }

    fn request(&self) -> Option<&Request<()>> {
        self.request()
    }

    fn output(&mut self, context: &mut Context) -> &[u8] {
        self.output(context)
    }

    fn written(&mut self, n: usize, context: &mut Context) {
        self.written(n, context);
    }

    fn blocked(&mut self, now: Instant) {
        self.blocked(now);
    }

    fn waiting(&mut self) -> usize {
        self.sending().len()
    }

    fn rest(&mut self, context: &mut Context) {
        self.rest(context);
    }

    fn on_time(&mut self, now: Instant, context: &mut Context) {
        self.on_time(now, context);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn holds_back(&self) -> bool {
        self.holds_back()
    }

    fn tls_info(&self) -> TlsInfo {
        self.tls_info()
    }
}
