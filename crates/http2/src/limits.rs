use core::time::Duration;

/// The bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Streams of the peer at once (`SETTINGS_MAX_CONCURRENT_STREAMS`). Further ones are refused. Default 100.
    pub streams: u32,
    /// Bytes of a stream that the peer may send before the application takes them (`SETTINGS_INITIAL_WINDOW_SIZE`).
    /// Default 128 KiB: with less, a message of 64 KiB waits for its window.
    pub stream_window: u32,
    /// Bytes of all streams that may be on their way. They come back when they arrive. Default 1 MiB.
    pub connection_window: u32,
    /// Bytes of a field section, decoded, with 32 for each field (`SETTINGS_MAX_HEADER_LIST_SIZE`). Default 16 KiB.
    pub fields: u32,
    /// Fields of a section. More than eight times as many end the connection. Default 100.
    pub field_count: u32,
    /// Frames of one field section. Default 16.
    pub continuations: u32,
    /// Streams that the peer may reset, or that are reset since the peer broke a rule, at once. A
    /// page that asks anew with each key resets some tens in a second. Default 500.
    pub resets: u32,
    /// Frames at once that ask for an answer, or lead to nothing: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, unknown ones, DATA
    /// without bytes, and heads for streams that are over. Default 2,000.
    pub idle_frames: u32,
    /// The time in which `resets` and `idle_frames` come back as a whole. Default 10 s.
    pub refill: Duration,
    /// Whether clients may open WebSockets (`SETTINGS_ENABLE_CONNECT_PROTOCOL`, RFC 8441). Default true.
    pub websockets: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window: 128 << 10,
            connection_window: 1 << 20,
            fields: 16 << 10,
            field_count: 100,
            continuations: 16,
            resets: 500,
            idle_frames: 2_000,
            refill: Duration::from_secs(10),
            websockets: true,
        }
    }
}
