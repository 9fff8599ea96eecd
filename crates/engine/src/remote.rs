use crate::closed::ConnectError;
use crate::conn::{ConnId, DialId};
use crate::message::{Outgoing, Publication};
use crate::probe::Stages;
use crate::shared::Counters;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use tautline_io::Waker;
use tautline_ws::CloseCode;

/// Commands that wait for a shard; beyond it, senders are told so.
const CAPACITY: usize = 65_536;

/// A shard, as seen from other threads. Cheap to clone.
#[derive(Clone)]
pub struct Remote {
    commands: Sender<Command>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

/// Where commands arrive. A bounded channel would hold memory for its whole capacity from the start, in each shard.
pub(crate) struct Commands {
    receiver: Receiver<Command>,
    waiting: Arc<AtomicUsize>,
}

impl Commands {
    pub(crate) fn next(&self) -> Option<Command> {
        let command = self.receiver.try_recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(command)
    }
}

/// Whoever comes later is told that the shard has stopped, and not that too many wait.
impl Drop for Commands {
    fn drop(&mut self) {
        // No more than fit: others may go on to send meanwhile.
        for _ in 0..CAPACITY {
            if self.next().is_none() {
                return;
            }
        }
    }
}

/// The shard does not take the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteError {
    /// It does not keep up: too many commands wait already.
    Full,
    /// It has stopped.
    Stopped,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the shard does not keep up: too many commands wait for it",
            Self::Stopped => "the shard has stopped",
        })
    }
}

impl std::error::Error for RemoteError {}

pub(crate) enum Command {
    Publish(Publication),
    Send { to: ConnId, publication: Publication },
    Close { conn: ConnId, code: CloseCode, reason: String },
    Drain { code: CloseCode, reason: String, deadline: Duration },
    Count(SyncSender<Counters>),
    Stages(SyncSender<Option<Box<Stages>>>),
    Resolved { dial: DialId, result: Result<Vec<SocketAddr>, ConnectError> },
}

impl Remote {
    pub(crate) fn new(waker: Waker) -> (Self, Commands) {
        let (commands, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Self { commands, waiting: waiting.clone(), waker }, Commands { receiver, waiting })
    }

    /// Sends `message` to this shard's subscribers of `topic`.
    ///
    /// # Errors
    /// Where the shard does not take it.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) -> Result<(), RemoteError> {
        self.publish_encoded(Publication::new(topic, message))
    }

    /// Sends `message` to one connection of this shard; nowhere, where that has ended.
    ///
    /// # Errors
    /// Where the shard does not take it.
    pub fn send(&self, to: ConnId, message: Outgoing<'_>) -> Result<(), RemoteError> {
        let publication = Publication::new("", message);
        self.command(Command::Send { to, publication })
    }

    /// Closes one connection of this shard.
    ///
    /// # Errors
    /// Where the shard does not take it.
    pub fn close(&self, conn: ConnId, code: CloseCode, reason: &str) -> Result<(), RemoteError> {
        self.command(Command::Close { conn, code, reason: reason.to_owned() })
    }

    /// Stops accepting, closes every connection with `code` (1001 going away, 1012 service restart) and ends the shard
    /// once all are gone, at the latest after `deadline`. It is taken however many commands wait before it.
    ///
    /// # Errors
    /// Where the shard has stopped.
    pub fn drain(&self, code: CloseCode, reason: &str, deadline: Duration) -> Result<(), RemoteError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.give(Command::Drain { code, reason: reason.to_owned(), deadline })
    }

    /// What the shard did so far. Waits for it to answer, so never ask from one of its own handler's methods.
    ///
    /// # Errors
    /// Where the shard does not answer.
    pub fn counters(&self) -> Result<Counters, RemoteError> {
        let (reply, answer) = sync_channel(1);
        self.command(Command::Count(reply))?;
        answer.recv().map_err(|_| RemoteError::Stopped)
    }

    /// What the shard's probe found so far; `None` where it has none. Waits as [`counters`](Self::counters) does.
    ///
    /// # Errors
    /// Where the shard does not answer.
    pub fn stages(&self) -> Result<Option<Box<Stages>>, RemoteError> {
        let (reply, answer) = sync_channel(1);
        self.command(Command::Stages(reply))?;
        answer.recv().map_err(|_| RemoteError::Stopped)
    }

    pub(crate) fn publish_encoded(&self, publication: Publication) -> Result<(), RemoteError> {
        self.command(Command::Publish(publication))
    }

    pub(crate) fn command(&self, command: Command) -> Result<(), RemoteError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= CAPACITY {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(RemoteError::Full);
        }
        self.give(command)
    }

    /// Gives the shard a command that is counted already.
    fn give(&self, command: Command) -> Result<(), RemoteError> {
        if self.commands.send(command).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(RemoteError::Stopped);
        }
        self.waker.wake();
        Ok(())
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Remote, RemoteError};
    use crate::Outgoing;
    use std::time::Duration;
    use tautline_io::Waker;
    use tautline_ws::CloseCode;

    #[test]
    fn a_shard_that_has_stopped_is_never_taken_for_a_busy_one() {
        let (remote, commands) = Remote::new(Waker::new(|| {}));
        let publish = || remote.publish("topic", Outgoing::text("news"));
        for _ in 0..CAPACITY {
            assert_eq!(publish(), Ok(()));
        }
        assert_eq!(publish(), Err(RemoteError::Full));
        let drain = || remote.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        assert_eq!(drain(), Ok(()), "a busy shard can be told to stop");
        drop(commands);
        assert_eq!(drain(), Err(RemoteError::Stopped));
        for _ in 0..=CAPACITY {
            assert_eq!(publish(), Err(RemoteError::Stopped));
        }
    }
}
