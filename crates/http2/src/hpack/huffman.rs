//! The Huffman code of strings (RFC 7541, section 5.2), which is only decoded here.

/// Bits of the longest code.
const LONGEST: usize = 30;
/// Bits that one look into [`Code::short`] decides.
const SHORT: u8 = 8;
/// All bytes, and the end of a string, which no string may have.
const SYMBOLS: usize = 257;

/// The bits of each symbol's code (RFC 7541, appendix B).
///
/// The code is canonical: codes of one length follow each other in the order of their symbols, behind all shorter ones. So the
/// lengths say the codes.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6,
    6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6,
    6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22,
    20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23,
    22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22,
    23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22,
    25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The code, by the first bits of what is decoded.
struct Code {
    /// The symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// By the length of a code: the first one of that length, and its place among all.
    first: [(u32, usize); LONGEST + 1],
    /// By the length of a code: the end of the codes of that length, at the left of 32 bits.
    end: [u64; LONGEST + 1],
    /// By the first eight bits: a symbol with a code of at most eight, and the bits of that. Other codes have zero bits here.
    short: [(u16, u8); 1 << SHORT],
}

static CODE: Code = Code::new();

impl Code {
    const fn new() -> Self {
        let mut code = Self {
            symbols: [0; SYMBOLS],
            first: [(0, 0); LONGEST + 1],
            end: [0; LONGEST + 1],
            short: [(0, 0); 1 << SHORT],
        };
        let (mut next, mut place, mut len) = (0_u32, 0, 1_u8);
        while len as usize <= LONGEST {
            next <<= 1;
            code.first[len as usize] = (next, place);
            let mut symbol = 0_u16;
            while (symbol as usize) < SYMBOLS {
                if LENGTHS[symbol as usize] == len {
                    code.symbols[place] = symbol;
                    code.put_short(next, symbol, len);
                    (next, place) = (next + 1, place + 1);
                }
                symbol += 1;
            }
            code.end[len as usize] = (next as u64) << (32 - len);
            len += 1;
        }
        code
    }

    const fn put_short(&mut self, code: u32, symbol: u16, len: u8) {
        if len > SHORT {
            return;
        }
        let (mut at, end) = (code << (SHORT - len), (code + 1) << (SHORT - len));
        while at < end {
            self.short[at as usize] = (symbol, len);
            at += 1;
        }
    }

    /// The first symbol of bits at the left, and the bits of its code.
    #[inline]
    fn read(&self, bits: u64) -> (u16, u32) {
        match self.short[(bits >> (64 - SHORT)) as usize] {
            (_, 0) => self.read_long(bits >> 32),
            (symbol, len) => (symbol, u32::from(len)),
        }
    }

    /// As [`read`](Self::read), for a code of more than eight bits at the left of 32.
    fn read_long(&self, bits: u64) -> (u16, u32) {
        let mut len = SHORT as usize + 1;
        // The end of the longest codes is above all bits.
        while bits >= self.end[len] {
            len += 1;
        }
        let (first, place) = self.first[len];
        // At most 30 bits.
        let at = usize::try_from(bits >> (32 - len)).unwrap_or_default() - first as usize;
        // At most 30.
        (self.symbols[place + at], u32::try_from(len).unwrap_or(u32::MAX))
    }
}

/// Appends the string that `bytes` encode. `None` if they encode none.
pub(crate) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // The shortest code has five bits.
    out.reserve(bytes.len() * 8 / 5);
    // Bits that were read and not decoded, at the left.
    let (mut bits, mut len) = (0_u64, 0_u32);
    let mut rest = bytes.iter();
    loop {
        while len <= 56
            && let Some(byte) = rest.next()
        {
            bits |= u64::from(*byte) << (56 - len);
            len += 8;
        }
        let (symbol, used) = CODE.read(bits);
        if used > len {
            // RFC 7541, section 5.2: less than eight bits of padding, which are ones.
            let is_padding = len == 0 || len < 8 && bits >> (64 - len) == (1 << len) - 1;
            return is_padding.then_some(());
        }
        // The end of strings is no byte.
        out.push(u8::try_from(symbol).ok()?);
        bits <<= used;
        len -= used;
    }
}

#[cfg(test)]
mod tests {
    use super::{LENGTHS, decode};

    fn decoded(bytes: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(bytes, &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn strings_of_the_rfc_are_decoded() {
        for (bytes, text) in [
            // RFC 7541, C.4 and C.6.
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x64\x02", "302"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(bytes).as_deref(), Some(text));
        }
    }

    #[test]
    fn all_symbols_come_back() {
        // Encodes by the lengths, in a way of its own: codes are counted up.
        let mut codes = [0_u64; 257];
        let mut order: Vec<usize> = (0..257).collect();
        order.sort_by_key(|symbol| (LENGTHS[*symbol], *symbol));
        for pair in order.windows(2) {
            codes[pair[1]] = (codes[pair[0]] + 1) << (LENGTHS[pair[1]] - LENGTHS[pair[0]]);
        }
        assert_eq!((codes[256], codes[usize::from(b'0')], codes[22]), (0x3fff_ffff, 0, 0x3fff_fffe));
        for symbol in 0..=255_u8 {
            let mut bits = String::new();
            for one in [symbol, b'a', symbol] {
                let len = usize::from(LENGTHS[usize::from(one)]);
                bits += &format!("{:0len$b}", codes[usize::from(one)]);
            }
            while !bits.len().is_multiple_of(8) {
                bits.push('1');
            }
            let bytes: Vec<u8> =
                (0..bits.len() / 8).map(|at| u8::from_str_radix(&bits[8 * at..8 * at + 8], 2).unwrap()).collect();
            let mut out = Vec::new();
            assert_eq!((decode(&bytes, &mut out), out), (Some(()), vec![symbol, b'a', symbol]));
        }
    }

    #[test]
    fn wrong_padding_and_the_end_of_strings_are_no_string() {
        assert_eq!(decoded(b"\x1f").as_deref(), Some("a"));
        // Padding of zeros, of eight bits, and a code that is cut off.
        for bytes in
            [&b"\x18"[..], b"\x1f\xff", b"\xff", b"\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc\x1f", b"\x1e"]
        {
            assert_eq!(decoded(bytes), None, "{}", bytes.escape_ascii());
        }
    }
}
