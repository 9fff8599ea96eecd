use crate::plain_error::plain_error;
use core::fmt;
use core::ops::Range;
use std::io;

use super::block::{HEADER, Header, MARK, PREAMBLE};
use super::event::{Direction, Event, Kind};
use super::varint;

/// A place in a recording that cannot be read. All events before it were returned already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordError {
    /// Offset in the recording.
    pub offset: u64,
    /// The fault there.
    pub fault: RecordFault,
}

/// The reason why a part of a recording cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// The bytes are no recording.
    NoRecording,
    /// The recording has a later version of the format: use a newer version of this crate.
    Version(u8),
    /// A block is damaged, and the rest of its events are lost. Reading goes on with the next block.
    Damaged {
        /// The number of its events, if its header is whole.
        events: Option<u32>,
    },
    /// The recording ends within a block, of which this number of bytes is there.
    Torn(u64),
}

impl fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {} of the recording: ", self.offset)?;
        match self.fault {
            RecordFault::NoRecording => formatter.write_str("this is no recording of market feeds"),
            RecordFault::Version(version) => {
                write!(formatter, "it is of version {version}, which a newer Tautline reads")
            }
            RecordFault::Damaged { events: Some(events) } => write!(formatter, "a block of {events} events is damaged"),
            RecordFault::Damaged { events: None } => formatter.write_str("a block is damaged, with its header"),
            RecordFault::Torn(len) => write!(formatter, "it ends within a block, of which {len} bytes are there"),
        }
    }
}

plain_error!(RecordError);

/// Reads a recording from pieces of any size.
pub struct Decoder {
    zstd: zstd::bulk::Decompressor<'static>,
    /// Bytes that are not decoded, after those that are.
    input: Vec<u8>,
    /// Decoded bytes of the input.
    at: usize,
    /// Offset in the recording of the input's first byte.
    offset: u64,
    has_preamble: bool,
    /// A block was damaged: its end is not known for sure, so the next block is searched for.
    is_searching: bool,
    block: Block,
    event: Fields,
}

/// A block whose events are being read.
#[derive(Default)]
struct Block {
    content: Vec<u8>,
    at: usize,
    /// Events that are left.
    events: u32,
    /// The last stamp.
    stamp: u64,
    /// Its offset in the recording.
    offset: u64,
}

/// An event with its payload's place in the block.
struct Fields {
    at: u64,
    connection: u32,
    direction: Direction,
    kind: Kind,
    payload: Range<usize>,
}

impl Decoder {
    /// Begins a recording.
    ///
    /// # Errors
    /// If zstd gets no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            zstd: zstd::bulk::Decompressor::new()?,
            input: Vec::new(),
            at: 0,
            offset: 0,
            has_preamble: false,
            is_searching: false,
            block: Block::default(),
            event: Fields { at: 0, connection: 0, direction: Direction::In, kind: Kind::Opened, payload: 0..0 },
        })
    }

    /// Takes the next bytes of the recording.
    ///
    /// They are kept until a block is whole. A block has at most 16 MiB, so read all events before the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Moves to the next event. Without one, the decoder needs more bytes.
    ///
    /// # Errors
    /// If a part of the recording cannot be read. After damage, the next call goes on behind it.
    pub fn advance(&mut self) -> Result<bool, RecordError> {
        while self.block.events == 0 {
            if !self.open()? {
                return Ok(false);
            }
        }
        match self.block.next() {
            Some(event) => {
                self.event = event;
                Ok(true)
            }
            // The checksum was right, so its writer made a mistake.
            None => {
                let fault = RecordFault::Damaged { events: Some(self.block.events) };
                self.block.events = 0;
                Err(RecordError { offset: self.block.offset, fault })
            }
        }
    }

    /// The event that [`advance`](Self::advance) has moved to.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        let Fields { at, connection, direction, kind, ref payload } = self.event;
        let payload = self.block.content.get(payload.clone()).unwrap_or_default();
        Event { at, connection, direction, kind, payload }
    }

    /// Checks that nothing is left when no bytes follow.
    ///
    /// # Errors
    /// If the recording ends within a block. A write that failed amid it may have been followed by others, so
    /// [`advance`](Self::advance) goes on behind the beginning of that block. Then ask again.
    pub fn finish(&mut self) -> Result<(), RecordError> {
        let left = self.rest().len();
        if left == 0 || self.is_searching && left < HEADER {
            return Ok(());
        }
        let wrong = self.wrong(RecordFault::Torn(left as u64));
        self.at += if self.has_preamble { 1 } else { left };
        self.is_searching = true;
        wrong
    }

    fn rest(&self) -> &[u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    fn wrong<T>(&self, fault: RecordFault) -> Result<T, RecordError> {
        Err(RecordError { offset: self.offset + self.at as u64, fault })
    }

    /// Opens the next block. Without a whole one, more bytes are needed.
    fn open(&mut self) -> Result<bool, RecordError> {
        if !self.has_preamble && !self.preamble()? {
            return Ok(false);
        }
        if self.is_searching {
            self.search();
        }
        if self.rest().len() < HEADER {
            return Ok(false);
        }
        let Some(header) = Header::from_bytes(self.rest()) else {
            let was_searching = core::mem::replace(&mut self.is_searching, true);
            let wrong = self.wrong(RecordFault::Damaged { events: None });
            self.at += 1;
            return if was_searching { Ok(self.rest().len() >= HEADER) } else { wrong };
        };
        let end = HEADER + header.compressed as usize;
        if self.rest().len() < end {
            return Ok(false);
        }
        let opened = self.decompress(&header, end);
        // If a write failed amid this block, the next one does not begin where the header says.
        self.is_searching = !opened;
        if !opened {
            let wrong = self.wrong(RecordFault::Damaged { events: Some(header.events) });
            self.at += 1;
            return wrong;
        }
        let offset = self.offset + self.at as u64;
        self.at += end;
        let content = core::mem::take(&mut self.block.content);
        self.block = Block { content, at: 0, events: header.events, stamp: header.first, offset };
        Ok(true)
    }

    fn preamble(&mut self) -> Result<bool, RecordError> {
        let (version, name) = (PREAMBLE[PREAMBLE.len() - 1], &PREAMBLE[..PREAMBLE.len() - 1]);
        let begin = self.rest().get(..name.len()).unwrap_or_else(|| self.rest());
        if !name.starts_with(begin) {
            return self.wrong(RecordFault::NoRecording);
        }
        match self.rest().get(name.len()) {
            None => Ok(false),
            Some(other) if *other != version => self.wrong(RecordFault::Version(*other)),
            Some(_) => {
                self.at += PREAMBLE.len();
                self.has_preamble = true;
                Ok(true)
            }
        }
    }

    /// Passes bytes up to those that may begin a block.
    fn search(&mut self) {
        let rest = self.rest();
        let found = rest.windows(MARK.len()).position(|window| window == MARK);
        // Without a mark, the last bytes may be the first ones of it.
        self.at += found.unwrap_or_else(|| rest.len().saturating_sub(MARK.len() - 1));
    }

    /// Checks and decompresses a block into its content.
    fn decompress(&mut self, header: &Header, end: usize) -> bool {
        let Some(compressed) = self.input.get(self.at + HEADER..self.at + end) else { return false };
        if crc32fast::hash(compressed) != header.checksum {
            return false;
        }
        self.block.content.clear();
        self.block.content.reserve(header.content as usize);
        let done = self.zstd.decompress_to_buffer(compressed, &mut self.block.content);
        done.is_ok_and(|len| len == header.content as usize)
    }
}

impl Block {
    fn next(&mut self) -> Option<Fields> {
        let head = *self.content.get(self.at)?;
        let mut at = self.at + 1;
        let difference = varint::unzigzag(varint::take(&self.content, &mut at)?);
        let connection = u32::try_from(varint::take(&self.content, &mut at)?).ok()?;
        let len = usize::try_from(varint::take(&self.content, &mut at)?).ok()?;
        let end = at.checked_add(len)?;
        self.content.get(at..end)?;
        self.stamp = self.stamp.wrapping_add_signed(difference);
        self.at = end;
        self.events -= 1;
        let direction = if head & 0x80 == 0 { Direction::In } else { Direction::Out };
        Some(Fields { at: self.stamp, connection, direction, kind: Kind::from_number(head), payload: at..end })
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset + self.at as u64;
        formatter.debug_struct("Decoder").field("offset", &offset).finish_non_exhaustive()
    }
}
