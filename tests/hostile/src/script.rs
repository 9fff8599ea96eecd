//! Scripts: an attack as a value.

use crate::outcome::Result;
use crate::seen::Seen;
use crate::server::Server;
use crate::tls;
use std::fmt;
use std::time::Duration;

/// An attack: what one connection does, and what the server must do about it.
#[derive(Clone)]
pub(crate) struct Script {
    /// The category, as `frames`.
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) over: Over,
    pub(crate) begin: Begin,
    pub(crate) act: Act,
    pub(crate) expect: Vec<Expect>,
    /// Outcomes of one TLS engine, for the library's own reasons.
    pub(crate) differs: Vec<(&'static str, Expect)>,
    /// It waits for a deadline of the server. All such scripts run at the same time.
    pub(crate) slow: bool,
}

/// The servers that a script is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    All,
    /// With TLS.
    Tls,
    /// With TLS, and client certificates are required.
    ClientCertificates,
    /// With HTTP/2.
    Http2,
}

/// The state in which a script gets its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Connected by TCP.
    Tcp,
    /// After the TLS handshake, if there is TLS.
    Secure,
    /// An open WebSocket.
    Open,
    /// An open WebSocket with permessage-deflate.
    Deflate,
    /// After the TLS handshake, the preface and the settings of HTTP/2.
    Http2,
}

/// The course of an attack.
#[derive(Clone)]
pub(crate) enum Act {
    Steps(Vec<Step>),
    /// A program, for attacks that are no sequence of steps.
    Program(fn(&Server) -> Result<Seen>),
}

/// A step of an attack. Errors of sending are no failure: the server may have hung up.
#[derive(Clone)]
pub(crate) enum Step {
    /// Sends bytes, sealed in one record if there is TLS.
    Send(Vec<u8>),
    /// Sends bytes in pieces of this length, each in a record and a write of its own.
    Pieces(Vec<u8>, usize),
    /// Sends bytes below TLS.
    Wire(Vec<u8>),
    /// Sends one byte after another with a pause between them, until the server answers or hangs up.
    Drip(Vec<u8>, Duration),
    /// Seals a record of this content type, with this number of zeros behind its content.
    Record(u8, Vec<u8>, usize),
    /// Seals the next record with the keys behind a KeyUpdate.
    NextKeys,
    /// Changes the last byte of the tag of a record with these bytes.
    WrongTag(Vec<u8>),
    /// Does the TLS handshake, and edits the client's flights: number 0 is the ClientHello.
    Handshake(tls::Edit),
    /// Repeats steps without reading, for this number of times or until the server hangs up.
    Times(usize, Vec<Self>),
    Pause(Duration),
    /// Reads all that has come, and looks at none of it.
    Discard,
    /// Ends our direction.
    HalfClose,
    /// Ends the connection with a reset when the script is over.
    Reset,
}

/// A permitted outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// An answer with this HTTP status.
    Status(u16),
    /// The connection is upgraded, with this value of Sec-WebSocket-Extensions (empty: without one), and echoes.
    Extensions(&'static str),
    /// A close frame with this code, 0 if it has none, and then the end of the stream.
    Close(u16),
    /// A fatal alert, of these numbers if there are any.
    Alert(&'static [u8]),
    /// It echoes this text, and the connection is in order.
    Echo(String),
    /// An echo of any content, which may be compressed.
    Data,
    /// An echo, and then a fatal alert.
    DataThenAlert,
    /// A pong with this payload.
    Pong(Vec<u8>),
    /// The connection ends or is reset without an answer.
    Hangup,
    /// A program reports this word.
    Word(&'static str),
    /// GOAWAY with this code, and then the end of the connection.
    GoAway(u32),
    /// A stream is reset with this code.
    StreamReset(u32),
    /// So many streams have ended.
    Ends(usize),
    /// The attacker is gone, and the server has nothing to say.
    Gone,
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "HTTP {status}"),
            Self::Extensions("") => f.write_str("101, no extension"),
            Self::Extensions(value) => write!(f, "101, {value}"),
            Self::Close(code) => write!(f, "close {code}"),
            Self::Alert([]) => f.write_str("alert"),
            Self::Alert(codes) => {
                let codes: Vec<String> = codes.iter().map(u8::to_string).collect();
                write!(f, "alert {}", codes.join("/"))
            }
            Self::Echo(_) => f.write_str("echo"),
            Self::DataThenAlert => f.write_str("echo, alert"),
            Self::Data => f.write_str("an echo"),
            Self::Pong(_) => f.write_str("pong"),
            Self::Hangup => f.write_str("hang-up"),
            Self::Word(word) => f.write_str(word),
            Self::GoAway(code) => write!(f, "GOAWAY {code}"),
            Self::StreamReset(code) => write!(f, "RST_STREAM {code}"),
            Self::Ends(streams) => write!(f, "{streams} streams ended"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl Script {
    /// A script of steps on an open WebSocket, for all servers.
    pub(crate) fn new(group: &'static str, name: impl Into<String>, steps: Vec<Step>, expect: Expect) -> Self {
        Self {
            group,
            name: name.into(),
            over: Over::All,
            begin: Begin::Open,
            act: Act::Steps(steps),
            expect: vec![expect],
            differs: Vec::new(),
            slow: false,
        }
    }

    /// A program, for servers with TLS.
    pub(crate) fn program(
        group: &'static str,
        name: &str,
        program: fn(&Server) -> Result<Seen>,
        expect: Expect,
    ) -> Self {
        let script = Self::new(group, name, Vec::new(), expect);
        Self { act: Act::Program(program), over: Over::Tls, begin: Begin::Tcp, ..script }
    }

    pub(crate) fn begin(self, begin: Begin) -> Self {
        Self { begin, ..self }
    }

    pub(crate) fn over(self, over: Over) -> Self {
        Self { over, ..self }
    }

    pub(crate) fn slow(self) -> Self {
        Self { slow: true, ..self }
    }

    /// Permits another outcome too.
    pub(crate) fn or(mut self, expect: Expect) -> Self {
        self.expect.push(expect);
        self
    }

    /// Permits another outcome if the server has this TLS engine.
    pub(crate) fn on(mut self, engine: &'static str, expect: Expect) -> Self {
        self.differs.push((engine, expect));
        self
    }

    /// The permitted outcomes with this TLS engine.
    pub(crate) fn expected(&self, tls: Option<&str>) -> Vec<Expect> {
        let differs = self.differs.iter().filter(|(engine, _)| tls == Some(engine));
        self.expect.iter().chain(differs.map(|(_, expect)| expect)).cloned().collect()
    }

    /// The permitted outcomes in words.
    pub(crate) fn expectation(&self) -> String {
        self.expect.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
    }
}
