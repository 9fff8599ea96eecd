//! Field sections (RFC 7541): decoded within limits, encoded without a dynamic table.

use crate::code::{Code, Fault};
use crate::limits::Limits;
use loona_hpack::{Decoder, Encoder};

/// Bytes of the table that the peer may fill (`SETTINGS_HEADER_TABLE_SIZE`).
pub(crate) const TABLE: u32 = 4096;
/// The cost of a field beside its bytes (RFC 9113, section 6.5.2).
const COST: usize = 32;

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

    fn push(&mut self, name: &[u8], value: &[u8], limits: &Limits) {
        let sum = self.bytes.len() + name.len() + value.len() + (self.ends.len() + 1) * COST;
        self.is_over |= sum > limits.fields as usize || self.ends.len() >= limits.field_count as usize;
        if self.is_over {
            return;
        }
        let mut end = |bytes: &[u8]| {
            self.bytes.extend_from_slice(bytes);
            u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
        };
        let ends = (end(name), end(value));
        self.ends.push(ends);
    }
}

/// The decoder of the peer's field sections, with its dynamic table.
pub(crate) struct BlockDecoder(Decoder<'static>);

impl BlockDecoder {
    pub(crate) fn new() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE as usize);
        Self(decoder)
    }

    /// Decodes a whole section. All of it is decoded, also beyond a limit, since later sections refer to its fields.
    pub(crate) fn decode(&mut self, block: &[u8], limits: &Limits) -> Result<Fields, Fault> {
        let mut fields = Fields::default();
        let decoded = self.0.decode_with_cb(block, |name, value| fields.push(&name, &value, limits));
        let fault = Fault { code: Code::COMPRESSION_ERROR, why: "a field section cannot be decoded" };
        decoded.map(|()| fields).map_err(|_| fault)
    }
}

impl core::fmt::Debug for BlockDecoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("BlockDecoder")
    }
}

/// Encodes a section. No later one refers to it, so that no state is kept.
pub(crate) fn encode<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.set_max_table_size(0);
    encoder.encode(fields)
}

#[cfg(test)]
mod tests {
    use super::{BlockDecoder, encode};
    use crate::limits::Limits;

    fn decode(decoder: &mut BlockDecoder, block: &[u8], limits: &Limits) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decoder.decode(block, limits).unwrap().iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_section_is_decoded_as_it_was_encoded() {
        let fields: [(&[u8], &[u8]); 3] = [(b":status", b"200"), (b"server", b"x"), (b"x-own", b"y")];
        let (block, mut decoder) = (encode(fields), BlockDecoder::new());
        for _ in 0..3 {
            let back = decode(&mut decoder, &block, &Limits::default());
            assert_eq!(back.len(), 3);
            assert_eq!(back[2], ("x-own".to_owned(), "y".to_owned()));
        }
    }

    #[test]
    fn later_sections_refer_to_earlier_ones() {
        let (limits, mut decoder) = (Limits::default(), BlockDecoder::new());
        // RFC 7541, C.3.1 to C.3.3.
        decode(&mut decoder, b"\x82\x86\x84\x41\x0fwww.example.com", &limits);
        decode(&mut decoder, b"\x82\x86\x84\xbe\x58\x08no-cache", &limits);
        let fields = decode(&mut decoder, b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value", &limits);
        assert_eq!(fields[3], (":authority".to_owned(), "www.example.com".to_owned()));
    }

    #[test]
    fn fields_that_expand_without_bound_are_cut_off() {
        let limits = Limits::default();
        let mut decoder = BlockDecoder::new();
        let value = "v".repeat(4000);
        let mut block = encode([(&b"bomb"[..], value.as_bytes())]);
        // Each further byte names the entry again.
        block.extend(std::iter::repeat_n(0xbe, 16_000));
        let fields = decoder.decode(&block, &limits).unwrap();
        assert!(fields.is_over && fields.bytes.capacity() < 64 << 10);
    }

    #[test]
    fn a_table_above_ours_is_an_error() {
        // A size update to 8,192.
        assert!(BlockDecoder::new().decode(b"\x3f\xe1\x3f", &Limits::default()).is_err());
    }
}
