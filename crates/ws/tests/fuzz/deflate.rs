//! An inflater of its own reads all that our compressor writes, within the negotiated window.

use crate::fuzz::naive_inflate::NaiveInflater;
use tautline_buf::Buf;
use tautline_ws::Role;
use tautline_ws::deflate::{DeflateParams, Deflater};

/// Most bytes that one input makes: four of the largest windows.
const MOST: usize = 128 * 1024;

/// Input: one byte of options (level, takeover, window), then [steps](Sender::step) that build messages.
pub(crate) fn run(data: &[u8]) {
    let Some((&options, mut steps)) = data.split_first() else { return };
    let mut sender = Sender::new(options);
    while !steps.is_empty() && sender.made.len() < MOST {
        steps = sender.step(steps);
    }
    sender.end_message();
}

/// A compressor, with the messages that went into it.
struct Sender {
    deflater: Deflater,
    inflater: NaiveInflater,
    keeps_window: bool,
    /// All bytes so far, for repetitions.
    made: Vec<u8>,
    /// Where in `made` the message begins, and the piece of it that the compressor has not got.
    message: usize,
    piece: usize,
    pieces: usize,
    compressed: Buf,
}

impl Sender {
    fn new(options: u8) -> Self {
        let level = [1, 2, 3, 2][usize::from(options & 3)];
        let forget = options & 4 != 0;
        let bits = 9 + (options >> 3) % 7;
        let params = DeflateParams {
            server_no_context_takeover: forget,
            client_no_context_takeover: true,
            server_max_window_bits: bits,
            client_max_window_bits: 15,
        };
        Self {
            deflater: Deflater::new(&params, Role::Server, level),
            inflater: NaiveInflater::new(1 << bits),
            keeps_window: !forget,
            made: Vec::new(),
            message: 0,
            piece: 0,
            pieces: 0,
            compressed: Buf::new(),
        }
    }

    /// Takes one step of at most three bytes, and the literal bytes behind it. Returns what follows.
    fn step<'a>(&mut self, steps: &'a [u8]) -> &'a [u8] {
        let [op, a, b] = [0, 1, 2].map(|index| steps.get(index).copied().unwrap_or(0));
        let rest = steps.get(3..).unwrap_or(&[]);
        let (size, number) = (usize::from(op >> 3), usize::from(u16::from_be_bytes([a, b])));
        match op & 7 {
            0 => {
                let (literal, rest) = rest.split_at(rest.len().min(size + 1));
                self.made.extend_from_slice(literal);
                return rest;
            }
            1 => self.repeat(number, 3 + size),
            2 => self.repeat(number, 256 * size),
            3 => self.noise(64 * (size + 1), a, b),
            4 => self.made.extend(std::iter::repeat_n(a, (size + 1) * usize::from(b))),
            5 => self.end_piece(),
            6 => self.end_message(),
            _ => self.deflater.release(),
        }
        rest
    }

    /// Appends `len` bytes that stand `distance` back.
    fn repeat(&mut self, distance: usize, len: usize) {
        for _ in 0..len {
            let Some(from) = self.made.len().checked_sub(1 + distance) else { return };
            self.made.push(self.made[from]);
        }
    }

    /// Appends bytes that repeat nothing, of an alphabet of `a` letters.
    fn noise(&mut self, len: usize, a: u8, b: u8) {
        let mut state = u32::from(b) | 0x9e37_0100;
        for _ in 0..len {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.made.push(state.to_be_bytes()[0] % a.max(2));
        }
    }

    fn end_piece(&mut self) {
        let piece = &self.made[self.piece..];
        self.deflater.deflate(piece, false, &mut self.compressed).expect("deflating never fails");
        self.piece = self.made.len();
        self.pieces += 1;
    }

    fn end_message(&mut self) {
        let piece = &self.made[self.piece..];
        self.deflater.deflate(piece, true, &mut self.compressed).expect("deflating never fails");
        let message = &self.made[self.message..];
        let most = message.len() + message.len() / 16 + 16 * (self.pieces + 1);
        assert!(self.compressed.len() <= most, "{} of {}", self.compressed.len(), message.len());
        if !self.keeps_window {
            assert_eq!(self.deflater.memory(), 0, "a compressor without takeover keeps nothing");
            self.inflater.forget();
        }
        let inflated = self.inflater.inflate(self.compressed.filled());
        assert!(inflated == message, "{} bytes became {}", message.len(), inflated.len());
        (self.message, self.piece, self.pieces) = (self.made.len(), self.made.len(), 0);
        self.compressed = Buf::new();
    }
}
