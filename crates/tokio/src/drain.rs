use std::sync::Arc;
use std::time::Duration;
use tautline_ws::CloseCode;
use tokio::sync::watch::{Receiver, Sender};

/// Ends all connections of a server together, each by its own task.
///
/// Every task has a [`Draining`], and closes its socket when that completes:
///
/// ```
/// use std::time::Duration;
/// use tautline_tokio::{Acceptor, CloseCode, Drain, Draining, Error};
/// use tokio::net::{TcpListener, TcpStream};
///
/// async fn serve(listener: TcpListener, acceptor: Acceptor, stop: impl Future<Output = ()>) -> std::io::Result<()> {
///     let drain = Drain::new();
///     let mut stop = std::pin::pin!(stop);
///     loop {
///         tokio::select! {
///             accepted = listener.accept() => {
///                 tokio::spawn(echo(acceptor.clone(), accepted?.0, drain.watch()));
///             }
///             () = &mut stop => break,
///         }
///     }
///     let left = drain.drain(CloseCode::GOING_AWAY, "the server stops", Duration::from_secs(10)).await;
///     println!("{left} connections are cut");
///     Ok(())
/// }
///
/// async fn echo(acceptor: Acceptor, stream: TcpStream, mut draining: Draining) -> Result<(), Error> {
///     let mut socket = acceptor.accept(stream).await?;
///     loop {
///         tokio::select! {
///             message = socket.recv() => match message? {
///                 Some(mut message) => message.echo()?,
///                 None => return Ok(()),
///             },
///             (code, reason) = draining.begun() => return socket.close(code, &reason).await,
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Drain(Sender<Option<Close>>);

type Close = (CloseCode, Arc<str>);

/// A connection's part of a [`Drain`], which counts as open until this is dropped.
#[derive(Debug)]
pub struct Draining(Receiver<Option<Close>>);

impl Drain {
    /// One without connections.
    #[must_use]
    pub fn new() -> Self {
        Self(Sender::new(None))
    }

    /// The part for a further connection. If the drain has begun, it says so at once.
    #[must_use]
    pub fn watch(&self) -> Draining {
        Draining(self.0.subscribe())
    }

    /// The number of connections that are open, such as for metrics.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.receiver_count()
    }

    /// Has all tasks close their sockets with this code and reason, and waits until they have, at most `within`. Returns the
    /// number of connections that are left.
    pub async fn drain(&self, code: CloseCode, reason: &str, within: Duration) -> usize {
        self.0.send_replace(Some((code, reason.into())));
        let _ = tokio::time::timeout(within, self.0.closed()).await;
        self.open()
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Draining {
    /// Completes when the drain begins, with the code and the reason to close with. It never does if the [`Drain`] is dropped.
    ///
    /// The future may be dropped and made anew.
    pub async fn begun(&mut self) -> (CloseCode, Arc<str>) {
        let begun = self.0.wait_for(Option::is_some).await.ok().and_then(|close| close.clone());
        match begun {
            Some(close) => close,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Drain;
    use std::time::Duration;
    use tautline_ws::CloseCode;

    #[tokio::test(start_paused = true)]
    async fn waits_for_all_that_are_open_and_counts_those_that_are_left() {
        let drain = Drain::new();
        let (mut quick, stuck) = (drain.watch(), drain.watch());
        assert_eq!(drain.open(), 2);
        let task = tokio::spawn(async move { quick.begun().await });
        let left = drain.drain(CloseCode::GOING_AWAY, "maintenance", Duration::from_secs(5)).await;
        assert_eq!(left, 1);
        let (code, reason) = task.await.unwrap();
        assert_eq!((code, &*reason), (CloseCode::GOING_AWAY, "maintenance"));
        // One that comes late is told at once.
        assert_eq!(drain.watch().begun().await.0, CloseCode::GOING_AWAY);
        drop(stuck);
        assert_eq!(drain.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5)).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_is_dropped_never_begins() {
        let mut draining = Drain::new().watch();
        assert!(tokio::time::timeout(Duration::from_secs(60), draining.begun()).await.is_err());
    }
}
