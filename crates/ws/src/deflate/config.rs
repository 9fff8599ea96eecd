/// One side's configuration of permessage-deflate.
///
/// The names are those of RFC 7692, section 7.1, and mean the same on either side: `server_…` applies to messages that
/// the server compresses, `client_…` to messages that the client compresses.
///
/// ```
/// # mod tautline { pub use {tautline_ws::deflate::DeflateConfig, tautline_ws::handshake::Policy}; }
/// use tautline::{DeflateConfig, Policy};
///
/// let mut policy = Policy::default();
/// policy.deflate = Some(DeflateConfig::default());
/// // Windows of 1 KiB, kept from message to message.
/// let mut small = DeflateConfig::with_context_takeover();
/// (small.server_max_window_bits, small.client_max_window_bits) = (10, 10);
/// policy.deflate = Some(small);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeflateConfig {
    /// Whether the server compresses each message by itself. Default true.
    ///
    /// Small, similar messages then compress less well. Each idle connection saves about 55 kB at the server and 48 kB at
    /// the client.
    pub server_no_context_takeover: bool,
    /// Whether the client compresses each message by itself. Default true.
    ///
    /// Small, similar messages then compress less well. Each idle connection saves about 55 kB at the client and 48 kB at
    /// the server.
    pub client_no_context_takeover: bool,
    /// Base-2 logarithm of the server's window, 9 to 15 (others count as the nearest of these). Default 15.
    ///
    /// A server uses a smaller window if the client requests one. It declines an offer with 8, since zlib does not
    /// compress with a window of 256 bytes.
    pub server_max_window_bits: u8,
    /// Base-2 logarithm of the client's window, 9 to 15 (others count as the nearest of these). Default 15.
    ///
    /// A server can limit the window only of clients that offer `client_max_window_bits`.
    pub client_max_window_bits: u8,
    /// Effort, from 0 (none) to 9 (most; larger values count as 9). Default 2.
    ///
    /// Levels 1 to 3 are a compressor of ours, which holds about 55 kB for a window of 32 KiB. On JSON, level 2 comes
    /// within a tenth of the ratio of level 6, in half of the time. Level 1 is faster still, but its output is larger.
    ///
    /// The other levels are zlib's, which holds 250-380 kB. Without context takeover it clears 128 KiB for each message.
    pub level: u32,
    /// Smallest message in bytes that is compressed. Default 256, and 32 with context takeover: sending a shorter one as it is
    /// takes less time. A message that compression would not make smaller is sent as it is, too.
    pub min_size: usize,
    /// Most inflated bytes per compressed byte, in a message that inflates to more than 64 KiB. Default 1000.
    ///
    /// The default rejects little beyond messages made to fill memory: DEFLATE reaches 1032 at most. The limit on the
    /// size of messages applies as well.
    pub max_ratio: u32,
}

impl Default for DeflateConfig {
    fn default() -> Self {
        Self {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: 15,
            client_max_window_bits: 15,
            level: 2,
            min_size: 256,
            max_ratio: 1000,
        }
    }
}

impl DeflateConfig {
    /// The default, but with context takeover: windows are kept from message to message.
    ///
    /// Small, similar messages then compress best, for about 100 kB per connection at each end. Messages of 32 bytes and more are
    /// compressed.
    #[must_use]
    pub fn with_context_takeover() -> Self {
        Self { server_no_context_takeover: false, client_no_context_takeover: false, min_size: 32, ..Self::default() }
    }

    /// The window sizes of server and client, clamped to 9 to 15.
    pub(super) fn window_bits(&self) -> (u8, u8) {
        (self.server_max_window_bits.clamp(9, 15), self.client_max_window_bits.clamp(9, 15))
    }
}
