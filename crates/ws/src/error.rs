use crate::CloseCode;
use core::fmt;

/// A failure to decode or encode.
///
/// The peer is at fault, except for [`Compressor`](Self::Compressor) and [`ApiMisuse`](Self::ApiMisuse).
///
/// A decoding error is final: send a close frame with [`close_code`](Self::close_code) and end the connection
/// (RFC 6455, section 7.1.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// A frame has a reserved bit that no negotiated extension defines (section 5.2).
    ReservedBits,
    /// A frame has a reserved opcode: 3-7 or 11-15 (section 5.2).
    ReservedOpcode(u8),
    /// A client sent a frame without a mask (section 5.1).
    NotMasked,
    /// A server sent a masked frame (section 5.1).
    Masked,
    /// A frame's length is encoded in more bytes than needed (section 5.2).
    LengthNotMinimal,
    /// A frame's length is 2^63 or more (section 5.2).
    LengthTooLarge,
    /// A ping, pong or close frame has no FIN (section 5.4).
    ControlFragmented,
    /// A ping, pong or close frame has more than 125 bytes (section 5.5).
    ControlTooLong,
    /// A continuation frame arrived, but no message had begun (section 5.4).
    UnexpectedContinuation,
    /// A new message began before the one in progress had ended (section 5.4).
    MessageInterleaved,
    /// A close frame has one byte, too few for a code (section 5.5.1).
    CloseTruncated,
    /// A close frame has a code that must not be sent (section 7.4).
    InvalidCloseCode(u16),
    /// Text or a close reason is not UTF-8 (section 8.1).
    InvalidUtf8,
    /// A message is larger than the configured limit.
    MessageTooBig {
        /// The limit in bytes.
        limit: usize,
    },
    /// A compressed message inflated by more than the configured ratio.
    InflateRatio {
        /// The limit: inflated bytes per compressed byte.
        limit: u32,
    },
    /// A compressed message is not valid DEFLATE (RFC 7692, section 7.2.2).
    InvalidDeflate,
    /// The compressor failed on its own.
    Compressor,
    /// The calling code misused the API; the text names the remedy.
    ApiMisuse(&'static str),
}

impl Error {
    /// The close code to send to the peer.
    #[must_use]
    pub const fn close_code(&self) -> CloseCode {
        match self {
            Self::InvalidUtf8 | Self::InvalidDeflate => CloseCode::INVALID_PAYLOAD,
            Self::MessageTooBig { .. } | Self::InflateRatio { .. } => CloseCode::MESSAGE_TOO_BIG,
            Self::Compressor | Self::ApiMisuse(_) => CloseCode::INTERNAL_ERROR,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReservedBits => f.write_str("peer set a reserved bit that no extension was negotiated for"),
            Self::ReservedOpcode(opcode) => write!(f, "peer sent a frame with the reserved opcode {opcode:#x}"),
            Self::NotMasked => f.write_str("client sent a frame without a mask"),
            Self::Masked => f.write_str("server sent a masked frame"),
            Self::LengthNotMinimal => f.write_str("peer encoded a frame length in more bytes than it needs"),
            Self::LengthTooLarge => f.write_str("peer announced a frame of 2^63 bytes or more"),
            Self::ControlFragmented => f.write_str("peer fragmented a control frame"),
            Self::ControlTooLong => f.write_str("peer sent a control frame with more than 125 bytes"),
            Self::UnexpectedContinuation => f.write_str("peer continued a message that had not begun"),
            Self::MessageInterleaved => f.write_str("peer began a message inside another one"),
            Self::CloseTruncated => f.write_str("peer sent a close frame of one byte, too short for a code"),
            Self::InvalidCloseCode(code) => {
                write!(f, "peer sent the close code {code}, which must not be on the wire")
            }
            Self::InvalidUtf8 => f.write_str("peer sent text that is not UTF-8"),
            Self::MessageTooBig { limit } => write!(f, "peer sent a message above the limit of {limit} bytes"),
            Self::InflateRatio { limit } => {
                write!(f, "peer sent a compressed message that inflates to more than {limit} times its size")
            }
            Self::InvalidDeflate => f.write_str("peer sent a compressed message that is not valid DEFLATE"),
            Self::Compressor => f.write_str("the compressor failed on its own"),
            Self::ApiMisuse(what) => write!(f, "WebSocket API misuse: {what}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}
