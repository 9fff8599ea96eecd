use std::error::Error;
use std::io::Write;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

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
