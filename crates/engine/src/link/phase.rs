//! The phases of a loop's connection: those of the crate `conn`, with what a loop keeps for a request.

use crate::http::content::ContentSource;
use crate::http::wanted::Wanted;
use tautline_buf::Buf;
use tautline_conn::head::Head;
pub(crate) use tautline_conn::phase::{Answer, Finish, Linger, Pages, Raw, Wish};

/// The means to seal the bytes of a loop's connection.
pub(crate) type Transport<'a> = tautline_conn::wire::Transport<'a, Asked, Streaming>;

/// The state of a loop's connection.
pub(crate) type Phase = tautline_conn::phase::Phase<Asked, Streaming>;

/// The application's side of a request that waits.
pub(crate) struct Asked {
    /// The number of its ticket.
    pub(crate) number: u64,
    /// Opened bytes behind the request: the rest of one record.
    pub(crate) rest: Buf,
    #[expect(dead_code, reason = "its end tells the holder of the ticket")]
    pub(crate) wanted: Wanted,
}

/// A response that is made while it is sent.
pub(crate) struct Streaming {
    pub(crate) head: Box<Head>,
    pub(crate) source: ContentSource,
    /// Bytes of content that are left, if their number is known.
    pub(crate) left: u64,
    pub(crate) is_measured: bool,
    pub(crate) chunked: bool,
    pub(crate) keep_alive: bool,
    pub(crate) peer_finished: bool,
    /// Opened bytes behind the request: the rest of one record.
    pub(crate) rest: Buf,
}

impl Streaming {
    /// Its memory, in bytes. The piece on its way counts with what is sent.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + size_of::<Head>() + self.head.memory() + self.source.memory() + self.rest.capacity()
    }
}
