use super::answer::put;
use super::side::Side;
use tautline::ConnId;
use tautline::http::StatusCode;
use tautline::layers::engine::{Others, Raw};

/// Bytes that may wait for one side before the other is not read any more.
pub(super) const MOST_WAITING: usize = 64 << 10;

/// A client's connection: the one of the event, or another.
pub(super) trait Peer {
    fn write(&mut self, bytes: &[u8]);
    fn end(&mut self);
    fn reset(&mut self);
    /// Reads the next request, as soon as the client has read enough of the responses before: it may send many and read nothing.
    fn next_request(&mut self);
    fn note_status(&mut self, status: StatusCode);
}

impl Peer for Raw<'_, Side> {
    fn write(&mut self, bytes: &[u8]) {
        let _ = Raw::write(self, bytes);
    }

    fn end(&mut self) {
        Raw::end(self);
    }

    fn reset(&mut self) {
        Raw::reset(self);
    }

    fn next_request(&mut self) {
        if self.buffered() > MOST_WAITING {
            *self.state() = Side::Full;
            self.notify_drain();
        } else {
            self.resume_http();
        }
    }

    fn note_status(&mut self, status: StatusCode) {
        Raw::note_status(self, status);
    }
}

/// Another connection than that of the event.
pub(super) struct Other<'a, 'o>(pub(super) &'a mut Others<'o, Side>, pub(super) ConnId);

impl Peer for Other<'_, '_> {
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.0.write(self.1, bytes);
    }

    fn end(&mut self) {
        self.0.end(self.1);
    }

    fn reset(&mut self) {
        self.0.reset(self.1);
    }

    fn next_request(&mut self) {
        if self.0.buffered(self.1).is_some_and(|waits| waits > MOST_WAITING) {
            put(self.0, self.1, Side::Full);
            self.0.notify_drain(self.1);
        } else {
            self.0.resume_http(self.1);
        }
    }

    fn note_status(&mut self, status: StatusCode) {
        self.0.note_status(self.1, status);
    }
}

/// Pauses the connection of the event if too much waits for another one.
pub(super) fn bound(raw: &mut Raw<'_, Side>, other: ConnId, waits: Option<usize>) {
    if waits.is_some_and(|waits| waits > MOST_WAITING) {
        raw.pause(true);
        raw.others().notify_drain(other);
    }
}
