//! The events of a connector in a recording.

use crate::Time;
use crate::ids::{FetchId, LinkId};
use crate::notice::Notice;
use crate::record::{Direction, Event, Kind, Recorder, Status};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tautline::Message;

/// The time begins: all further stamps count from this one.
pub(crate) const BEGUN: Kind = Kind::Other(8);

/// The feed looked at its deadlines.
pub(crate) const TIMEOUT: Kind = Kind::Other(9);

/// A fetch has failed, for this reason.
pub(crate) const FAILED: Kind = Kind::Other(10);

/// Records the events of a connector, if they are wanted.
#[derive(Debug)]
pub(crate) struct Journal {
    recorder: Option<Recorder>,
    /// A loss was told.
    has_lost: bool,
    /// Since 1970, in nanoseconds.
    begun: u64,
}

impl Journal {
    pub(crate) const fn none() -> Self {
        Self { recorder: None, has_lost: false, begun: 0 }
    }

    /// Records from now on, with the times of a feed that has begun at `start`.
    pub(crate) fn begin(recorder: Recorder, start: Instant) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun = nanos(since.saturating_sub(start.elapsed()));
        let mut journal = Self { recorder: Some(recorder), has_lost: false, begun };
        journal.note(0, Direction::In, BEGUN, b"", Time::ZERO);
        journal
    }

    pub(crate) fn opened(&mut self, link: LinkId, now: Time) {
        self.note(link.number(), Direction::In, Kind::Opened, b"", now);
    }

    pub(crate) fn closed(&mut self, link: LinkId, now: Time) {
        self.note(link.number(), Direction::In, Kind::Closed, b"", now);
    }

    pub(crate) fn received(&mut self, link: LinkId, message: &Message<'_>, now: Time) {
        let kind = if message.kind() == tautline::Kind::Text { Kind::Text } else { Kind::Binary };
        self.note(link.number(), Direction::In, kind, message.data(), now);
    }

    pub(crate) fn sent(&mut self, link: LinkId, message: &[u8], now: Time) {
        self.note(link.number(), Direction::Out, Kind::Text, message, now);
    }

    pub(crate) fn fetched(&mut self, fetch: FetchId, result: Result<&[u8], &str>, now: Time) {
        let (kind, payload) = match result {
            Ok(body) => (Kind::Http, body),
            Err(reason) => (FAILED, reason.as_bytes()),
        };
        self.note(fetch.number(), Direction::In, kind, payload, now);
    }

    pub(crate) fn timeout(&mut self, now: Time) {
        self.note(0, Direction::In, TIMEOUT, b"", now);
    }

    /// The first loss of events, once.
    pub(crate) fn first_loss(&mut self) -> Option<Notice<'static>> {
        let recorder = self.recorder.as_ref().filter(|_| !self.has_lost)?;
        let loss = loss(&recorder.status());
        self.has_lost = loss.is_some();
        loss
    }

    /// Ends the recording, and says how many events it lacks.
    pub(crate) fn end(&mut self) -> Option<Notice<'static>> {
        let recorder = self.recorder.take()?;
        let events = recorder.status().lost.max(1);
        match recorder.finish() {
            Ok(status) => loss(&status),
            Err(error) => Some(Notice::Unrecorded { events, error: Some(error.kind()) }),
        }
    }

    #[inline]
    fn note(&mut self, connection: u32, direction: Direction, kind: Kind, payload: &[u8], now: Time) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Event { at: self.begun + nanos(now), connection, direction, kind, payload });
        }
    }
}

fn loss(status: &Status) -> Option<Notice<'static>> {
    let Status { lost: events, error, .. } = *status;
    (events > 0 || error.is_some()).then_some(Notice::Unrecorded { events, error })
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
