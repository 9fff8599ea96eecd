use std::error::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// An error that ends a connection, or the program.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A connection: a TCP socket, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}
