use crate::Error;
use core::str;

/// Returns `bytes` as text if they are UTF-8.
#[inline]
pub(crate) fn validate(bytes: &[u8]) -> Result<&str, Error> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| Error::InvalidUtf8)
}

/// Validates UTF-8 that arrives in pieces, cut anywhere.
///
/// [`push`](Self::push) rejects a piece at its first byte that no continuation can make valid, even inside a character.
///
/// INVARIANT: `carry[..len]` is a proper prefix of one well-formed character.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8 {
    carry: [u8; 4],
    len: u8,
}

impl Utf8 {
    pub(crate) const fn new() -> Self {
        Self { carry: [0; 4], len: 0 }
    }

    /// Validates the next piece.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<(), Error> {
        while self.len > 0 {
            let Some((byte, rest)) = piece.split_first() else { return Ok(()) };
            piece = rest;
            self.extend(*byte)?;
        }
        let tail = piece.len() - incomplete_len(piece);
        let (whole, tail) = piece.split_at(tail);
        validate(whole)?;
        tail.iter().try_for_each(|byte| self.extend(*byte))
    }

    /// Ends the text; fails if the end is inside a character. After success the next text may begin.
    pub(crate) const fn finish(&self) -> Result<(), Error> {
        if self.len == 0 { Ok(()) } else { Err(Error::InvalidUtf8) }
    }

    /// The bytes of an incomplete character at the end.
    pub(crate) fn incomplete(&self) -> &[u8] {
        &self.carry[..self.len.into()]
    }

    /// Pushes `piece` and returns whether it is exactly one incomplete character. An empty piece always passes.
    pub(crate) fn accepts_incomplete(&mut self, piece: &[u8]) -> bool {
        piece.is_empty() || (self.push(piece).is_ok() && self.incomplete() == piece)
    }

    /// Adds one byte to the incomplete character.
    fn extend(&mut self, byte: u8) -> Result<(), Error> {
        let len = usize::from(self.len);
        self.carry[len] = byte;
        match str::from_utf8(&self.carry[..=len]) {
            Ok(_) => self.len = 0,
            // Without `error_len` the bytes can still become a character. Four bytes never can, so `len` stays below 4.
            Err(error) if error.error_len().is_none() => self.len += 1,
            Err(_) => return Err(Error::InvalidUtf8),
        }
        Ok(())
    }
}

/// Returns how many bytes at the end of `bytes` look like an incomplete character: 0 to 3. They are not validated.
fn incomplete_len(bytes: &[u8]) -> usize {
    for (back, byte) in bytes.iter().rev().take(3).enumerate() {
        let width = match byte {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        return if back + 1 < width { back + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::{Utf8, validate};
    use crate::Error;
    use proptest::prelude::*;
    use std::str;

    fn in_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Error> {
        let mut utf8 = Utf8::default();
        pieces.into_iter().try_for_each(|piece| utf8.push(piece))?;
        utf8.finish()
    }

    /// Whether some continuation makes `bytes` valid.
    fn can_become_text(bytes: &[u8]) -> bool {
        str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
    }

    const SAMPLES: &[&[u8]] = &[
        b"",
        b"ASCII",
        "κόσμε ßüß \u{20ac} \u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}".as_bytes(),
        b"\x80",
        b"\xbf\xbf",
        b"\xc0\xaf",
        b"\xc1\xbf",
        b"\xe0\x80\xaf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x80\x80\xaf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xfe",
        b"\xff\xff",
        b"a\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    ];

    #[test]
    fn agrees_with_the_standard_library_for_every_split_in_three() {
        for sample in SAMPLES {
            let expected = str::from_utf8(sample).map(drop).map_err(|_| Error::InvalidUtf8);
            assert_eq!(validate(sample).map(drop), expected);
            for first in 0..=sample.len() {
                for second in first..=sample.len() {
                    let pieces = [&sample[..first], &sample[first..second], &sample[second..]];
                    assert_eq!(in_pieces(pieces), expected, "{pieces:x?}");
                }
            }
        }
    }

    #[test]
    fn rejects_a_text_at_the_first_byte_that_cannot_become_valid() {
        for sample in SAMPLES {
            let mut utf8 = Utf8::default();
            for (i, byte) in sample.iter().enumerate() {
                let accepted = utf8.push(&[*byte]).is_ok();
                assert_eq!(accepted, can_become_text(&sample[..=i]), "{:x?}", &sample[..=i]);
                if !accepted {
                    break;
                }
            }
        }
    }

    #[test]
    fn agrees_with_the_standard_library_for_all_strings_of_four_boundary_bytes() {
        const BYTES: [u8; 18] = [
            0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff,
        ];
        for n in 0..BYTES.len().pow(if cfg!(miri) { 2 } else { 4 }) {
            let mut digits = n;
            let text = [(); 4].map(|()| {
                let digit = digits % BYTES.len();
                digits /= BYTES.len();
                BYTES[digit]
            });
            let mut utf8 = Utf8::default();
            let (a, b) = text.split_at(1 + n % 3);
            let fast = utf8.push(a).and_then(|()| utf8.push(b));
            assert_eq!(fast.is_ok(), can_become_text(&text), "{text:x?}");
            assert_eq!(fast.and_then(|()| utf8.finish()).is_ok(), str::from_utf8(&text).is_ok(), "{text:x?}");
        }
    }

    fn text_with_faults() -> impl Strategy<Value = Vec<u8>> {
        let fault = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
        (".{0,120}", fault).prop_map(|(text, fault)| {
            let mut bytes = text.into_bytes();
            if let Some((at, byte)) = fault.filter(|_| !bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn agrees_with_the_standard_library_for_any_split(
            text in text_with_faults(),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            cuts.sort_by_key(|cut| cut.index(text.len() + 1));
            let mut utf8 = Utf8::default();
            let mut at = 0;
            let mut accepted = true;
            for end in cuts.iter().map(|cut| cut.index(text.len() + 1)).chain([text.len()]) {
                accepted = utf8.push(&text[at..end]).is_ok();
                prop_assert_eq!(accepted, can_become_text(&text[..end]));
                if !accepted {
                    break;
                }
                at = end;
            }
            prop_assert_eq!(accepted && utf8.finish().is_ok(), str::from_utf8(&text).is_ok());
            prop_assert_eq!(validate(&text).is_ok(), str::from_utf8(&text).is_ok());
        }
    }
}
