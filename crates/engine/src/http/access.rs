//! The access log: one entry for each answered HTTP request and each ended WebSocket of a server.

use crate::counts::counters::LiveCounters;
use crate::ids::ConnId;
use http::{Method, StatusCode};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tautline_conn::closed::Closed;
use tautline_conn::notes::Notes;
use tautline_io::Address;

/// Takes the entries of a server's access log ([`Config::access_log`](crate::Config::access_log)). Clones are the same one.
///
/// It is called on the loops' threads, so it must not block: put the entry into a queue. A panic of it ends the loop.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Access, AccessLog, Config}; }
/// use std::sync::mpsc::sync_channel;
/// use tautline::{Access, AccessLog, Config};
///
/// let (entries, _for_a_thread_that_writes) = sync_channel(1000);
/// let mut config = Config::default();
/// config.access_log = Some(AccessLog::new(move |access: &Access<'_>| {
///     // An entry that finds no room is left out, and counted in a program of your own.
///     let _ = entries.try_send(format!("{} {:?} {:?}", access.peer, access.path, access.status));
/// }));
/// ```
#[derive(Clone)]
pub struct AccessLog(pub(crate) Arc<dyn Fn(&Access<'_>) + Send + Sync>);

impl AccessLog {
    /// Calls `log` for each entry.
    #[must_use]
    pub fn new(log: impl Fn(&Access<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(log))
    }

    /// Drops all entries. [Lists](crate::ShardHandle::connections) of connections then have their paths all the same.
    #[must_use]
    pub fn discard() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessLog")
    }
}

/// An answered HTTP request, or a WebSocket from its request to its end.
///
/// Texts of the client are cut after 512 bytes. They may hold any character that HTTP allows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Access<'a> {
    /// The connection.
    pub conn: ConnId,
    /// The client's address.
    pub peer: &'a Address,
    /// The peer of the socket, if it is a proxy that named the client.
    pub direct: Option<&'a Address>,
    /// The method. `None` if the head of the request could not be read.
    pub method: Option<&'a Method>,
    /// The path without the query, which often holds tokens. `None` if the head of the request could not be read.
    pub path: Option<&'a str>,
    /// The value of the header `User-Agent`, if it is text.
    pub user_agent: Option<&'a str>,
    /// The status of the response: 101 for a WebSocket. `None` if the client went away before there was one.
    pub status: Option<StatusCode>,
    /// Whether the response was cut off.
    pub is_cut: bool,
    /// How the WebSocket ended. `None` for plain HTTP.
    pub closed: Option<&'a Closed>,
    /// The time from the whole head of the request to the end of the response or the WebSocket.
    pub duration: Duration,
    /// Messages and bytes since the last entry of the connection, or since its begin.
    pub traffic: Traffic,
    /// Version of TLS; `None` without TLS.
    pub tls_version: Option<tautline_tls::ProtocolVersion>,
    /// Whether it came on a stream of HTTP/2. Its bytes are those of the stream then.
    pub http2: bool,
    /// The application's notes about the request ([`Raw::note`](crate::Raw::note)).
    pub notes: &'a Notes,
}

/// Messages of a connection, and its bytes on the wire: with TLS, the handshake and frames, and without TCP.
///
/// The sums of all connections are those in [`Counters`](crate::Counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes given to the kernel.
    pub bytes_out: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent, with those that a policy has dropped.
    pub messages_out: u64,
}

impl Traffic {
    pub(crate) fn of(counters: &LiveCounters) -> Self {
        Self {
            bytes_in: counters.bytes_in.get(),
            bytes_out: counters.bytes_out.get(),
            messages_in: counters.messages_in.get(),
            messages_out: counters.messages_out.get(),
        }
    }

    pub(crate) const fn add_since(&mut self, now: &Self, before: &Self) {
        self.bytes_in += now.bytes_in - before.bytes_in;
        self.bytes_out += now.bytes_out - before.bytes_out;
        self.messages_in += now.messages_in - before.messages_in;
        self.messages_out += now.messages_out - before.messages_out;
    }
}
