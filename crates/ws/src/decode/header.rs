//! Collects frame headers, and checks them against the state of the stream.

use super::assembly::Content;
use super::{Decoder, Phase, Progress};
use crate::{Error, Header, Kind, Opcode, Role};

/// Bytes of a short compressed message for flushes and the ends of its blocks.
const FLUSHES: usize = 4 << 10;

/// Empty fragments that a message may have whatever its limit.
const LEAST_EMPTY: usize = 4 << 10;

impl Decoder {
    /// Parses the header at the front of `input`, or the rest of one; returns how many bytes were used.
    ///
    /// `None` if the header is incomplete; then all of `input` was used.
    pub(super) fn take_header(&mut self, input: &[u8]) -> Result<Option<usize>, Error> {
        if self.head_len == 0
            && let Some((header, used)) = Header::parse(input)?
        {
            self.begin(header)?;
            return Ok(Some(used));
        }
        let mut used = 0;
        loop {
            let len = usize::from(self.head_len);
            let needed = if len < 2 { 2 } else { Header::len_of(self.head[1]) };
            let n = (needed - len).min(input.len() - used);
            self.head[len..len + n].copy_from_slice(&input[used..used + n]);
            used += n;
            let len = len + n;
            // This also rejects an incomplete header that is already invalid.
            if let Some((header, _)) = Header::parse(&self.head[..len])? {
                self.head_len = 0;
                self.begin(header)?;
                return Ok(Some(used));
            }
            // A header has at most 14 bytes, so the lowest byte is the length.
            self.head_len = len.to_le_bytes()[0];
            if len < needed {
                // The next input continues this header. In `Phase::Idle` the fast path would take it for a new frame.
                self.phase = Phase::Header;
                return Ok(None);
            }
        }
    }

    /// Checks a header against the connection and the message in progress.
    fn begin(&mut self, header: Header) -> Result<(), Error> {
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.1
        //# The server MUST close the connection upon receiving a frame that is not masked.
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.1
        //# A client MUST close a connection if it detects a masked frame.
        self.key = match (self.role, header.key) {
            (Role::Server, Some(key)) => key,
            (Role::Client, None) => [0; 4],
            (Role::Server, None) => return Err(Error::NotMasked),
            (Role::Client, Some(_)) => return Err(Error::Masked),
        };
        match header.opcode {
            Opcode::Text => self.begin_message(Kind::Text, header)?,
            Opcode::Binary => self.begin_message(Kind::Binary, header)?,
            //= https://www.rfc-editor.org/rfc/rfc7692#section-6
            //# An endpoint MUST NOT set the "Per-Message Compressed" bit of control frames and non-first fragments of a
            //# data message.
            _ if header.rsv1 => return Err(Error::ReservedBits),
            Opcode::Continuation if self.message.is_none() => return Err(Error::UnexpectedContinuation),
            _ => {}
        }
        if !header.opcode.is_control() {
            self.fin = header.fin;
            if header.len == 0 {
                self.empty = self.empty.saturating_add(1);
            }
            let most = self.most_received();
            if header.len > most.saturating_sub(self.total) as u64
                || self.empty as usize > self.max_message.max(LEAST_EMPTY)
            {
                return Err(Error::MessageTooBig { limit: self.max_message });
            }
        }
        self.opcode = header.opcode;
        self.remaining = header.len;
        self.phase = Phase::Payload;
        Ok(())
    }

    /// Most bytes of the message in progress as they come.
    ///
    /// DEFLATE writes what it cannot compress in stored blocks, five bytes more for each 65,535, or with fixed codes, of up to nine
    /// bits for a byte. Each flush of a sender adds five bytes, and a sender may flush after every few bytes.
    pub(super) fn most_received(&self) -> usize {
        if self.message.is_some_and(|message| message.compressed) {
            self.max_message.saturating_mul(2).saturating_add(FLUSHES)
        } else {
            self.max_message
        }
    }

    fn begin_message(&mut self, kind: Kind, header: Header) -> Result<(), Error> {
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.4
        //# The fragments of one message MUST NOT be interleaved between the fragments of another message
        if self.message.is_some() {
            return Err(Error::MessageInterleaved);
        }
        if header.rsv1 && self.inflater.is_none() {
            return Err(Error::ReservedBits);
        }
        self.total = 0;
        self.assembly.begin(Content::of(kind, self.streaming));
        self.empty = 0;
        self.message = Some(Progress { kind, compressed: header.rsv1, streaming: self.streaming, first: true });
        Ok(())
    }
}
