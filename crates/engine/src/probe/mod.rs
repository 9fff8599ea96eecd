//! The time of a message's stages, from the network card to the handler.
//!
//! Each message gets six stamps. Its last bytes reached the machine (1), the loop woke (2), and the bytes were read (3). The TLS
//! record was opened (4), the frame was parsed (5), and the handler was entered (6). The times between them are its
//! [stages](Stage), which add up to the whole.

mod dial_tallies;
mod message_times;
mod send_stages;
#[cfg(test)]
mod send_tests;
mod sends;
mod stages;
mod stamps;
mod tally;
#[cfg(test)]
mod tests;

pub use message_times::MessageTimes;
pub use send_stages::SendStage;
pub use sends::SendTimes;
pub(crate) use sends::Sends;
pub use stages::{Spread, Stage, Stages};
pub use stamps::Stamps;

use crate::ids::DialId;
use std::io;
use tautline_io::Driver;

/// An observer of messages on their way through a [`Shard`](crate::Shard). [`Stamps`] measures their times.
///
/// A shard calls [`woke`](Self::woke) once per turn, and [`received`](Self::received) for the bytes of a connection.
/// [`opening`](Self::opening) and [`opened`](Self::opened) enclose the opening of each TLS record. For its plaintext,
/// [`decoding`](Self::decoding) and [`parsed`](Self::parsed) enclose each step of the decoder. [`calling`](Self::calling) follows
/// for each message.
pub trait Probe: 'static {
    /// Prepares the driver, for example to stamp arrivals.
    ///
    /// # Errors
    /// If the driver does not know when bytes arrived.
    fn begin(&mut self, driver: &mut dyn Driver) -> io::Result<()>;

    /// The shard's engine has no TLS: the opening of records is no work.
    fn without_tls(&mut self) {}

    /// Whether sends are timed that the application asks for, by [`Conn::send_timed`](crate::Conn::send_timed).
    fn times_sends(&self) -> bool {
        false
    }

    /// The driver's wait has ended.
    fn woke(&mut self);

    /// Bytes of a connection were read.
    fn received(&mut self, driver: &mut dyn Driver);

    /// Bytes that were held back are processed now.
    fn resumed(&mut self);

    /// A TLS record is about to be opened.
    fn opening(&mut self);

    /// The TLS record was opened.
    fn opened(&mut self);

    /// A frame is about to be parsed.
    fn decoding(&mut self);

    /// The available bytes of the frame were parsed.
    fn parsed(&mut self);

    /// The handler is about to be called with a whole message, of this outgoing connection if it is of one.
    ///
    /// Returns the times for [`Conn::times`](crate::Conn::times).
    fn calling(&mut self, dial: Option<DialId>) -> Option<MessageTimes>;

    /// The results so far, if the probe has any.
    fn stages(&self) -> Option<Box<Stages>>;

    /// The results of one outgoing connection, across its reconnections.
    fn stages_of(&self, dial: DialId) -> Option<Box<Stages>> {
        let _ = dial;
        None
    }

    /// An outgoing connection has ended for ever.
    fn dial_ended(&mut self, dial: DialId) {
        let _ = dial;
    }
}
