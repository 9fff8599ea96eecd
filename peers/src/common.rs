use futures_util::{Sink, SinkExt, StreamExt};
use std::error::Error;
use std::io::Write;
use std::sync::LazyLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// An error that ends a connection, or the program.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A connection: a TCP socket, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Says that connections are accepted, and where.
pub(crate) fn announce(is_secure: bool, listener: &TcpListener) -> Result<(), Failure> {
    let scheme = if is_secure { "wss" } else { "ws" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    Ok(std::io::stdout().flush()?)
}

/// Passes messages to all clients of the process.
pub(crate) type Hub<M> = LazyLock<broadcast::Sender<M>>;

/// A hub without clients.
pub(crate) const fn hub<M: Clone>() -> Hub<M> {
    LazyLock::new(|| broadcast::channel(1024).0)
}

/// Sends every message that `is_data` accepts to all clients: a task writes and this one reads, as in axum's example chat.
pub(crate) async fn send_to_all<S, M, E>(socket: S, hub: &Hub<M>, is_data: fn(&M) -> bool) -> Result<(), Failure>
where
    S: futures_util::Stream<Item = Result<M, E>> + Sink<M> + Send + 'static,
    M: Clone + Send + 'static,
{
    let (mut write, mut read) = socket.split();
    let mut messages = hub.subscribe();
    let writer = tokio::spawn(async move {
        while let Ok(message) = messages.recv().await {
            if write.send(message).await.is_err() {
                return;
            }
        }
    });
    while let Some(Ok(message)) = read.next().await {
        if is_data(&message) {
            // Fails only without clients, and this is one.
            let _ = hub.send(message);
        }
    }
    writer.abort();
    Ok(())
}
