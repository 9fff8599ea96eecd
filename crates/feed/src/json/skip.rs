use super::MAX_DEPTH;
use super::error::{Expected, JsonError, wrong};
use super::text::string;
use crate::number::number_end;

/// Passes a value of any kind, and checks it. Returns the offset behind it. `depth` counts the objects and arrays around it.
pub(super) fn value(text: &[u8], start: usize, depth: u32) -> Result<usize, JsonError> {
    let mut open = Open { objects: 0, count: 0, most: MAX_DEPTH.saturating_sub(depth) };
    let mut at = start;
    loop {
        at = blank(text, at);
        at = match text.get(at) {
            Some(b'{') => {
                open.push(at, true)?;
                let first = blank(text, at + 1);
                if text.get(first) != Some(&b'}') {
                    at = key(text, first)?;
                    continue;
                }
                first
            }
            Some(b'[') => {
                open.push(at, false)?;
                let first = blank(text, at + 1);
                if text.get(first) != Some(&b']') {
                    at = first;
                    continue;
                }
                first
            }
            Some(b'"') => string(text, at + 1)?.1,
            Some(b'-' | b'0'..=b'9') => number_end(text, at)?,
            Some(b't') => literal(text, at, b"true")?,
            Some(b'f') => literal(text, at, b"false")?,
            Some(b'n') => literal(text, at, b"null")?,
            _ => return wrong(at, Expected::Value),
        };
        // Here a value has ended, or the last one of an object or array, whose own end is read now.
        loop {
            let Some(in_object) = open.last() else { return Ok(at) };
            at = blank(text, at);
            match text.get(at) {
                Some(b',') if in_object => {
                    at = key(text, blank(text, at + 1))?;
                    break;
                }
                Some(b',') => {
                    at += 1;
                    break;
                }
                Some(b'}') if in_object => {}
                Some(b']') if !in_object => {}
                _ => return wrong(at, if in_object { Expected::CommaOrBrace } else { Expected::CommaOrBracket }),
            }
            open.pop();
            at += 1;
        }
    }
}

/// The kinds of the objects and arrays that are open, one bit for each.
struct Open {
    objects: u64,
    count: u32,
    most: u32,
}

impl Open {
    #[inline]
    fn push(&mut self, at: usize, is_object: bool) -> Result<(), JsonError> {
        if self.count >= self.most {
            return wrong(at, Expected::LessDepth);
        }
        self.objects = self.objects << 1 | u64::from(is_object);
        self.count += 1;
        Ok(())
    }

    #[inline]
    const fn pop(&mut self) {
        self.objects >>= 1;
        self.count = self.count.saturating_sub(1);
    }

    /// Whether the innermost one is an object, if one is open.
    #[inline]
    const fn last(&self) -> Option<bool> {
        if self.count == 0 { None } else { Some(self.objects & 1 == 1) }
    }
}

/// The offset of the next byte that is not white space.
#[inline]
pub(super) fn blank(text: &[u8], mut at: usize) -> usize {
    // Venues send few blanks or none, so one comparison comes first.
    while let Some(0..=b' ') = text.get(at)
        && let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(at)
    {
        at += 1;
    }
    at
}

/// Passes the key of a field with its colon. Returns the offset of what follows.
#[inline]
fn key(text: &[u8], at: usize) -> Result<usize, JsonError> {
    if text.get(at) != Some(&b'"') {
        return wrong(at, Expected::String);
    }
    let colon = blank(text, string(text, at + 1)?.1);
    if text.get(colon) == Some(&b':') { Ok(colon + 1) } else { wrong(colon, Expected::Colon) }
}

/// Passes a word of JSON.
#[inline]
pub(super) fn literal(text: &[u8], at: usize, word: &[u8]) -> Result<usize, JsonError> {
    let end = at + word.len();
    if text.get(at..end) == Some(word) { Ok(end) } else { wrong(at, Expected::Value) }
}
