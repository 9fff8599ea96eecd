use core::fmt;
use core::time::Duration;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::decoder::{Decoder, RecordError};
use super::event::Event;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Reads the events of a recording, in the order in which they were recorded.
///
/// The stamp of each event is the time for code that has none of its own, so a replay takes the path of live events at any speed.
#[derive(Debug)]
pub struct Replay<R> {
    input: R,
    decoder: Decoder,
    piece: Box<[u8]>,
    has_ended: bool,
}

/// The reason why a recording cannot be read on.
#[non_exhaustive]
pub enum ReplayError {
    /// The file cannot be read.
    Io(io::Error),
    /// A part of the recording is damaged or missing. The next call goes on behind damage.
    Record(RecordError),
}

impl Replay<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read> Replay<R> {
    /// Reads a recording from anything that can be read.
    ///
    /// # Errors
    /// If zstd gets no memory.
    pub fn new(input: R) -> io::Result<Self> {
        Ok(Self { input, decoder: Decoder::new()?, piece: vec![0; PIECE].into(), has_ended: false })
    }

    /// Reads the next event, or nothing at the end.
    ///
    /// # Errors
    /// If the file cannot be read, or a part of the recording is damaged or missing. Call again to read on behind it.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from the replay, which no iterator can say")]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, ReplayError> {
        while !self.decoder.advance().map_err(ReplayError::Record)? {
            if self.has_ended {
                self.decoder.finish().map_err(ReplayError::Record)?;
                return Ok(None);
            }
            match self.input.read(&mut self.piece) {
                Ok(0) => self.has_ended = true,
                Ok(len) => self.decoder.push(self.piece.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReplayError::Io(error)),
            }
        }
        Ok(Some(self.decoder.event()))
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "the recording cannot be read: {error}"),
            Self::Record(error) => error.fmt(formatter),
        }
    }
}

impl fmt::Debug for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Record(error) => Some(error),
        }
    }
}

/// Says when the events of a replay are due.
///
/// ```
/// use core::time::Duration;
/// use tautline_feed::record::Pace;
///
/// let mut pace = Pace::times(10.0);
/// assert_eq!(pace.due(5_000_000_000), Duration::ZERO);
/// assert_eq!(pace.due(6_000_000_000), Duration::from_millis(100));
/// assert_eq!(Pace::unpaced().due(6_000_000_000), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Recorded time in a unit of the replay's. Without one, everything is due at once.
    speed: Option<f64>,
    first: Option<u64>,
}

impl Pace {
    /// As fast as the events can be read.
    #[must_use]
    pub const fn unpaced() -> Self {
        Self { speed: None, first: None }
    }

    /// A multiple of the recorded speed. Zero and less, and what is no number, mean as fast as possible.
    #[must_use]
    pub fn times(speed: f64) -> Self {
        Self { speed: (speed > 0.0).then_some(speed), first: None }
    }

    /// The time between the first event and the one with this stamp, at this pace.
    #[must_use]
    pub fn due(&mut self, at: u64) -> Duration {
        let first = *self.first.get_or_insert(at);
        let since = Duration::from_nanos(at.saturating_sub(first));
        self.speed.map_or(Duration::ZERO, |speed| {
            Duration::try_from_secs_f64(since.as_secs_f64() / speed).unwrap_or(Duration::MAX)
        })
    }
}
