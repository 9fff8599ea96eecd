use super::end::End;
use super::maker::Maker;
use std::time::Duration;
use tautline::layers::buf::Buf;
use tautline_measure::Error;
use tautline_measure::cpu::{thread_time, time_per_item};
use tautline_measure::named;

/// Bytes of payload in a batch, so that ciphertext and plaintext stay in the second-level cache.
const BATCH: usize = 64 << 10;

/// Least and greatest number of messages in a batch.
const MESSAGES: [usize; 2] = [4, 512];

named! {
    /// Timed half of the work.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Direction {
        /// Plaintext to ciphertext.
        Seal = "seal",
        /// Ciphertext to plaintext.
        Open = "open",
    }
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
    /// A connection for messages of `size` bytes.
    pub fn new(maker: &Maker, size: usize, direction: Direction) -> Result<Self, Error> {
        let messages = (BATCH / size.max(1)).clamp(MESSAGES[0], MESSAGES[1]);
        Ok(Self { ends: maker.pair()?, plain: vec![0x5a; size], messages, wire: Buf::new(), direction })
    }

    /// CPU time of one message in us, over at least `least` of CPU time.
    pub fn measure(&mut self, least: Duration) -> Result<f64, Error> {
        // The first batch meets cold caches and small buffers.
        self.run()?;
        Ok(time_per_item(least, || Ok((self.run()?, self.messages)))?.0)
    }

    fn run(&mut self) -> Result<Duration, Error> {
        let Self { ends: [from, to], plain, messages, wire, direction } = self;
        wire.clear();
        let began = thread_time();
        for _ in 0..*messages {
            from.seal(plain, wire)?;
        }
        let sealed = thread_time();
        // Both halves run, whichever is timed: each end must change its keys after the same record.
        let arrived = open_all(to.as_mut(), wire)?;
        let opened = thread_time();
        // Reading the clock is a system call, which is not negligible for a batch of four.
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

/// Opens all of `wire`; returns the number of bytes that arrived.
fn open_all(to: &mut dyn End, wire: &mut Buf) -> Result<usize, Error> {
    let (mut used, mut arrived) = (0, 0);
    let mut out = Buf::new();
    let wire = wire.filled_mut();
    while used < wire.len() {
        let read = to.open(&mut wire[used..], &mut out, &mut |plain| {
            // Reads from the plaintext, as a caller would.
            arrived += plain.len() * usize::from(plain.first() == Some(&0x5a));
        })?;
        if read == 0 {
            return Err(Error::WrongReply("a record was cut".to_owned()));
        }
        used += read;
    }
    Ok(arrived)
}
