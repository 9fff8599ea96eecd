use super::{End, Maker};
use crate::Error;
use crate::cpu::thread_time;
use std::time::Duration;
use tautline::layers::window::Buf;

/// Bytes of payload in a batch, within these numbers of messages: ciphertext and plaintext stay in the second-level cache.
const BATCH: usize = 64 << 10;
const MESSAGES: [usize; 2] = [4, 512];

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Plaintext to ciphertext.
    Seal,
    /// Ciphertext to plaintext.
    Open,
}

/// Messages from one end to the other in memory, one `seal` each.
pub struct Memory {
    ends: [Box<dyn End>; 2],
    plain: Vec<u8>,
    messages: usize,
    wire: Buf,
    direction: Direction,
}

impl Memory {
    /// Messages of `size` bytes.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn new(maker: &Maker, size: usize, direction: Direction) -> Result<Self, Error> {
        let messages = (BATCH / size.max(1)).clamp(MESSAGES[0], MESSAGES[1]);
        Ok(Self { ends: maker.pair()?, plain: vec![0x5a; size], messages, wire: Buf::new(), direction })
    }

    /// CPU time of one message in us, over `least` of CPU time in all.
    ///
    /// # Errors
    /// What came out was not what went in.
    pub fn measure(&mut self, least: Duration) -> Result<f64, Error> {
        // The first batch finds cold caches and small buffers.
        self.run()?;
        let (mut total, mut batches) = (Duration::ZERO, 0_u32);
        // A clock that stands still must not make this endless.
        while total < least && batches < 1 << 20 {
            total += self.run()?;
            batches += 1;
        }
        Ok(total.as_secs_f64() * 1e6 / (f64::from(batches) * self.messages as f64))
    }

    fn run(&mut self) -> Result<Duration, Error> {
        let Self { ends: [from, to], plain, messages, wire, direction } = self;
        wire.clear();
        let began = thread_time();
        for _ in 0..*messages {
            from.seal(plain, wire)?;
        }
        let sealed = thread_time();
        // Both ends take part in either direction: keys change after so many records.
        let arrived = open_all(to.as_mut(), wire)?;
        let opened = thread_time();
        // Reading the clock is a system call, which a batch of four would feel.
        let clock = thread_time().saturating_sub(opened);
        if arrived != plain.len() * *messages {
            return Err(Error::WrongReply(format!("{arrived} bytes of {} arrived", plain.len() * *messages)));
        }
        let took = match direction {
            Direction::Seal => sealed.saturating_sub(began),
            Direction::Open => opened.saturating_sub(sealed),
        };
        Ok(took.saturating_sub(clock))
    }
}

/// Opens all of `wire`; gives the bytes that arrived.
fn open_all(to: &mut dyn End, wire: &mut Buf) -> Result<usize, Error> {
    let (mut used, mut arrived) = (0, 0);
    let mut out = Buf::new();
    let wire = wire.filled_mut();
    while used < wire.len() {
        let read = to.open(&mut wire[used..], &mut out, &mut |plain| {
            // Somebody looks at it.
            arrived += plain.len() * usize::from(plain.first() == Some(&0x5a));
        })?;
        if read == 0 {
            return Err(Error::WrongReply("a record was cut".to_owned()));
        }
        used += read;
    }
    Ok(arrived)
}
