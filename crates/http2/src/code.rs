use core::fmt;

/// An error code of HTTP/2 (RFC 9113, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// No error: an orderly end.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// This end failed.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer sent more than a window allows.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// The peer did not acknowledge SETTINGS in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame came for a stream that the peer had ended.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was refused before any of it was processed.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is not needed any more.
    pub const CANCEL: Self = Self(0x8);
    /// A field section cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection behind a CONNECT request was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The TLS parameters are too weak.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// The request needs HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    const fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        if (self.0 as usize) < NAMES.len() { Some(NAMES[self.0 as usize]) } else { None }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "the code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The fault of a peer that ends its connection. [`Connection::go_away`](crate::Connection::go_away) tells the peer the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The code of the GOAWAY frame.
    pub code: Code,
    /// The rule or limit that the peer broke.
    pub why: &'static str,
}

impl Fault {
    pub(crate) const fn protocol(why: &'static str) -> Self {
        Self { code: Code::PROTOCOL_ERROR, why }
    }

    pub(crate) const fn size(why: &'static str) -> Self {
        Self { code: Code::FRAME_SIZE_ERROR, why }
    }

    pub(crate) const fn flow(why: &'static str) -> Self {
        Self { code: Code::FLOW_CONTROL_ERROR, why }
    }

    pub(crate) const fn flood(why: &'static str) -> Self {
        Self { code: Code::ENHANCE_YOUR_CALM, why }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer broke HTTP/2: {} ({})", self.why, self.code)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Fault {}
