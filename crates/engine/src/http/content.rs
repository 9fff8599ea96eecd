use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

/// The content of a response that is made while it is sent: [`Reply::Stream`](crate::Reply::Stream).
///
/// The loop reads it in pieces of at most 64 KiB, the next one when the client has taken those before. A reader that blocks
/// delays all connections of the loop.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Content, Reply}; }
/// use http::Response;
/// use tautline::{Content, Reply};
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
    File(Part),
}

/// The rest of a part of a file.
pub(crate) struct Part {
    pub(crate) file: File,
    /// The offset of its next byte.
    pub(crate) at: u64,
    /// The version to which all of its bytes must belong.
    version: Option<Version>,
}

/// A version of a file, as far as the file system tells versions apart.
#[derive(PartialEq, Eq)]
struct Version {
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self { size: metadata.size(), seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() }
    }
}

impl ContentSource {
    /// Its memory, in bytes, as far as its type tells.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Reader(reader) => size_of_val(&**reader),
            Self::File(_) => 0,
        }
    }
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
        Self { source: ContentSource::File(Part { file, at: start, version: None }), len: Some(len) }
    }

    /// Content of one version of a file: the connection is reset if the file changes while it is sent.
    ///
    /// `metadata` is that of the open file, and belongs to the response's `ETag`. Size and time of modification are compared
    /// with it when the last bytes are read, before they are sent. Content of a reader stays as it is.
    ///
    /// Without TLS the network may still read bytes from the kernel's cache after this comparison. Only a file that is never
    /// written in place, but replaced by another one (rename(2)), is safe from that.
    #[must_use]
    pub fn of_version(mut self, metadata: &Metadata) -> Self {
        if let ContentSource::File(part) = &mut self.source {
            part.version = Some(Version::of(metadata));
        }
        self
    }
}

impl ContentSource {
    /// Reads the next bytes.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Reader(reader) => reader.read(buf),
                Self::File(part) => part.file.read_at(buf, part.at),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    if let Self::File(part) = self {
                        part.at += read as u64;
                    }
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if the bytes that were read may be of several versions of a file.
    pub(crate) fn check_version(&self) -> io::Result<()> {
        let Self::File(Part { file, version: Some(version), .. }) = self else { return Ok(()) };
        if Version::of(&file.metadata()?) == *version {
            return Ok(());
        }
        Err(io::Error::other("the file was changed while it was sent; replace files by renaming new ones"))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("len", &self.len).finish_non_exhaustive()
    }
}
