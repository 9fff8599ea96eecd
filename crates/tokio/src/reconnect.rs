use crate::connect::Connector;
use crate::context;
use crate::error::Error;
use crate::socket::WebSocket;
use crate::timer::now;
use crate::told::Told;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};
use tautline_engine::{ConnectError, Reconnect, Target};
use tokio::net::TcpStream;

type Attempt = Pin<Box<dyn Future<Output = Result<WebSocket<TcpStream>, Error>> + Send>>;

/// The connections of a client that reconnects: a stream, whose next item is the next open connection.
///
/// Ask for the next one when the last has ended. [`Target::reconnect`] says how long it waits before each attempt, unless the
/// server has said when to come back: [in its close frame](crate::Closed::retry_after), or in the
/// [`Retry-After`](ConnectError::retry_after) of a refusal.
///
/// ```
/// use tautline_tokio::{Connector, Error, Target};
///
/// async fn follow(connector: Connector, target: Target) -> Result<(), Error> {
///     let mut connections = connector.connections(target);
///     while let Some(mut socket) = connections.next().await? {
///         while let Ok(Some(message)) = socket.recv().await {
///             println!("{:?}", message.text());
///         }
///     }
///     Ok(())
/// }
/// ```
pub struct Connections {
    connector: Connector,
    target: Arc<Target>,
    attempt: Option<Attempt>,
    /// Consecutive failures.
    failures: u32,
    opened: Option<Instant>,
    /// When the server of the last connection wants its client back.
    told: Arc<Told>,
    ended: bool,
}

impl Connector {
    /// The connections to `target`, one after the other. Without [`Target::reconnect`] the default waits apply.
    #[must_use]
    pub fn connections(&self, target: impl Into<Arc<Target>>) -> Connections {
        let connector = self.clone();
        let told = Arc::default();
        Connections { connector, target: target.into(), attempt: None, failures: 0, opened: None, told, ended: false }
    }
}

impl Connections {
    /// Waits for the next open connection; `None` after an error, and after [`Reconnect::attempts`] further connections in a
    /// row that were short.
    ///
    /// If this future is dropped, the attempt under way rests until the next call.
    ///
    /// # Errors
    /// The error of the last attempt, once [`Reconnect::attempts`] have failed, or at once if it is
    /// [permanent](Error::is_permanent).
    pub async fn next(&mut self) -> Result<Option<WebSocket<TcpStream>>, Error> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Connects to another target from the next attempt on, such as one with a fresh token.
    pub fn set_target(&mut self, target: impl Into<Arc<Target>>) {
        self.target = target.into();
        self.attempt = None;
    }

    /// The target of the next attempt.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WebSocket<TcpStream>>, Error>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let waits = self.target.reconnect.unwrap_or_default();
        loop {
            if self.attempt.is_none() {
                self.lost(&waits);
                if waits.attempts.is_some_and(|most| self.failures > most) {
                    self.ended = true;
                    return Poll::Ready(Ok(None));
                }
                let wait = self.wait(&waits)?;
                let (connector, target) = (self.connector.clone(), self.target.clone());
                self.attempt = Some(Box::pin(async move {
                    if let Some(wait) = wait {
                        tokio::time::sleep(wait).await;
                    }
                    connector.connect(target).await
                }));
            }
            let Some(attempt) = &mut self.attempt else { continue };
            let result = ready!(attempt.as_mut().poll(cx));
            self.attempt = None;
            match result {
                Ok(mut socket) => {
                    // A connection that is still held cannot speak for the next one.
                    self.told = Arc::default();
                    socket.set_told(self.told.clone());
                    self.opened = Some(now());
                    return Poll::Ready(Ok(Some(socket)));
                }
                Err(error) => {
                    let error = self.worse(error);
                    if error.is_permanent() || waits.attempts.is_some_and(|most| self.failures >= most) {
                        self.ended = true;
                        return Poll::Ready(Err(error));
                    }
                    log::info!("{}: {error:#}", self.target.uri);
                    self.failures = self.failures.saturating_add(1);
                    if let Error::Connect(error) = &error
                        && let Some(after) = error.retry_after(SystemTime::now())
                    {
                        self.told.note(after);
                    }
                }
            }
        }
    }

    /// The error of an attempt, or a permanent one that would follow once the network works.
    ///
    /// A session may use up a ticket. So it is made for this only if the first attempt has failed, when there can be none.
    fn worse(&self, error: Error) -> Error {
        let is_first = self.failures == 0 && !error.is_permanent();
        let next = is_first.then(|| self.connector.session(&self.target).err()).flatten();
        next.filter(ConnectError::is_permanent).map_or(error, Error::Connect)
    }

    /// Counts the end of the last connection as a failure. After one that was open for long, the count begins anew.
    fn lost(&mut self, waits: &Reconnect) {
        let Some(opened) = self.opened.take() else { return };
        // A feed may have sent nothing until it was given up. Such a connection was of no use.
        let silence = self.target.silence.or_else(|| self.connector.deadlines().silence).unwrap_or_default();
        let was_long = now().saturating_duration_since(opened) >= waits.longest.saturating_add(silence);
        self.failures = if was_long { 1 } else { self.failures.saturating_add(1) };
    }

    /// The wait before the next attempt; none before the first.
    fn wait(&self, waits: &Reconnect) -> Result<Option<Duration>, Error> {
        if self.failures == 0 {
            return Ok(None);
        }
        let wait =
            context::with(|buffers| waits.wait_as_told(self.told.take(), self.failures, |bound| buffers.random(bound)));
        Ok(Some(wait?))
    }
}

impl Stream for Connections {
    type Item = Result<WebSocket<TcpStream>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(cx).map(Result::transpose)
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("failures", &self.failures).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_engine::Config;

    /// Connections that have one open, whose silence is bounded by the connector, by the target or by neither.
    fn connections(of_all: Option<Duration>, of_target: Option<Duration>) -> (Connections, Reconnect) {
        let mut config = Config::default();
        config.deadlines.silence = of_all;
        let waits = Reconnect::new(Duration::from_secs(1), Duration::from_secs(30));
        let mut target = Target::new("ws://localhost/").unwrap().with_reconnect(waits);
        target.silence = of_target;
        (Connector::plain().with_config(config).connections(target), waits)
    }

    /// The count of failures after connections that were open for these times.
    async fn failures((of_all, of_target): (Option<Duration>, Option<Duration>), seconds: &[u64]) -> Vec<u32> {
        let (mut connections, waits) = connections(of_all, of_target);
        let mut counts = Vec::new();
        for seconds in seconds {
            connections.opened = Some(now());
            tokio::time::advance(Duration::from_secs(*seconds)).await;
            connections.lost(&waits);
            connections.lost(&waits);
            counts.push(connections.failures);
        }
        counts
    }

    #[tokio::test(start_paused = true)]
    async fn short_connections_wait_longer_and_longer() {
        let (connections, waits) = connections(None, None);
        assert_eq!(connections.wait(&waits).unwrap(), None, "the first attempt does not wait");
        assert_eq!(failures((None, None), &[0, 29, 29, 30, 0, 40]).await, [1, 2, 3, 1, 2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_that_ended_a_connection_does_not_count() {
        let (silence, shorter) = (Some(Duration::from_secs(60)), Some(Duration::from_secs(5)));
        // The silence of a target replaces that of the connector.
        for silences in [(silence, None), (None, silence), (shorter, silence)] {
            assert_eq!(failures(silences, &[60, 60, 89, 90, 60]).await, [1, 2, 3, 1, 2], "{silences:?}");
        }
    }
}
