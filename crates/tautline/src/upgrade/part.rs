//! The loops' part of the old process's side: they send connections, hold still, and go on as they are told.

use super::batch::Batch;
use super::channel::{Channel, MOST, PATIENCE, VERSION, misbehaves};
use super::kind::Kind;
use super::ledger::{Changes, Entry, Ledger, Slice};
use crate::ServerHandle;
use crate::erased::ThreadLoop;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tautline_engine::{ConnId, Movers, Staying};

/// Rounds in which all loops handle their commands before they save. A message that a loop publishes in the first is a command
/// of the others in the second; the third is for the answers of handlers.
pub(super) const ROUNDS: usize = 3;
/// Most rounds in which connections are sent ahead. In the first all are sent, in the others those that have changed.
const AHEAD_ROUNDS: usize = 5;
/// The rounds end when less than one in this number of connections has changed.
const FEW: usize = 20;
/// Longest saved connection that moves. A peer with more of a message on its way must not make an upgrade impossible.
const LONGEST: usize = MOST - 8;
/// The longest time of all these rounds.
const AHEAD_LONGEST: Duration = Duration::from_secs(10);

/// The way of a loop's connections to the new process.
pub(super) struct Way {
    pub(super) channel: Channel,
    pub(super) ledger: Ledger,
}

/// A loop that takes part, as the thread that coordinates sees it.
pub(super) struct Part {
    pub(super) news: Receiver<io::Result<News>>,
    /// Without a word the loop goes on with everything before [`Go::Commits`], and with nothing that has moved after it. So the
    /// end of the coordinating thread breaks no rule.
    pub(super) go: Sender<Go>,
}

pub(super) enum News {
    Settled,
    Saved { moved: usize, refused: usize, staying: Staying },
}

/// A word to a loop that holds still.
#[derive(Clone, Copy)]
pub(super) enum Go {
    /// Begin the next round.
    Next,
    /// Commit is about to be written.
    Commits,
    /// Go on with everything.
    Resume,
    /// Go on without the connections that have moved.
    Forget,
    /// Go on without these and without the listening sockets.
    Leave,
}

impl ServerHandle {
    /// Sends a socket for each loop, the listening sockets and the ticket keys. Returns this end of the former.
    pub(super) fn offer(&self, control: &mut Channel, also: &[Self]) -> io::Result<Vec<Way>> {
        let (mut near, mut listening) = (Vec::new(), Vec::new());
        let count = u32::try_from(self.shards().len()).unwrap_or(u32::MAX);
        control.send(Kind::Loops, &[&[VERSION], &count.to_be_bytes()[..]].concat(), &[])?;
        for number in 0..self.shards().len() {
            let (ours, theirs) = UnixStream::pair()?;
            control.send(Kind::Loops, &[], &[theirs.as_fd()])?;
            near.push(Way { channel: Channel::new(ours, PATIENCE)?, ledger: Ledger::default() });
            listening.extend(self.listening(number)?);
        }
        for socket in &listening {
            control.send(Kind::Listening, &[], &[socket.as_fd()])?;
        }
        for (server, number) in also.iter().zip(1_u8..) {
            for shard in 0..server.shards().len() {
                for socket in server.listening(shard)? {
                    control.send(Kind::Listening, &[number], &[socket.as_fd()])?;
                }
            }
        }
        control.send(Kind::Offered, &self.reloader().save_tickets(), &[])?;
        Ok(near)
    }

    /// Copies of a loop's listening sockets.
    fn listening(&self, number: usize) -> io::Result<Vec<OwnedFd>> {
        let (answer, answered) = channel();
        self.run_on(number, move |shard| drop(answer.send(shard.listening())));
        answered.recv_timeout(PATIENCE).map_err(|_| stuck())?
    }

    /// Sends connections while they go on here, round after round, until few change during a round.
    pub(super) fn send_ahead(&self, mut loops: Vec<Way>) -> io::Result<Vec<Way>> {
        let start = Instant::now();
        for round in 0..AHEAD_ROUNDS {
            let mut next = vec![Some(0); loops.len()];
            let mut sent = 0;
            while next.iter().any(Option::is_some) {
                if start.elapsed() > AHEAD_LONGEST {
                    return Ok(loops);
                }
                let slices = loops.into_iter().enumerate();
                let slices: Vec<_> = slices.map(|(number, way)| self.slice(number, way, next[number], round)).collect();
                loops = Vec::with_capacity(slices.len());
                for (slice, next) in slices.into_iter().zip(&mut next) {
                    let (mut way, slice) = slice.recv_timeout(PATIENCE).map_err(|_| stuck())?;
                    let slice = slice?;
                    *next = slice.next;
                    sent += slice.sent;
                    if slice.sent > 0 {
                        way.channel.expect(Kind::Taken)?;
                    }
                    loops.push(way);
                }
            }
            let all: usize = loops.iter().map(|way| way.ledger.len()).sum();
            if round > 0 && sent < all / FEW {
                break;
            }
        }
        Ok(loops)
    }

    /// Has a loop send a slice between two turns.
    fn slice(
        &self,
        number: usize,
        mut way: Way,
        from: Option<usize>,
        round: usize,
    ) -> Receiver<(Way, io::Result<Slice>)> {
        let (tell, told) = channel();
        let Some(from) = from else {
            let _ = tell.send((way, Ok(Slice { next: None, sent: 0 })));
            return told;
        };
        self.run_on(number, move |shard| {
            if round == 0 && from == 0 {
                shard.begin_move();
            }
            let slice = way.ledger.send_slice(&mut way.channel, shard, from, round == 0);
            // Nobody listens any more if that took too long.
            let _ = tell.send((way, slice));
        });
        told
    }

    pub(super) fn begin(&self, number: usize, way: Way) -> Part {
        let (tell, news) = channel();
        let (go, may_go) = channel();
        self.run_on(number, move |shard| {
            if let Err(error) = take_part(shard, way, &tell, &may_go) {
                // Nobody listens any more if another loop has failed.
                let _ = tell.send(Err(error));
            }
        });
        Part { news, go }
    }
}

/// A loop's part of the move, on its thread. Returns with the loop as it was, or without the connections that have moved.
fn take_part(
    shard: &mut dyn ThreadLoop,
    way: Way,
    tell: &Sender<io::Result<News>>,
    may_go: &Receiver<Go>,
) -> io::Result<()> {
    let ended = || io::Error::other("the move has ended");
    for _ in 0..ROUNDS {
        shard.settle();
        tell.send(Ok(News::Settled)).map_err(|_| ended())?;
        let Ok(Go::Next) = may_go.recv() else { return Ok(()) };
    }
    shard.hold_still()?;
    let Way { mut channel, mut ledger } = way;
    ledger.begin_last_round();
    let mut others: Vec<Option<Movers>> = Vec::new();
    let (mut batch, mut changes) = (Batch::new(), Changes::new());
    let mut refused = 0;
    let staying = shard.save(&mut |movers, sockets, saved| {
        if saved.len() > LONGEST {
            // If they were sent ahead, they are gone.
            refused += movers.count();
            return Ok(());
        }
        match ledger.entry(movers, saved) {
            Entry::New => {
                others.push(Some(movers));
                batch.add(&mut channel, sockets, saved)
            }
            Entry::Same => Ok(()),
            Entry::Changed(number) => changes.add(&mut channel, number, saved),
        }
    })?;
    changes.send(&mut channel)?;
    batch.send(&mut channel)?;
    drop(batch);
    let mut movers = ledger.into_movers();
    let gone: Vec<u8> = movers
        .iter()
        .zip(0_u32..)
        .filter(|(movers, _)| movers.is_none())
        .flat_map(|(_, number)| number.to_be_bytes())
        .collect();
    if !gone.is_empty() {
        channel.send(Kind::Gone, &gone, &[])?;
    }
    movers.append(&mut others);
    channel.send(Kind::End, &shard.totals().encode(), &[])?;
    let taken = channel.expect(Kind::Taken)?;
    for bytes in taken.content.as_chunks().0 {
        let movers = movers.get_mut(u32::from_be_bytes(*bytes) as usize).ok_or_else(misbehaves)?;
        refused += movers.take().map_or(0, Movers::count);
    }
    let conns: Vec<ConnId> = movers.into_iter().flatten().flat_map(Movers::conns).collect();
    let saved = News::Saved { moved: conns.len(), refused, staying };
    tell.send(Ok(saved)).map_err(|_| ended())?;
    let Ok(Go::Commits) = may_go.recv() else { return Ok(()) };
    // From here on the loop seals nothing, unless it is told to resume.
    match may_go.recv() {
        Ok(Go::Resume) => return Ok(()),
        Ok(Go::Leave) => shard.give_listening_away(),
        Ok(Go::Forget | Go::Next | Go::Commits) | Err(_) => {}
    }
    shard.give_away(&conns);
    Ok(())
}

/// Waits for the next news of all loops.
pub(super) fn news(parts: &[Part], deadline: Instant, mut each: impl FnMut(News)) -> io::Result<()> {
    for part in parts {
        match part.news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(news) => each(news?),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(stuck()),
        }
    }
    Ok(())
}

pub(super) fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a loop does not take part: a handler blocks it, or it has ended")
}
