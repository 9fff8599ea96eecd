//! Field sections (RFC 7541): decoded within limits, encoded without a dynamic table.

use crate::code::{Code, Fault};
use crate::hpack::table::{Table, find};
use crate::hpack::{huffman, integer};
use crate::limits::Limits;
use tautline_buf::Buf;

/// Bytes of the table that the peer may fill (`SETTINGS_HEADER_TABLE_SIZE`).
pub(crate) const TABLE: u32 = 4096;
/// The cost of a field beside its bytes (RFC 9113, section 6.5.2).
const COST: usize = 32;
/// How many times the fields that are taken a section may have without the end of its connection.
const FAR: usize = 8;
/// Bytes and fields of usual sections.
const USUAL: (usize, usize) = (512, 16);
/// The first bit of a string that is encoded by the Huffman code.
const HUFFMAN: u8 = 0x80;
/// An update of the table's size to zero, which a section begins with: its reader keeps no entries.
pub(crate) const FORGET: u8 = 0x20;

/// The fields of a section, one behind the other in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    bytes: Vec<u8>,
    /// The ends of name and value of each.
    ends: Vec<(u32, u32)>,
    /// Whether there were more of them than a limit allows.
    pub(crate) is_over: bool,
}

impl Fields {
    /// Names and values, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&(name, value)| {
            let field = (&self.bytes[begin..name as usize], &self.bytes[name as usize..value as usize]);
            begin = value as usize;
            field
        })
    }

    /// The bytes from `begin` on are a field, whose name ends at `name`. It is dropped if it is beyond a limit.
    fn end_field(&mut self, begin: usize, name: usize, limits: &Limits) {
        let sum = self.bytes.len() + (self.ends.len() + 1) * COST;
        self.is_over |= sum > limits.fields as usize || self.ends.len() >= limits.field_count as usize;
        if self.is_over {
            return self.bytes.truncate(begin);
        }
        // A section has less than 4 GiB.
        let end = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.ends.push((end(name), end(self.bytes.len())));
    }
}

/// The decoder of the peer's field sections, with its dynamic table.
#[derive(Debug)]
pub(crate) struct BlockDecoder(Table);

/// The reason why a section has no fields.
enum Wrong {
    /// It breaks a rule of RFC 7541.
    Bytes,
    /// It has far too many fields.
    Far,
}

impl BlockDecoder {
    pub(crate) const fn new() -> Self {
        Self(Table::new(TABLE as usize))
    }

    /// The memory of the table, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.held()
    }

    /// Decodes a whole section. All of it is decoded, also beyond a limit, since later sections refer to its fields.
    ///
    /// A section with [`FAR`] times as many fields ends the connection: a field can take one byte there.
    pub(crate) fn decode(&mut self, block: &[u8], limits: &Limits) -> Result<Fields, Fault> {
        self.fields(block, limits).map_err(|wrong| match wrong {
            Wrong::Bytes => Fault { code: Code::COMPRESSION_ERROR, why: "a field section cannot be decoded" },
            Wrong::Far => Fault::flood("a field section has far more fields than are taken"),
        })
    }

    fn fields(&mut self, block: &[u8], limits: &Limits) -> Result<Fields, Wrong> {
        let (bytes, count) = USUAL;
        let mut fields = Fields { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(count), is_over: false };
        let (mut rest, mut left) = (block, (limits.field_count as usize).saturating_mul(FAR));
        let mut has_begun = false;
        while let Some(&first) = rest.first() {
            left = left.checked_sub(1).ok_or(Wrong::Far)?;
            if first & 0xe0 == 0x20 {
                // RFC 7541, section 4.2: such updates come first.
                self.resize(&mut rest, has_begun).ok_or(Wrong::Bytes)?;
                continue;
            }
            has_begun = true;
            self.field(first, &mut rest, &mut fields, limits).ok_or(Wrong::Bytes)?;
        }
        // A section of updates alone is none.
        if has_begun || block.is_empty() { Ok(fields) } else { Err(Wrong::Bytes) }
    }

    fn resize(&mut self, rest: &mut &[u8], has_begun: bool) -> Option<()> {
        let size = integer::take(rest, 5)?;
        let is_valid = !has_begun && size <= TABLE as usize;
        is_valid.then(|| self.0.resize(size))
    }

    /// Reads a field that begins with `first` (RFC 7541, section 6).
    fn field(&mut self, first: u8, rest: &mut &[u8], fields: &mut Fields, limits: &Limits) -> Option<()> {
        let begin = fields.bytes.len();
        if first & 0x80 != 0 {
            let (name, value) = self.0.get(integer::take(rest, 7)?)?;
            if !fields.is_over {
                fields.bytes.extend_from_slice(name);
                fields.bytes.extend_from_slice(value);
                fields.end_field(begin, begin + name.len(), limits);
            }
            return Some(());
        }
        let is_added = first & 0x40 != 0;
        match integer::take(rest, if is_added { 6 } else { 4 })? {
            0 => string(rest, &mut fields.bytes)?,
            index => fields.bytes.extend_from_slice(self.0.get(index)?.0),
        }
        let name = fields.bytes.len();
        string(rest, &mut fields.bytes)?;
        if is_added {
            self.0.add(&fields.bytes[begin..], name - begin);
        }
        fields.end_field(begin, name, limits);
        Some(())
    }
}

/// Takes a string (RFC 7541, section 5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let is_huffman = block.first()? & HUFFMAN != 0;
    let len = integer::take(block, 7)?;
    let (bytes, rest) = block.split_at_checked(len)?;
    *block = rest;
    if is_huffman {
        return huffman::decode(bytes, out);
    }
    out.extend_from_slice(bytes);
    Some(())
}

/// Appends a field of a section. No later field refers to it, so that no state is kept.
pub(crate) fn put(name: &[u8], value: &[u8], out: &mut Buf) {
    let put_string = |bytes: &[u8], out: &mut Buf| {
        integer::put(bytes.len(), 7, 0, out);
        out.put(bytes);
    };
    match find(name, value) {
        Some((index, true)) => integer::put(index, 7, 0x80, out),
        Some((index, false)) => {
            integer::put(index, 4, 0, out);
            put_string(value, out);
        }
        None => {
            out.put(&[0]);
            put_string(name, out);
            put_string(value, out);
        }
    }
}

/// Appends fields of a section.
pub(crate) fn put_all<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>, out: &mut Buf) {
    fields.into_iter().for_each(|(name, value)| put(name, value, out));
}

/// The bytes of a section.
#[cfg(test)]
pub(crate) fn encode<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut out = Buf::new();
    put_all(fields, &mut out);
    out.filled().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{BlockDecoder, encode};
    use crate::code::Code;
    use crate::limits::Limits;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use std::time::{Duration, Instant};

    fn decode(decoder: &mut BlockDecoder, block: &[u8], limits: &Limits) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decoder.decode(block, limits).unwrap().iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn code(block: &[u8]) -> Option<Code> {
        BlockDecoder::new().decode(block, &Limits::default()).err().map(|fault| fault.code)
    }

    #[test]
    fn a_section_is_decoded_as_it_was_encoded() {
        let long = "v".repeat(300);
        let fields: [(&[u8], &[u8]); 4] =
            [(b":status", b"200"), (b"server", b"x"), (b"x-own", b"y"), (b"long", long.as_bytes())];
        let (block, mut decoder) = (encode(fields), BlockDecoder::new());
        assert_eq!(block[0], 0x88, "one byte for a field of the static table");
        for _ in 0..3 {
            let back = decode(&mut decoder, &block, &Limits::default());
            assert_eq!((back.len(), &back[3].1), (4, &long));
            assert_eq!(back[2], ("x-own".to_owned(), "y".to_owned()));
        }
    }

    #[test]
    fn later_sections_refer_to_earlier_ones() {
        let (limits, mut decoder) = (Limits::default(), BlockDecoder::new());
        // RFC 7541, C.4.1 to C.4.3.
        decode(&mut decoder, b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", &limits);
        decode(&mut decoder, b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf", &limits);
        let third = b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
        let fields = decode(&mut decoder, third, &limits);
        assert_eq!(fields[3], (":authority".to_owned(), "www.example.com".to_owned()));
        assert_eq!(fields[4], ("custom-key".to_owned(), "custom-value".to_owned()));
        // An update of the table's size to zero comes first, and all is forgotten.
        assert_eq!(decode(&mut decoder, b"\x20\x82", &limits).len(), 1);
        assert!(decoder.decode(b"\xbe", &limits).is_err());
    }

    #[test]
    fn fields_that_expand_without_bound_are_cut_off() {
        let limits = Limits::default();
        let mut decoder = BlockDecoder::new();
        // A field of 4,004 bytes, which goes to the table.
        let mut block = b"\x40\x04bomb\x7f\xa1\x1e".to_vec();
        block.extend([b'v'; 4000]);
        // Each further byte names the entry again.
        block.extend(std::iter::repeat_n(0xbe, 799));
        let fields = decoder.decode(&block, &limits).unwrap();
        assert!(fields.is_over && fields.bytes.capacity() < 64 << 10);
        block.push(0xbe);
        let fault = decoder.decode(&block, &limits).unwrap_err();
        assert_eq!(fault.code, Code::ENHANCE_YOUR_CALM);
    }

    #[test]
    fn fields_of_all_kinds_are_read_and_cut_ones_are_none() {
        let mut decoder = BlockDecoder::new();
        // Literals that are added, not added, and never added, with names of their own and of the table.
        let block = b"\x3f\xe1\x1f\x40\x01a\x01b\x44\x01/\x00\x01c\x01d\x04\x01x\x10\x01e\x01f\x14\x01y\xbf";
        let fields = decode(&mut decoder, block, &Limits::default());
        let names: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(names, ["a=b", ":path=/", "c=d", ":path=x", "e=f", ":path=y", "a=b"]);
        for len in 1..block.len() {
            let is_whole = [8, 11, 16, 19, 24, 27].contains(&len);
            assert_eq!(code(&block[..len]).is_none(), is_whole, "{len}");
        }
    }

    /// A table for the code that each string has to build would cost a thousand times as much.
    #[test]
    fn strings_cost_no_more_than_their_bytes() {
        // Fields of which both strings are empty, by the Huffman code.
        let (block, begun) = (b"\x00\x80\x80".repeat(800), Instant::now());
        for _ in 0..500 {
            assert!(BlockDecoder::new().decode(&block, &Limits::default()).unwrap().is_over);
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "800,000 strings took {took:?}");
    }

    proptest! {
        /// Sections of another library are decoded, also with its references to earlier sections.
        #[test]
        fn sections_of_another_encoder_are_decoded(
            sections in vec(vec((vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..60)), 0..20), 1..8),
        ) {
            let (mut encoder, mut decoder) = (loona_hpack::Encoder::new(), BlockDecoder::new());
            for fields in &sections {
                let block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
                let decoded = decoder.decode(&block, &Limits::default()).unwrap();
                let back: Vec<_> = decoded.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                prop_assert_eq!(&back, fields);
            }
        }

        /// Another library decodes the same fields. It takes some bytes that are no sections.
        #[test]
        fn bytes_are_decoded_as_by_another_decoder(blocks in vec(vec(any::<u8>(), 0..80), 1..5)) {
            let (mut other, mut decoder) = (loona_hpack::Decoder::new(), BlockDecoder::new());
            for block in &blocks {
                let Ok(decoded) = decoder.decode(block, &Limits::default()) else { return Ok(()) };
                let fields: Vec<_> = decoded.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                prop_assert_eq!(other.decode(block).unwrap(), fields);
            }
        }
    }

    #[test]
    fn broken_sections_are_errors_of_compression() {
        let error = Some(Code::COMPRESSION_ERROR);
        // Updates of the table's size: above ours, behind a field, and alone.
        for block in [&b"\x3f\xe1\x3f\x82"[..], b"\x82\x20", b"\x82\x20\x82", b"\x20"] {
            assert_eq!(code(block), error, "{}", block.escape_ascii());
        }
        // Indices of nothing, an integer without an end, and a string that is no Huffman code.
        for block in [&b"\x80"[..], b"\xbe", b"\x7e\x01a", b"\xff\xff\xff\xff\xff\xff", b"\x01\x81\x00\x82"] {
            assert_eq!(code(block), error, "{}", block.escape_ascii());
        }
        assert_eq!((code(b""), code(b"\x20\x20\x82")), (None, None));
    }
}
