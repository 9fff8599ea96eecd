//! Recordings: what came and went on connections, in a compact file, to be replayed through the code that runs live.
//!
//! A [`Recorder`] takes events on the thread that has them, and writes them on a thread of its own. A [`Replay`] reads them again:
//! the stamp of each event is the time that a core without a clock is given, and a [`Pace`] says when an event is due.
//!
//! The file is a row of blocks, each with zstd and two checksums. A file that was cut, or a disk that was full, costs what was not
//! on the disk and nothing before it. Events that could not be kept are counted, also in the file ([`Kind::Lost`]).
//!
//! ```
//! use tautline_feed::record::{Direction, Event, Kind, Recorder, Recording, Replay};
//!
//! let path = std::env::temp_dir().join(format!("recording-{}", std::process::id()));
//! let mut recorder = Recorder::create(&path, &Recording::default())?;
//! let event = Event { at: 1_764_300_000_000_000_000, connection: 1, direction: Direction::In, kind: Kind::Text, payload: b"{}" };
//! recorder.record(event);
//! assert_eq!(recorder.finish()?.lost, 0);
//!
//! let mut replay = Replay::open(&path)?;
//! while let Some(read) = replay.next()? {
//!     assert_eq!(read, event);
//! }
//! std::fs::remove_file(path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Chunk`], [`Sealer`] and [`Decoder`] are the format without I/O.

mod block;
mod chunk;
mod decoder;
mod event;
mod recorder;
mod replay;
mod sealer;
mod status;
mod varint;
mod writer;

pub use block::{MAX_PAYLOAD, PREAMBLE};
pub use chunk::{Chunk, TooLarge};
pub use decoder::{Decoder, RecordError, RecordFault};
pub use event::{Direction, Event, Kind};
pub use recorder::{Recorder, Recording};
pub use replay::{Pace, Replay, ReplayError};
pub use sealer::Sealer;
pub use status::Status;
pub use writer::Storage;
