use core::fmt;
use std::io;

use super::block::{HEADER, Header};
use super::chunk::Chunk;

/// Makes blocks of chunks. It keeps the memory of the compressor between them.
pub struct Sealer {
    zstd: zstd::bulk::Compressor<'static>,
}

impl Sealer {
    /// Makes a sealer with a level of zstd: from 1, the fastest, to 22.
    ///
    /// # Errors
    /// If zstd gets no memory or does not have the level.
    pub fn new(level: i32) -> io::Result<Self> {
        Ok(Self { zstd: zstd::bulk::Compressor::new(level)? })
    }

    /// Appends the block of a chunk to bytes. A chunk without events has none.
    ///
    /// # Errors
    /// If zstd fails. The bytes are as before then.
    pub fn seal(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> io::Result<()> {
        if chunk.events() == 0 {
            return Ok(());
        }
        let start = out.len();
        let sealed = self.block(chunk, out);
        if sealed.is_err() {
            out.truncate(start);
        }
        sealed
    }

    fn block(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> io::Result<()> {
        let content = &*chunk.content;
        let start = out.len();
        let body = start + HEADER;
        out.resize(body + zstd::zstd_safe::compress_bound(content.len()), 0);
        let len = self.zstd.compress_to_buffer(content, out.get_mut(body..).unwrap_or_default())?;
        out.truncate(body + len);
        let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let header = Header {
            compressed: len.try_into().map_err(too_long)?,
            content: content.len().try_into().map_err(too_long)?,
            events: chunk.events(),
            first: chunk.first(),
            checksum: crc32fast::hash(out.get(body..).unwrap_or_default()),
        };
        if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *place = header.to_bytes();
        }
        Ok(())
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}
