//! A slow inflater, written from RFC 1951 alone: it reads bit by bit, and panics at whatever the RFC forbids.

/// Inflates messages of permessage-deflate whose sender keeps its window.
pub(crate) struct NaiveInflater {
    window: usize,
    /// All that was inflated since the sender forgot its window.
    history: Vec<u8>,
}

/// The four bytes that a sender leaves out at the end of a message (RFC 7692, section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// The order of the lengths of code lengths (RFC 1951, section 3.2.7).
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

impl NaiveInflater {
    pub(crate) const fn new(window: usize) -> Self {
        Self { window, history: Vec::new() }
    }

    /// Forgets the window: the sender's next message refers to nothing before it.
    pub(crate) fn forget(&mut self) {
        self.history.clear();
    }

    /// Inflates one whole message.
    pub(crate) fn inflate(&mut self, payload: &[u8]) -> &[u8] {
        let start = self.history.len();
        let bytes = [payload, &TAIL].concat();
        let mut bits = Bits { bytes: &bytes, at: 0 };
        while bits.at.div_ceil(8) < bytes.len() {
            assert_eq!(bits.take(1), 0, "our compressor ends no stream");
            match bits.take(2) {
                0 => self.stored(&mut bits),
                1 => {
                    let lengths: Vec<u8> = (0..288).map(fixed_length).collect();
                    self.block(&mut bits, &Code::new(&lengths), &Code::new(&[5; 32]));
                }
                2 => {
                    let (literals, distances) = codes(&mut bits);
                    self.block(&mut bits, &literals, &distances);
                }
                _ => panic!("a block of the reserved type"),
            }
        }
        &self.history[start..]
    }

    fn stored(&mut self, bits: &mut Bits<'_>) {
        bits.at = bits.at.next_multiple_of(8);
        let (len, not) = (bits.take(16), bits.take(16));
        assert_eq!(len, !not & 0xffff, "the length of a stored block");
        for _ in 0..len {
            self.history.push(u8::try_from(bits.take(8)).expect("eight bits"));
        }
    }

    fn block(&mut self, bits: &mut Bits<'_>, literals: &Code, distances: &Code) {
        loop {
            let symbol = literals.read(bits);
            if let Ok(byte) = u8::try_from(symbol) {
                self.history.push(byte);
                continue;
            }
            if symbol == 256 {
                return;
            }
            let len = length(symbol, bits);
            let distance = distance(distances.read(bits), bits);
            assert!(distance <= self.window, "distance {distance} in a window of {}", self.window);
            for _ in 0..len {
                let from = self.history.len().checked_sub(distance).expect("a distance within the history");
                self.history.push(self.history[from]);
            }
        }
    }
}

/// Bits of bytes, the least significant first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> usize {
        let mut value = 0;
        for index in 0..count {
            let byte = self.bytes.get(self.at / 8).expect("a block ends before the message does");
            value |= usize::from(byte >> (self.at % 8) & 1) << index;
            self.at += 1;
        }
        value
    }
}

/// A canonical Huffman code (RFC 1951, section 3.2.2).
struct Code {
    /// How many symbols have a code of each length.
    counts: [usize; 16],
    /// The symbols, by length and then by value.
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[u8]) -> Self {
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|&symbol| lengths[symbol] > 0).collect();
        symbols.sort_by_key(|&symbol| lengths[symbol]);
        let mut counts = [0; 16];
        for &symbol in &symbols {
            counts[usize::from(lengths[symbol])] += 1;
        }
        // A code for nothing is never read; one for a single symbol has one bit (section 3.2.7).
        let space: usize = (1..=15).map(|len| counts[len] << (15 - len)).sum();
        assert!(symbols.len() <= 1 || space == 1 << 15, "an incomplete code of {} symbols", symbols.len());
        Self { counts, symbols }
    }

    fn read(&self, bits: &mut Bits<'_>) -> usize {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for len in 1..=15 {
            code = code << 1 | bits.take(1);
            first <<= 1;
            let count = self.counts[len];
            if code < first + count {
                return self.symbols[index + code - first];
            }
            index += count;
            first += count;
        }
        panic!("bits that are no code");
    }
}

const fn fixed_length(symbol: usize) -> u8 {
    match symbol {
        0..144 => 8,
        144..256 => 9,
        256..280 => 7,
        _ => 8,
    }
}

/// Reads the codes of a block that has its own (RFC 1951, section 3.2.7).
fn codes(bits: &mut Bits<'_>) -> (Code, Code) {
    let (literals, distances, count) = (257 + bits.take(5), 1 + bits.take(5), 4 + bits.take(4));
    assert!(literals <= 286 && distances <= 30, "{literals} literals, {distances} distances");
    let mut lengths = [0; 19];
    for &symbol in &ORDER[..count] {
        lengths[symbol] = u8::try_from(bits.take(3)).expect("three bits");
    }
    let code = Code::new(&lengths);
    let mut lengths: Vec<u8> = Vec::new();
    while lengths.len() < literals + distances {
        let (value, count) = match code.read(bits) {
            16 => (*lengths.last().expect("a length to repeat"), 3 + bits.take(2)),
            17 => (0, 3 + bits.take(3)),
            18 => (0, 11 + bits.take(7)),
            len => (u8::try_from(len).expect("a length below 16"), 1),
        };
        lengths.extend(std::iter::repeat_n(value, count));
    }
    assert_eq!(lengths.len(), literals + distances, "a repetition beyond the last code");
    assert!(lengths[256] > 0, "a block without an end");
    let (literals, distances) = lengths.split_at(literals);
    (Code::new(literals), Code::new(distances))
}

fn length(symbol: usize, bits: &mut Bits<'_>) -> usize {
    match symbol {
        257..265 => symbol - 254,
        265..285 => {
            let extra = (symbol - 261) / 4;
            3 + ((4 + (symbol - 261) % 4) << extra) + bits.take(extra)
        }
        285 => 258,
        _ => panic!("length symbol {symbol}"),
    }
}

fn distance(symbol: usize, bits: &mut Bits<'_>) -> usize {
    match symbol {
        0..4 => symbol + 1,
        4..30 => {
            let extra = symbol / 2 - 1;
            1 + ((2 + symbol % 2) << extra) + bits.take(extra)
        }
        _ => panic!("distance symbol {symbol}"),
    }
}
