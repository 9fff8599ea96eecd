use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The content of a response that is made while it is sent: [`Reply::Stream`](crate::Reply::Stream).
///
/// The loop reads it in pieces of at most 64 KiB, the next one when the client has taken those before. A reader that blocks
/// delays all connections of the loop.
///
/// ```
/// use http::Response;
/// use tautline_engine::{Content, Reply};
///
/// /// A million lines, of which at most 64 KiB are in memory.
/// struct Lines(u32);
///
/// impl std::io::Read for Lines {
///     fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
///         if self.0 == 1_000_000 {
///             return Ok(0);
///         }
///         self.0 += 1;
///         let line = format!("line {}\n", self.0);
///         buf[..line.len()].copy_from_slice(line.as_bytes());
///         Ok(line.len())
///     }
/// }
///
/// let reply: Reply = Reply::Stream(Response::new(Content::new(Lines(0))));
/// ```
pub struct Content {
    pub(crate) source: ContentSource,
    pub(crate) len: Option<u64>,
}

pub(crate) enum ContentSource {
    Reader(Box<dyn Read + Send>),
    /// A file and the offset of its next byte.
    File(File, u64),
}

impl Content {
    /// Content of unknown length. A client of HTTP/1.1 gets it in chunks.
    ///
    /// `read` always gets room for at least 1 KiB. An error resets the connection, so that the client notices.
    #[must_use]
    pub fn new(reader: impl Read + Send + 'static) -> Self {
        Self { source: ContentSource::Reader(Box::new(reader)), len: None }
    }

    /// Content of `len` bytes. If there are fewer, the connection is reset. Further ones are not sent.
    #[must_use]
    pub fn with_len(reader: impl Read + Send + 'static, len: u64) -> Self {
        Self { len: Some(len), ..Self::new(reader) }
    }

    /// `len` bytes of a file, from `start` on. Without TLS the kernel sends them from its cache (sendfile(2)).
    ///
    /// The read blocks if the bytes are not in the cache. Files on slow disks or networks therefore delay the loop.
    #[must_use]
    pub const fn file(file: File, start: u64, len: u64) -> Self {
        Self { source: ContentSource::File(file, start), len: Some(len) }
    }
}

impl ContentSource {
    /// Reads the next bytes.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Reader(reader) => reader.read(buf),
                Self::File(file, at) => file.seek(SeekFrom::Start(*at)).and_then(|_| file.read(buf)),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    if let Self::File(_, at) = self {
                        *at += read as u64;
                    }
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("len", &self.len).finish_non_exhaustive()
    }
}
