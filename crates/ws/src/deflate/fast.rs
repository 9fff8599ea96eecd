use super::bits::{Bits, TAIL};
use super::block::{Block, MAX_BLOCK};
use super::matcher::{Matcher, PIECE};
use core::cell::Cell;
use tautline_buf::Buf;

const _: () = assert!(PIECE <= MAX_BLOCK);

/// Idle matchers that a thread keeps.
const MOST_IDLE: usize = 2;

/// A compressor for small messages: the effort of zlib's levels 1 to 3.
///
/// zlib clears a table of 128 KiB for each message without context takeover, and holds 250 to 380 kB for a connection
/// with it. This one clears nothing, and holds its window and a table of 16 KiB.
///
/// Between messages without context takeover, memory is the thread's. Only its amount depends on earlier messages: the
/// output is the same with new memory.
pub(super) struct FastDeflate {
    matcher: Matcher,
    /// Whether a match gives way to a longer one, and blocks may have codes of their own.
    is_thorough: bool,
    bits: Bits,
}

impl FastDeflate {
    /// Begins a stream, in memory of an earlier one if this thread has any.
    pub(super) fn new(level: u32) -> Self {
        let matcher = with_thread(|thread| thread.idle.pop());
        Self { matcher: matcher.unwrap_or_else(Matcher::new), is_thorough: level > 1, bits: Bits::default() }
    }

    /// Ends the stream, and keeps its memory for the next one of this thread.
    pub(super) fn give_back(mut self) {
        self.matcher.forget();
        with_thread(|thread| {
            if thread.idle.len() < MOST_IDLE {
                thread.idle.push(self.matcher);
            }
        });
    }

    /// Compresses the next bytes, with distances of at most `window`.
    pub(super) fn deflate(&mut self, bytes: &[u8], window: usize, out: &mut Buf) {
        with_thread(|thread| {
            for piece in bytes.chunks(PIECE) {
                self.matcher.search(piece, window, self.is_thorough, &mut thread.block);
                thread.block.write(piece, self.is_thorough, &mut self.bits, out);
            }
        });
    }

    /// Ends the message: an empty stored block, without the end that is not sent.
    pub(super) fn end_message(&mut self, out: &mut Buf) {
        self.bits.begin_stored(out);
    }

    /// Ends the output so far at a whole byte; the message goes on.
    pub(super) fn flush(&mut self, out: &mut Buf) {
        self.bits.begin_stored(out);
        out.put(&TAIL);
    }

    /// Forgets the last message, of `len` bytes, which has ended: no later one refers to it.
    pub(super) fn forget_last(&mut self, len: usize) {
        self.matcher.forget_last(len);
    }

    /// Bytes of memory.
    pub(super) const fn memory(&self) -> usize {
        self.matcher.memory()
    }
}

/// Memory of a thread that compresses.
#[derive(Default)]
struct ThreadMemory {
    block: Block,
    idle: Vec<Matcher>,
}

/// Calls `act` with the memory of this thread, or with new memory while the thread ends.
fn with_thread<R>(act: impl FnOnce(&mut ThreadMemory) -> R) -> R {
    thread_local! {
        static MEMORY: Cell<Option<Box<ThreadMemory>>> = const { Cell::new(None) };
    }
    let mut memory = MEMORY.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = act(&mut memory);
    // Fails while the thread ends; then the memory is freed here.
    let _ = MEMORY.try_with(|kept| kept.set(Some(memory)));
    result
}
