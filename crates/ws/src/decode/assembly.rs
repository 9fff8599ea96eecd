#![expect(unsafe_code, reason = "text is validated as it arrives, not a second time")]

use crate::deflate::Inflater;
use crate::utf8::Utf8;
use crate::{Error, Kind, Message};
use tautline_buf::{Buf, Pool};

/// Unmasked bytes of a message and of a control frame that are not in one piece in the input.
///
/// It validates the text of a message itself, as bytes are added, and so can answer for [`whole`](Self::whole).
///
/// INVARIANT: if `content` is [`Content::Text`], `utf8` is in the state of one that was given the first `message` bytes of
/// `bytes`, in order, and accepted them.
pub(super) struct Assembly {
    /// The message so far, and behind it the control frame so far.
    bytes: Buf,
    /// Bytes of the message so far.
    message: usize,
    content: Content,
    event: Held,
    utf8: Utf8,
}

/// The kind of a message, and how it is handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Binary,
    Text,
    /// Text whose pieces are handed out and dropped before it ends, or text that is not valid.
    TextInPieces,
}

/// The bytes that belong to the last event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    None,
    /// Those behind the message.
    Control,
    /// Those of the message.
    Message,
}

impl Content {
    pub(super) const fn of(kind: Kind, in_pieces: bool) -> Self {
        match (kind, in_pieces) {
            (Kind::Binary, _) => Self::Binary,
            (Kind::Text, false) => Self::Text,
            (Kind::Text, true) => Self::TextInPieces,
        }
    }
}

impl Assembly {
    /// Memory that is reserved for an incomplete frame, as a multiple of the bytes that arrived. The pool rounds it up to
    /// a power of two, so it is less than six times those bytes. A frame's length alone reserves none.
    const AHEAD: usize = 3;

    pub(super) const fn new() -> Self {
        Self { bytes: Buf::new(), message: 0, content: Content::Binary, event: Held::None, utf8: Utf8::new() }
    }

    /// Begins a message. All bytes before it are dropped.
    pub(super) fn begin(&mut self, content: Content) {
        self.bytes.truncate(0);
        (self.message, self.content, self.event, self.utf8) = (0, content, Held::None, Utf8::new());
    }

    /// Appends `len` bytes of the message, which `fill` writes. The frame has `remaining` bytes that are not in here.
    pub(super) fn append(
        &mut self,
        len: usize,
        remaining: u64,
        pool: &mut Pool,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Error> {
        self.bytes.truncate(self.message);
        self.extend(len, remaining, pool, fill);
        self.validate()
    }

    /// Appends `len` bytes of a control frame, as [`append`](Self::append) does.
    pub(super) fn append_control(&mut self, len: usize, remaining: u64, pool: &mut Pool, fill: impl FnOnce(&mut [u8])) {
        self.extend(len, remaining, pool, fill);
    }

    /// Inflates a piece of the message and appends it.
    pub(super) fn inflate(
        &mut self,
        inflater: &mut Inflater,
        piece: &[u8],
        last: bool,
        max_message: usize,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        self.bytes.truncate(self.message);
        if !self.bytes.has_memory() {
            self.bytes = pool.take();
        }
        let inflated = inflater.inflate(piece, last, max_message, &mut self.bytes);
        if inflated.is_ok() && !last {
            pool.fit(&mut self.bytes);
        }
        inflated.and_then(|()| self.validate())
    }

    /// Validates a piece of text that is handed out from where it lies.
    pub(super) fn pass(&mut self, piece: &[u8]) -> Result<(), Error> {
        if self.content == Content::Binary {
            return Ok(());
        }
        self.content = Content::TextInPieces;
        self.utf8.push(piece)
    }

    /// Ends the message's text. Fails if that is inside a character.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if self.content == Content::Binary { Ok(()) } else { self.utf8.finish() }
    }

    /// The message, which [ended](Self::finish).
    pub(super) fn whole(&self) -> Result<Message<'_>, Error> {
        let data = &self.bytes.filled()[..self.message];
        match self.content {
            Content::Binary => Message::validate(Kind::Binary, data),
            Content::TextInPieces => Message::validate(Kind::Text, data),
            Content::Text => {
                self.utf8.finish()?;
                // SAFETY: `utf8` has accepted exactly these bytes (INVARIANT), and they end behind a character.
                Ok(unsafe { Message::new_unchecked(Kind::Text, data) })
            }
        }
    }

    /// Keeps the bytes of the message for the event that is handed out.
    pub(super) const fn hand_out_message(&mut self) {
        self.event = Held::Message;
    }

    /// Keeps the bytes of the control frame for the event that is handed out.
    pub(super) const fn hand_out_control(&mut self) {
        self.event = Held::Control;
    }

    /// The bytes of the last event, if they are in here.
    pub(super) fn held(&self) -> Option<&[u8]> {
        let (message, control) = self.parts();
        match self.event {
            Held::None => None,
            Held::Control => Some(control),
            Held::Message => Some(message),
        }
    }

    /// Drops the bytes of the last event; an empty buffer goes back to the pool.
    pub(super) fn release(&mut self, pool: &mut Pool) {
        match self.event {
            Held::None => {}
            Held::Control => self.bytes.truncate(self.message),
            Held::Message if self.content == Content::TextInPieces => self.drop_message(),
            Held::Message => self.begin(self.content),
        }
        self.event = Held::None;
        if self.bytes.is_empty() {
            pool.give(core::mem::take(&mut self.bytes));
        }
    }

    /// Drops all bytes.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        self.event = Held::Message;
        self.release(pool);
    }

    /// The bytes of the message, and those of the control frame.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.filled().split_at(self.message)
    }

    /// The bytes of an incomplete character at the end of the text.
    pub(super) fn incomplete(&self) -> &[u8] {
        self.utf8.incomplete()
    }

    /// Takes over a message that [began](Self::begin): its bytes so far, and the incomplete character of text in pieces.
    /// Returns whether they can be such a message's.
    pub(super) fn import(&mut self, message: &[u8], character: &[u8]) -> bool {
        self.bytes.put(message);
        let is_end = match self.content {
            Content::TextInPieces => self.utf8.accepts_incomplete(character),
            Content::Binary | Content::Text => character.is_empty(),
        };
        is_end && self.validate().is_ok()
    }

    /// Takes over the bytes so far of a control frame.
    pub(super) fn import_control(&mut self, control: &[u8]) {
        self.bytes.put(control);
    }

    /// Whether there are bytes of a control frame.
    pub(super) const fn has_control(&self) -> bool {
        self.bytes.len() > self.message
    }

    /// Whether the last event has bytes in here.
    pub(super) fn is_held(&self) -> bool {
        self.event != Held::None
    }

    /// Whether there are no bytes of a message.
    pub(super) const fn has_no_message(&self) -> bool {
        self.message == 0
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) const fn has_memory(&self) -> bool {
        self.bytes.has_memory()
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn drop_message(&mut self) {
        self.bytes.truncate(0);
        self.message = 0;
    }

    fn extend(&mut self, len: usize, remaining: u64, pool: &mut Pool, fill: impl FnOnce(&mut [u8])) {
        if self.bytes.room() < len {
            // Memory is reserved ahead, so that a large frame rarely grows it.
            let held = self.bytes.len();
            let ahead = (held + len).saturating_mul(Self::AHEAD) - held;
            let wanted = usize::try_from(remaining).map_or(ahead, |remaining| remaining.min(ahead));
            pool.reserve(&mut self.bytes, wanted.max(len));
        }
        fill(&mut self.bytes.reserve(len)[..len]);
        self.bytes.commit(len);
    }

    /// Takes the bytes behind the message into it. Text that is not valid is never whole text again.
    fn validate(&mut self) -> Result<(), Error> {
        if self.content != Content::Binary
            && let Err(error) = self.utf8.push(&self.bytes.filled()[self.message..])
        {
            self.content = Content::TextInPieces;
            return Err(error);
        }
        self.message = self.bytes.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembly, Content};
    use crate::Error;
    use tautline_buf::Pool;

    fn append(assembly: &mut Assembly, bytes: &[u8]) -> Result<(), Error> {
        let mut pool = Pool::new(1 << 20);
        assembly.append(bytes.len(), bytes.len() as u64, &mut pool, |free| free.copy_from_slice(bytes))
    }

    #[test]
    fn text_that_is_not_whole_or_not_valid_is_never_handed_out() {
        let mut assembly = Assembly::new();
        assembly.begin(Content::Text);
        append(&mut assembly, b"caf\xc3").unwrap();
        assert_eq!(assembly.whole(), Err(Error::InvalidUtf8));
        append(&mut assembly, b"\xa9").unwrap();
        assert_eq!(assembly.whole().unwrap().text(), Some("caf\u{e9}"));
        assert_eq!(append(&mut assembly, b"\xe2\x28"), Err(Error::InvalidUtf8));
        assert_eq!(append(&mut assembly, b"\xff"), Err(Error::InvalidUtf8));
        // The bytes that were valid are left, and validated again.
        assert_eq!(assembly.whole().unwrap().text(), Some("caf\u{e9}"));
    }

    #[test]
    fn bytes_of_a_control_frame_are_never_part_of_a_text() {
        let (mut assembly, mut pool) = (Assembly::new(), Pool::new(1 << 20));
        assembly.begin(Content::Text);
        append(&mut assembly, b"a").unwrap();
        assembly.append_control(1, 1, &mut pool, |free| free.copy_from_slice(b"\xff"));
        assert_eq!(assembly.whole().unwrap().text(), Some("a"));
        append(&mut assembly, b"b").unwrap();
        assert_eq!(assembly.whole().unwrap().text(), Some("ab"));
    }

    #[test]
    fn text_of_which_a_piece_is_gone_is_validated_again() {
        let (mut assembly, mut pool) = (Assembly::new(), Pool::new(1 << 20));
        for content in [Content::Text, Content::TextInPieces] {
            assembly.begin(content);
            append(&mut assembly, b"\xc3").unwrap();
            assembly.hand_out_message();
            assembly.release(&mut pool);
            let _ = append(&mut assembly, b"\xa9");
            assert!(assembly.whole().map_or(true, |message| message.data().is_empty()));
        }
        assembly.begin(Content::Text);
        assembly.pass(b"\xc3").unwrap();
        append(&mut assembly, b"\xa9").unwrap();
        assert_eq!(assembly.whole(), Err(Error::InvalidUtf8));
    }
}
