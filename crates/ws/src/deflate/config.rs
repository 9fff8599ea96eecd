/// What one side wishes of permessage-deflate.
///
/// The names are those of RFC 7692, section 7.1, and mean the same on either side: `server_…` is about messages that the
/// server compresses, `client_…` about messages that the client compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateConfig {
    /// The server compresses each message by itself. Default true: costs ratio on small, similar messages, saves the
    /// server 250-380 kB and the client 48 kB on each connection that is idle.
    pub server_no_context_takeover: bool,
    /// The client compresses each message by itself. Default true: costs ratio on small, similar messages, saves the
    /// client 250-380 kB and the server 48 kB on each connection that is idle.
    pub client_no_context_takeover: bool,
    /// Base-2 logarithm of the server's window, 9 to 15 (values outside count as the nearest). Default 15.
    ///
    /// A client that asks for less gets less. A client that asks for 8 is declined: no zlib compresses with a window of
    /// 256 bytes.
    pub server_max_window_bits: u8,
    /// Base-2 logarithm of the client's window, 9 to 15 (values outside count as the nearest). Default 15.
    ///
    /// On a server less than 15 is a wish, which only clients can meet that offer `client_max_window_bits`.
    pub client_max_window_bits: u8,
    /// Effort, 0 (none) to 9 (most; more counts as 9). Default 2: on JSON it comes within a few percent of the ratio of 6
    /// for a third of the time. 1 is faster still, but makes a third more of it, and grows what does not compress.
    pub level: u32,
    /// Messages with fewer bytes are sent as they are. Default 256: below, the time is better spent on sending.
    pub min_size: usize,
    /// Inflated bytes that one compressed byte may become, once a message has inflated to more than 64 KiB. Default 1000:
    /// refuses little but what was made to fill memory (DEFLATE ends at 1032). The limit on messages holds besides.
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
    /// The default with windows that are kept from message to message: the best ratio on small, similar messages, for
    /// about 430 kB a connection at each end.
    #[must_use]
    pub fn with_context_takeover() -> Self {
        Self { server_no_context_takeover: false, client_no_context_takeover: false, ..Self::default() }
    }

    /// The windows as they can be used.
    pub(super) fn window_bits(&self) -> (u8, u8) {
        (self.server_max_window_bits.clamp(9, 15), self.client_max_window_bits.clamp(9, 15))
    }
}
