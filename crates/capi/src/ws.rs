use crate::codes::{
    TAUT_ERR_CLOSED, TAUT_ERR_CONNECT, TAUT_ERR_FULL, TAUT_ERR_SIZE, TAUT_ERR_STATE, TAUT_ERR_SYSTEM, TAUT_ERR_VALUE,
    TAUT_NEVER,
};
use crate::config::Config as TlsSettings;
use crate::failure::{Fail, Failure};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tautline::http::{HeaderMap, Response};
use tautline::layers::engine::connection::{Connection, Context, Event, Unsent};
use tautline::{Cause, CloseCode, Config, ConnectError, Outgoing, Target};
use tautline_tls::{Session, plain};

/// A connection without I/O, with the caller's clock.
pub(crate) struct Ws {
    connection: Box<AnyConnection>,
    clock: Clock,
    /// Bytes of the window that the caller has.
    window: usize,
    /// Bytes of the output that the caller has.
    output: usize,
    failure: Option<Box<Failure>>,
}

/// A connection over a session of any engine.
pub(crate) type AnyConnection = Connection<Box<dyn Session>>;

/// The caller's milliseconds as times of this library.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
    origin_ms: u64,
    /// The last time that the caller told.
    latest: Instant,
}

impl Clock {
    pub(crate) fn new(now_ms: u64) -> Self {
        let origin = Instant::now();
        Self { origin, origin_ms: now_ms, latest: origin }
    }

    /// The time at `now_ms`. A clock that runs backwards stands still, and one that is too far ahead, too.
    fn at(&mut self, now_ms: u64) -> Instant {
        let passed = Duration::from_millis(now_ms.saturating_sub(self.origin_ms));
        self.latest = self.origin.checked_add(passed).unwrap_or(self.origin);
        self.latest
    }

    /// The caller's time of a deadline, rounded up.
    fn ms(self, at: Instant) -> u64 {
        let passed = at.saturating_duration_since(self.origin);
        let ms = u64::try_from(passed.as_nanos().div_ceil(1_000_000)).unwrap_or(TAUT_NEVER);
        self.origin_ms.saturating_add(ms)
    }
}

impl Ws {
    /// A server's end. Without settings of TLS it speaks `ws`.
    pub(crate) fn server(tls: Option<&TlsSettings>, config: Config, now_ms: u64) -> Result<Self, Failure> {
        let (clock, config) = (Clock::new(now_ms), Arc::new(config));
        let session = match tls {
            Some(tls) => tls.accepting()?.accept()?,
            None => Box::new(plain::Session),
        };
        Ok(Self::new(Connection::server(session, config, clock.origin), clock))
    }

    /// A client's end.
    pub(crate) fn client(
        tls: Option<&TlsSettings>,
        target: Target,
        config: Config,
        context: &mut Context,
        now_ms: u64,
    ) -> Result<Self, Failure> {
        let (clock, config) = (Clock::new(now_ms), Arc::new(config));
        check_tls(&target, tls.is_some())?;
        let session = match tls {
            Some(tls) => tls.connecting()?.connect(&target.tls_name()),
            None => Ok(Box::new(plain::Session) as Box<dyn Session>),
        };
        let connection = session
            .map_err(|error| ConnectError::Ended(Cause::Tls(error)))
            .and_then(|session| Connection::client(session, Arc::new(target), config, context, clock.origin));
        Ok(Self::new(connection.map_err(|error| connect_failure(&error))?, clock))
    }

    fn new(connection: AnyConnection, clock: Clock) -> Self {
        Self { connection: Box::new(connection), clock, window: 0, output: 0, failure: None }
    }

    /// The connection, unless a defect has ended it.
    pub(crate) fn live(&mut self) -> Result<&mut AnyConnection, Failure> {
        match &self.failure {
            Some(failure) => Err((**failure).clone()),
            None => Ok(&mut *self.connection),
        }
    }

    /// The connection, if a request waits for its answer.
    fn asked(&mut self) -> Result<&mut AnyConnection, Failure> {
        let connection = self.live()?;
        if connection.request().is_none() {
            return Err(Failure::new(TAUT_ERR_STATE, "no request waits for an answer"));
        }
        Ok(connection)
    }

    pub(crate) fn window(&mut self, least: usize, context: &mut Context) -> Result<&mut [u8], Failure> {
        let most = Failure::new(TAUT_ERR_SIZE, "a window has at most 16 MiB");
        if least > 16 << 20 {
            return Err(most);
        }
        self.live()?;
        let window = self.connection.window_with(least.max(16 << 10), context);
        self.window = window.len();
        Ok(window)
    }

    pub(crate) fn filled(&mut self, len: usize, now_ms: u64) -> Result<(), Failure> {
        let now = self.clock.at(now_ms);
        self.live()?;
        if len > self.window {
            return Err(Failure::new(TAUT_ERR_SIZE, "the window has fewer bytes: taut_ws_window comes first"));
        }
        self.window = 0;
        self.connection.filled(len, now);
        Ok(())
    }

    pub(crate) fn next(&mut self, context: &mut Context) -> Result<Option<Event>, Failure> {
        // The window may move.
        self.window = 0;
        Ok(self.live()?.next(context))
    }

    pub(crate) fn send(&mut self, message: Outgoing<'_>, context: &mut Context) -> Result<(), Failure> {
        self.live()?.send(message, context).map_err(unsent)
    }

    pub(crate) fn ping(&mut self, payload: &[u8], context: &mut Context) -> Result<(), Failure> {
        self.live()?.ping(payload, context).map_err(unsent)
    }

    pub(crate) fn close(
        &mut self,
        code: CloseCode,
        reason: &str,
        context: &mut Context,
        now_ms: u64,
    ) -> Result<(), Failure> {
        let now = self.clock.at(now_ms);
        let connection = self.live()?;
        if !connection.is_open() {
            return Err(CLOSED);
        }
        connection.close(code, reason, context, now);
        Ok(())
    }

    pub(crate) fn upgrade(&mut self, headers: HeaderMap, context: &mut Context) -> Result<(), Failure> {
        let now = self.clock.latest;
        self.asked()?.upgrade(headers, context, now).map_err(unsent)
    }

    pub(crate) fn respond(&mut self, response: &Response<&[u8]>, context: &mut Context) -> Result<(), Failure> {
        let now = self.clock.latest;
        self.asked()?.respond(response, context, now).map_err(unsent)
    }

    pub(crate) fn output(&mut self, context: &mut Context) -> Result<&[u8], Failure> {
        self.live()?;
        let output = self.connection.output(context);
        self.output = output.len();
        Ok(output)
    }

    pub(crate) fn written(&mut self, len: usize, context: &mut Context) -> Result<(), Failure> {
        self.live()?;
        self.output = self
            .output
            .checked_sub(len)
            .ok_or(Failure::new(TAUT_ERR_SIZE, "the output has fewer bytes: taut_ws_output comes first"))?;
        self.connection.written(len, context);
        Ok(())
    }

    pub(crate) fn blocked(&mut self, now_ms: u64) -> Result<(), Failure> {
        let now = self.clock.at(now_ms);
        self.live()?.blocked(now);
        Ok(())
    }

    pub(crate) fn on_time(&mut self, now_ms: u64, context: &mut Context) -> Result<(), Failure> {
        let now = self.clock.at(now_ms);
        self.live()?.on_time(now, context);
        Ok(())
    }

    /// The caller's time of the next deadline.
    pub(crate) fn deadline(&mut self) -> Result<u64, Failure> {
        let clock = self.clock;
        Ok(self.live()?.next_deadline().map_or(TAUT_NEVER, |at| clock.ms(at)))
    }
}

impl Fail for Ws {
    fn fail(&mut self, failure: Failure) {
        self.failure = Some(Box::new(failure));
    }
}

const CLOSED: Failure = Failure::new(TAUT_ERR_CLOSED, "the connection is not open");

fn unsent(unsent: Unsent) -> Failure {
    match unsent {
        Unsent::Closed => CLOSED,
        Unsent::Full => Failure::new(TAUT_ERR_FULL, "too many bytes wait for the peer"),
        Unsent::Dropped => Failure::new(TAUT_ERR_FULL, "the peer is slow, and its policy dropped the message"),
        Unsent::Invalid(why) => Failure::new(TAUT_ERR_VALUE, why),
        other => Failure::with_text(TAUT_ERR_STATE, other.to_string()),
    }
}

/// Fails unless a client has TLS just where its target needs it.
pub(crate) fn check_tls(target: &Target, has_tls: bool) -> Result<(), Failure> {
    let what = "a target that begins with wss:// needs a TLS configuration, and one with ws:// takes none";
    if target.is_secure() == has_tls { Ok(()) } else { Err(Failure::new(TAUT_ERR_VALUE, what)) }
}

/// The failure of an attempt to connect.
pub(crate) fn connect_failure(error: &ConnectError) -> Failure {
    let code = if matches!(error, ConnectError::Target(_)) { TAUT_ERR_VALUE } else { TAUT_ERR_CONNECT };
    Failure::with_text(code, format!("{error:#}"))
}

/// The close code and the reason that a caller gives.
pub(crate) fn close_code(code: u32, reason: &str) -> Result<CloseCode, Failure> {
    let code = u16::try_from(code).ok().map(CloseCode::new).filter(|code| code.is_sendable());
    let code = code.ok_or(Failure::new(TAUT_ERR_VALUE, "this close code is none that an application may send"))?;
    if reason.len() > 123 {
        return Err(Failure::new(TAUT_ERR_SIZE, "a reason has at most 123 bytes"));
    }
    Ok(code)
}

/// A context for the connections of a thread.
pub(crate) fn context(limit: usize) -> Result<Context, Failure> {
    let made = if limit == 0 { Context::new() } else { Context::with_limit(limit) };
    made.map_err(|error| Failure::with_text(TAUT_ERR_SYSTEM, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_counts_from_its_begin_and_never_backwards() {
        let mut clock = Clock::new(1000);
        assert_eq!(clock.at(900), clock.origin);
        assert_eq!(clock.at(1250) - clock.origin, Duration::from_millis(250));
        assert_eq!(clock.ms(clock.at(1250)), 1250);
        assert_eq!(clock.ms(clock.at(1250) + Duration::from_nanos(1)), 1251);
        assert_eq!(
            clock.at(u64::MAX),
            clock.origin.checked_add(Duration::from_millis(u64::MAX - 1000)).unwrap_or(clock.origin)
        );
    }

    #[test]
    fn close_codes_are_those_of_applications() {
        for (code, usable) in [(1000, true), (3000, true), (4999, true), (1005, false), (1006, false), (70_000, false)]
        {
            assert_eq!(close_code(code, "").is_ok(), usable, "{code}");
        }
        assert!(close_code(1000, &"x".repeat(124)).is_err());
    }
}
