//! A stream in memory that moves a random number of bytes at a time, and often none.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that one direction holds at most.
const CAPACITY: usize = 6000;

/// xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    ended: bool,
}

/// One end of the stream.
pub(crate) struct End {
    incoming: Arc<Mutex<Direction>>,
    outgoing: Arc<Mutex<Direction>>,
    random: Random,
}

/// Both ends. They wake no task: poll again.
pub(crate) fn pair(seed: u64) -> (End, End) {
    let (a, b) = (Arc::<Mutex<Direction>>::default(), Arc::<Mutex<Direction>>::default());
    let one = End { incoming: a.clone(), outgoing: b.clone(), random: Random(seed) };
    (one, End { incoming: b, outgoing: a, random: Random(!seed) })
}

impl End {
    /// Bytes to move now; `None` to wait.
    fn step(&mut self) -> Option<usize> {
        match self.random.below(6) {
            0 | 1 => None,
            2 => Some(1 + self.random.below(7) as usize),
            3 => Some(1 + self.random.below(300) as usize),
            _ => Some(CAPACITY),
        }
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(most) = self.step() else { return Poll::Pending };
        let mut incoming = self.incoming.lock().unwrap();
        if incoming.bytes.is_empty() {
            return if incoming.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let len = most.min(incoming.bytes.len()).min(buf.remaining());
        let bytes: Vec<u8> = incoming.bytes.drain(..len).collect();
        buf.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(most) = self.step() else { return Poll::Pending };
        let mut outgoing = self.outgoing.lock().unwrap();
        let len = most.min(bytes.len()).min(CAPACITY - outgoing.bytes.len());
        if len == 0 {
            return Poll::Pending;
        }
        outgoing.bytes.extend(&bytes[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.lock().unwrap().ended = true;
        Poll::Ready(Ok(()))
    }
}
