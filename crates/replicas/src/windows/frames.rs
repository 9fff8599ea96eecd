use super::end::{End, RECORD};
use super::maker::Maker;
use std::time::Duration;
use tautline::layers::buf::Buf;
use tautline_measure::Error;
use tautline_measure::SplitMix;
use tautline_measure::cpu::{thread_time, time_per_item};

/// Streams on the connection.
const STREAMS: usize = 100;

/// Bytes of a frame's header as in HTTP/2: length, type, flags and stream.
const HEAD: usize = 9;

/// Frames that are sealed at once, so that records begin and end anywhere in them.
const TOGETHER: usize = 4;

/// Many streams on one connection: headers of 9 bytes are read into a small buffer, and payloads of 16 KiB into large ones.
///
/// The ciphertext arrives in pieces of any length.
pub struct Frames {
    from: Box<dyn End>,
    to: Box<dyn End>,
    random: SplitMix,
    wire: Buf,
    reader: Reader,
    /// Frames sent and read so far, by stream.
    sent: [u32; STREAMS],
    read: [u32; STREAMS],
    plain: Vec<u8>,
}

/// Reads exactly the number of bytes that its caller wants.
#[derive(Default)]
struct Reader {
    /// Plaintext that no caller has asked for yet.
    staged: Vec<u8>,
    /// Bytes of the place that are filled.
    filled: usize,
}

impl Reader {
    /// Continues to fill `place` from `wire`; returns whether it is full.
    ///
    /// A record is opened directly into a place with room for all of it. Smaller places are filled from staged plaintext.
    fn fill(&mut self, end: &mut dyn End, wire: &mut Buf, place: &mut [u8]) -> Result<bool, Error> {
        let mut out = Buf::new();
        loop {
            let staged = self.staged.len().min(place.len() - self.filled);
            place[self.filled..self.filled + staged].copy_from_slice(&self.staged[..staged]);
            self.staged.drain(..staged);
            self.filled += staged;
            if self.filled == place.len() {
                self.filled = 0;
                return Ok(true);
            }
            let used = if place.len() - self.filled >= RECORD {
                let (used, len) = end.read(wire.filled_mut(), &mut place[self.filled..], &mut out)?;
                self.filled += len;
                used
            } else {
                end.open(wire.filled_mut(), &mut out, &mut |plain| self.staged.extend_from_slice(plain))?
            };
            if used == 0 {
                return Ok(false);
            }
            wire.take(used);
        }
    }
}

impl Frames {
    /// A connection with all its streams.
    pub fn new(maker: &Maker) -> Result<Self, Error> {
        let [from, to] = maker.pair()?;
        Ok(Self {
            from,
            to,
            random: SplitMix(11),
            wire: Buf::new(),
            reader: Reader::default(),
            sent: [0; STREAMS],
            read: [0; STREAMS],
            plain: Vec::new(),
        })
    }

    /// CPU time to read one frame in us, over at least `least` of CPU time, and the number of frames read.
    pub fn measure(&mut self, least: Duration) -> Result<(f64, u64), Error> {
        time_per_item(least, || self.run())
    }

    /// Sends some frames and reads them as they arrive; returns the CPU time and the number of frames.
    fn run(&mut self) -> Result<(Duration, usize), Error> {
        let mut sealed = Buf::new();
        for _ in 0..4 {
            self.plain.clear();
            for _ in 0..TOGETHER {
                let stream = self.random.below(STREAMS);
                let number = self.sent[stream];
                self.sent[stream] += 1;
                self.plain.extend(head(stream));
                self.plain.resize(self.plain.len() + RECORD, fill(stream, number));
                let at = self.plain.len() - RECORD;
                self.plain[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            self.from.seal(&self.plain, &mut sealed)?;
        }
        let (mut took, mut frames) = (Duration::ZERO, 0);
        let mut place = vec![0; RECORD];
        let mut heading = [0; HEAD];
        let mut stream = None;
        while !sealed.is_empty() {
            let piece = (1 + self.random.below(40_000)).min(sealed.len());
            self.wire.put(&sealed.filled()[..piece]);
            sealed.take(piece);
            loop {
                let began = thread_time();
                let place = if stream.is_none() { &mut heading[..] } else { &mut place[..] };
                let is_full = self.reader.fill(self.to.as_mut(), &mut self.wire, place)?;
                took += thread_time().saturating_sub(began);
                if !is_full {
                    break;
                }
                stream = match stream {
                    None => Some(stream_of(heading)?),
                    Some(stream) => {
                        self.check(stream, place)?;
                        frames += 1;
                        None
                    }
                };
            }
        }
        if stream.is_some() || !self.wire.is_empty() || self.read != self.sent {
            return Err(Error::WrongReply("a frame is missing".to_owned()));
        }
        Ok((took, frames))
    }

    /// Checks that every byte of the payload is that of the next frame of its stream.
    fn check(&mut self, stream: usize, payload: &[u8]) -> Result<(), Error> {
        let number = self.read[stream];
        self.read[stream] += 1;
        let (start, rest) = payload.split_at(4);
        if start == number.to_be_bytes() && rest.iter().all(|&byte| byte == fill(stream, number)) {
            Ok(())
        } else {
            Err(Error::WrongReply(format!("stream {stream}: other bytes than those of its frame {number}")))
        }
    }
}

fn head(stream: usize) -> [u8; HEAD] {
    let [_, _, high, low] = u32::try_from(stream).unwrap_or_default().to_be_bytes();
    let [_, a, b, c] = u32::try_from(RECORD).unwrap_or_default().to_be_bytes();
    [a, b, c, 0, 0, 0, 0, high, low]
}

fn stream_of(heading: [u8; HEAD]) -> Result<usize, Error> {
    let [.., high, low] = heading;
    let stream = usize::from(u16::from_be_bytes([high, low]));
    if stream < STREAMS && heading == head(stream) {
        Ok(stream)
    } else {
        Err(Error::WrongReply("a frame has another header than was sent".to_owned()))
    }
}

fn fill(stream: usize, number: u32) -> u8 {
    let stream = u32::try_from(stream).unwrap_or_default();
    stream.wrapping_mul(31).wrapping_add(number).to_be_bytes()[3]
}
