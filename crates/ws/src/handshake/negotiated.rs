use crate::deflate::DeflateParams;

/// The options that an opening handshake negotiated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiated {
    /// The application protocol, one of those that the client offered.
    pub subprotocol: Option<String>,
    /// Compression of messages, if both sides want it.
    pub deflate: Option<DeflateParams>,
}
