use crate::deflate::DeflateParams;

/// What the opening handshake agreed on beside the connection itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The application protocol, one of those that the client offered.
    pub subprotocol: Option<String>,
    /// Compression of messages, where both sides want it.
    pub deflate: Option<DeflateParams>,
}
