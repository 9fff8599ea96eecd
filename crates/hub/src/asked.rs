//! Messages of a connection that wait, in their order: for the application's answer about the first of them, or for a client that
//! has to read the answers to earlier ones.

use crate::config::Config;
use crate::hooks::{Allowed, Verdict};
use crate::lock::lock;
use crate::rules::Identity;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tautline::{Conn, ConnId};

/// A timer of a connection: the application has answered, or a client that had to read may have done so.
pub(crate) const RESUME: u64 = 4;
/// The time after which a look is taken at a client that has to read, where its queue does not become empty.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of answers to messages of one turn that wait for the client, before its further ones wait.
const AHEAD: usize = 256 << 10;
/// Messages of a client that has to read which wait at most, beside those of one frame. No more of them come in one read.
const MOST_UNREAD: usize = 4_096;
/// Messages that wait before the connection is not read any more. Those of the same read still come.
const PAUSED: usize = 32;
/// The time for which the answer about a connection that has not opened is kept.
const KEPT: Duration = Duration::from_secs(60);

/// The questions of a connection.
#[derive(Default)]
pub(crate) struct Asking {
    /// The number of the question, and the message that it is about.
    question: Option<(u64, Box<str>)>,
    verdict: Option<Verdict>,
    waiting: VecDeque<Box<str>>,
    bytes: usize,
    pub(crate) is_paused: bool,
    /// Bytes that may wait for the client when its messages go on.
    unread: Option<Pace>,
}

/// The bytes up to which the answers of one turn may wait for a client.
#[derive(Clone, Copy)]
pub(crate) struct Pace(usize);

impl Pace {
    pub(crate) fn begin(conn: &Conn<'_, ()>) -> Self {
        Self(conn.buffered() + AHEAD)
    }

    pub(crate) fn is_over(self, conn: &Conn<'_, ()>) -> bool {
        conn.buffered() > self.0
    }
}

/// The next step of a connection that asks.
pub(crate) enum Step {
    /// A message whose question is decided.
    Decided(Box<str>, Verdict),
    /// A message that has waited.
    Next(Box<str>),
    /// The answer has not come.
    Wait,
    /// No message waits.
    End,
}

/// How far a message is.
pub(crate) enum Turn {
    Arrived,
    /// It has waited, and is the next one.
    Next,
    Allowed(Allowed),
}

impl Asking {
    /// A message waits for the answer with this number.
    pub(crate) fn ask(&mut self, number: u64, text: &str) {
        self.question = Some((number, text.into()));
    }

    /// Takes an answer. False if it is not the one that it waits for.
    pub(crate) fn decide(&mut self, number: u64, verdict: Verdict) -> bool {
        let is_its = self.question.as_ref().is_some_and(|(other, _)| *other == number);
        if is_its {
            self.verdict = Some(verdict);
        }
        is_its
    }

    /// Has a message wait behind one that the application is asked about, and pauses a connection that sends many.
    pub(crate) fn hold(&mut self, conn: &mut Conn<'_, ()>, text: &str, config: &Config) -> Result<(), &'static str> {
        let (most, reason) = match self.unread {
            None => (config.max_unanswered, "too many messages wait for the application"),
            Some(_) => (MOST_UNREAD, "too many messages wait until you have read the answers to earlier ones"),
        };
        if !self.wait(text, most, config.max_unanswered_bytes) {
            return Err(reason);
        }
        if self.waiting.len() >= PAUSED {
            self.is_paused = true;
            conn.pause(true);
        }
        Ok(())
    }

    /// Has a message of a frame wait until the client has read. The frame bounds their number.
    pub(crate) fn wait_for_reader(&mut self, text: &str) {
        self.wait(text, usize::MAX, usize::MAX);
    }

    /// Has all messages wait until the client has read.
    pub(crate) fn rest(&mut self, conn: &mut Conn<'_, ()>, pace: Pace) {
        (self.unread, self.is_paused) = (Some(pace), true);
        conn.pause(true);
        // The queue of a client with many other messages may never be empty.
        conn.notify_drain();
        conn.set_timer(LOOK, RESUME);
    }

    /// Whether the client still has to read.
    pub(crate) fn rests(&mut self, conn: &mut Conn<'_, ()>) -> bool {
        let rests = self.unread.is_some_and(|pace| pace.is_over(conn));
        if rests {
            conn.set_timer(LOOK, RESUME);
        } else {
            self.unread = None;
        }
        rests
    }

    /// Has a message wait. False if there are too many, or too many bytes.
    fn wait(&mut self, text: &str, most: usize, most_bytes: usize) -> bool {
        let fits = self.waiting.len() < most && self.bytes < most_bytes;
        if fits {
            self.bytes += text.len();
            self.waiting.push_back(text.into());
        }
        fits
    }

    pub(crate) fn next(&mut self) -> Step {
        match (self.verdict.take(), self.question.take()) {
            (Some(verdict), Some((_, text))) => Step::Decided(text, verdict),
            (_, question @ Some(_)) => {
                self.question = question;
                Step::Wait
            }
            (_, None) => match self.waiting.pop_front() {
                Some(text) => {
                    self.bytes -= text.len();
                    Step::Next(text)
                }
                None => Step::End,
            },
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let question = self.question.as_ref().map_or(0, |(_, text)| text.len());
        let verdict = self.verdict.as_ref().map_or(0, Verdict::memory);
        size_of::<Self>() + self.waiting.capacity() * size_of::<Box<str>>() + self.bytes + question + verdict
    }
}

/// Connections, each with the time and the user of the answer.
type Waiting = HashMap<ConnId, (Instant, Option<Arc<Identity>>)>;

/// Connections that the application has allowed, until they open. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Admitted(Arc<Mutex<Waiting>>);

impl Admitted {
    pub(crate) fn add(&self, conn: ConnId, identity: Option<Arc<Identity>>) {
        lock(&self.0).insert(conn, (Instant::now(), identity));
    }

    /// The user of a connection that opens. `None` if the application has not allowed it.
    pub(crate) fn take(&self, conn: ConnId) -> Option<Option<Arc<Identity>>> {
        lock(&self.0).remove(&conn).map(|(_, identity)| identity)
    }

    /// Forgets those that have ended before they opened.
    pub(crate) fn tick(&self, now: Instant) {
        let mut all = lock(&self.0);
        if !all.is_empty() {
            all.retain(|_, (since, _)| now.saturating_duration_since(*since) < KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Asking, Step};
    use crate::hooks::{Allowed, Verdict};

    #[test]
    fn messages_leave_in_their_order_and_wait_for_each_answer() {
        let mut asking = Asking { question: Some((1, "a".into())), ..Asking::default() };
        assert!(asking.wait("b", 2, 100) && asking.wait("c", 2, 100) && !asking.wait("d", 2, 100));
        assert!(matches!(asking.next(), Step::Wait));
        asking.verdict = Some(Verdict::Allowed(Allowed::default()));
        assert!(matches!(asking.next(), Step::Decided(text, _) if &*text == "a"));
        assert!(matches!(asking.next(), Step::Next(text) if &*text == "b"));
        asking.question = Some((2, "b".into()));
        assert!(matches!(asking.next(), Step::Wait));
        asking.verdict = Some(Verdict::Unanswered("no"));
        assert!(matches!(asking.next(), Step::Decided(..)));
        assert!(matches!(asking.next(), Step::Next(text) if &*text == "c"));
        assert!(matches!(asking.next(), Step::End) && asking.bytes == 0);
    }

    #[test]
    fn the_bytes_of_messages_that_wait_are_bounded() {
        let mut asking = Asking::default();
        let fits = (0..100).filter(|_| asking.wait(&"x".repeat(1_000), 1_000, 10_000)).count();
        assert_eq!(fits, 10);
        assert!((10_000..12_000).contains(&asking.memory()), "{}", asking.memory());
    }
}
