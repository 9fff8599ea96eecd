//! Where a message's time goes, from the network card to the handler.
//!
//! Each message gets six stamps: when its last bytes reached the machine (1), when the loop woke (2), when its bytes were
//! read (3), when its TLS record was opened (4), when its frame was parsed (5) and when the handler was entered (6). What
//! lies between them are its [stages](Stage), which add up to the whole.

mod stages;
mod stamps;
mod tally;
#[cfg(test)]
mod tests;

pub use stages::{Spread, Stage, Stages};
pub use stamps::Stamps;

use std::io;
use tautline_io::Driver;

/// Watches messages pass through a [`Shard`](crate::Shard). [`Off`] does nothing, [`Stamps`] takes the time.
///
/// A shard calls these methods in this order: [`woke`](Self::woke) once a turn; [`received`](Self::received) for the bytes of a
/// connection; [`opening`](Self::opening) and [`opened`](Self::opened) around each TLS record, and within it
/// [`decoding`](Self::decoding) and [`parsed`](Self::parsed) around each step of the decoder, and
/// [`calling`](Self::calling) for each message.
pub trait Probe: 'static {
    /// Asks the driver for what it can tell.
    ///
    /// # Errors
    /// The driver does not tell when bytes arrived.
    fn begin<D: Driver>(&mut self, driver: &mut D) -> io::Result<()>;

    /// The wait is over.
    fn woke(&mut self);

    /// Bytes were read.
    fn received<D: Driver>(&mut self, driver: &mut D);

    /// Bytes that were kept go on.
    fn resumed(&mut self);

    /// A TLS record is to be opened.
    fn opening(&mut self);

    /// One was opened.
    fn opened(&mut self);

    /// A frame is to be parsed.
    fn decoding(&mut self);

    /// All there is of it was.
    fn parsed(&mut self);

    /// The handler is to be called with a whole message.
    fn calling(&mut self);

    /// What was found so far.
    fn stages(&self) -> Option<Box<Stages>>;
}

/// No probe: a shard with it is compiled as if there were none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

const _: () = assert!(size_of::<Off>() == 0);

impl Probe for Off {
    #[inline(always)]
    fn begin<D: Driver>(&mut self, _: &mut D) -> io::Result<()> {
        Ok(())
    }

    #[inline(always)]
    fn woke(&mut self) {}

    #[inline(always)]
    fn received<D: Driver>(&mut self, _: &mut D) {}

    #[inline(always)]
    fn resumed(&mut self) {}

    #[inline(always)]
    fn opening(&mut self) {}

    #[inline(always)]
    fn opened(&mut self) {}

    #[inline(always)]
    fn decoding(&mut self) {}

    #[inline(always)]
    fn parsed(&mut self) {}

    #[inline(always)]
    fn calling(&mut self) {}

    #[inline(always)]
    fn stages(&self) -> Option<Box<Stages>> {
        None
    }
}
