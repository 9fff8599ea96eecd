use tautline_ws::deflate::{DeflateConfig, DeflateParams};

/// The terms of a WebSocket that begins on a [raw](crate::Raw) connection, whose opening handshake the application has made.
///
/// Our end is that of a server on a connection that was accepted, and that of a client on an outgoing one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// Longest message accepted, in bytes after inflation, in place of [`Limits::max_message`](crate::Limits).
    pub max_message: usize,
    /// The compression that was negotiated, and our wish.
    pub deflate: Option<(DeflateParams, DeflateConfig)>,
}

impl Terms {
    /// Messages of at most this number of bytes, without compression.
    #[must_use]
    pub const fn new(max_message: usize) -> Self {
        Self { max_message, deflate: None }
    }

    /// Sets the compression that was negotiated.
    #[must_use]
    pub const fn with_deflate(self, deflate: Option<(DeflateParams, DeflateConfig)>) -> Self {
        Self { deflate, ..self }
    }
}
