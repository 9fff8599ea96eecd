//! The old process's side: everything stays as it is until the new process has proven that it can go on.

use super::batch::Batch;
use super::channel::{Channel, Kind, Peer, VERSION, misbehaves, other_version};
use super::ledger::{Changes, Entry, Ledger, Slice};
use super::{HandOver, HandedOver, Legacy, PATIENCE};
use crate::jobs::Loop;
use crate::{CloseCode, ServerHandle};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tautline_engine::{ConnId, SAVED_FORMAT, ShardHandle, Staying};

/// Rounds in which all loops handle their commands before they save. A message that a loop publishes in the first is a command
/// of the others in the second; the third is for the answers of handlers.
const ROUNDS: usize = 3;
/// How long connections in their handshake may go on in the old process before it drains.
const HANDSHAKES: Duration = Duration::from_secs(2);

/// Most rounds in which connections are sent ahead. In the first all are sent, in the others those that have changed.
const AHEAD_ROUNDS: usize = 5;
/// The rounds end when less than one in this number of connections has changed.
const FEW: usize = 20;
/// The longest time of all these rounds.
const AHEAD_LONGEST: Duration = Duration::from_secs(10);

/// The way of a loop's connections to the new process.
struct Way {
    channel: Channel,
    ledger: Ledger,
}

/// A loop that takes part, as the thread that coordinates sees it.
struct Part {
    news: Receiver<io::Result<News>>,
    /// Lets the loop go on. Dropping it ends the move.
    go: Sender<()>,
}

enum News {
    Settled,
    Saved { moved: usize, refused: usize, staying: Staying },
}

impl ServerHandle {
    /// Moves all connections that can move, and the listening sockets, to the process at the other end of `stream`, which
    /// [takes over](crate::Server::take_over). Blocks until that is done. Peers notice a pause, and nothing else.
    ///
    /// If the new process fails or ends at any step before it goes on with them, the connections go on here, and an error is
    /// returned. Connections that cannot move are closed with 1012 (service restart) within
    /// [`HandOver::deadline`]; then the loops end, and [`join`](Self::join) returns.
    ///
    /// # Errors
    /// The step that failed. This server then goes on as before.
    pub fn hand_over(&self, stream: UnixStream, settings: &HandOver) -> io::Result<HandedOver> {
        let mut control = Channel::new(stream, PATIENCE)?;
        let peer = control.check_peer(settings.user)?;
        let moved = self.move_to(&mut control, &peer).inspect_err(|error| {
            self.count_upgrade(|upgrades| upgrades.failed += 1);
            control.abort(error);
        });
        let handed = moved?;
        self.count_upgrade(|upgrades| {
            upgrades.count(&handed);
            upgrades.pause.add(handed.pause);
        });
        // Handshakes that have begun here end here.
        let start = Instant::now();
        let handshaking = || self.shards().iter().any(|shard| shard.counters().handshaking > 0);
        while handshaking() && start.elapsed() < HANDSHAKES {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.drain(CloseCode::new(1012), "service restart", settings.deadline);
        Ok(handed)
    }

    fn move_to(&self, control: &mut Channel, peer: &Peer) -> io::Result<HandedOver> {
        if !self.is_running() {
            return Err(io::Error::other("a loop of this server has ended"));
        }
        if self.shards().iter().any(ShardHandle::has_own_descriptors) {
            // A number of this loop would be another descriptor on the thread that sends it.
            let what = "loops with descriptors of their own (`own_descriptors`) cannot hand sockets over";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let additions = greeted(&control.expect(Kind::Hello)?.content)?;
        let known = additions > 0;
        let mut loops = self.offer(control)?;
        // The new process starts its loops meanwhile.
        control.wait_at_most(Some(Duration::from_secs(60)))?;
        control.expect(Kind::Started)?;
        control.wait_at_most(Some(PATIENCE))?;
        if additions > 1 {
            loops = self.send_ahead(loops)?;
        }
        let start = Instant::now();
        let deadline = start + PATIENCE;
        let parts: Vec<Part> =
            loops.into_iter().enumerate().map(|(number, way)| self.begin(number, way, known)).collect();
        for _ in 0..ROUNDS {
            news(&parts, deadline, |_| ())?;
            go(&parts)?;
        }
        let mut handed = HandedOver::default();
        news(&parts, deadline, |news| {
            if let News::Saved { moved, refused, staying } = news {
                handed.moved += moved;
                handed.refused += refused;
                handed.staying.merge(&staying);
            }
        })?;
        control.expect(Kind::Ready)?;
        let stopped = start.elapsed();
        let totals = if known { self.legacy(&handed, stopped).encode() } else { Vec::new() };
        control.send(Kind::Commit, &totals, &[])?;
        wait_for_running(control, peer)?;
        // The loops here forget their connections after that, since the new process needs the CPUs first.
        let resumed = known.then(|| wait_for_resumed(control)).flatten();
        handed.pause = resumed.map_or_else(|| start.elapsed(), |resumed| stopped + resumed);
        go(&parts)?;
        Ok(handed)
    }

    /// The totals of this server after an upgrade.
    fn legacy(&self, handed: &HandedOver, stopped: Duration) -> Legacy {
        let mut upgrades = self.upgrades();
        upgrades.count(handed);
        let reloads = self.reloader().reloads();
        let broker = self.broker_counters().unwrap_or_default().totals();
        Legacy { upgrades, reloads: [reloads.done, reloads.failed], broker, stopped }
    }

    /// Sends a socket for each loop, the listening sockets and the ticket keys. Returns this end of the former.
    fn offer(&self, control: &mut Channel) -> io::Result<Vec<Way>> {
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
    fn send_ahead(&self, mut loops: Vec<Way>) -> io::Result<Vec<Way>> {
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

    fn begin(&self, number: usize, way: Way, many: bool) -> Part {
        let (tell, news) = channel();
        let (go, may_go) = channel();
        self.run_on(number, move |shard| {
            if let Err(error) = take_part(shard, (way, many), &tell, &may_go) {
                // Nobody listens any more if another loop has failed.
                let _ = tell.send(Err(error));
            }
        });
        Part { news, go }
    }
}

/// Refuses a new process that does not know the protocol, or not the format in which connections are saved. Returns the additions
/// to the protocol that it knows.
///
/// Builds whose greeting has one byte read the first format.
fn greeted(hello: &[u8]) -> io::Result<u8> {
    let (reads, additions) = match *hello {
        [VERSION] => (1, 0),
        [VERSION, reads] => (reads, 0),
        [VERSION, reads, additions, ..] => (reads, additions),
        [version, ..] => return Err(other_version(version)),
        [] => return Err(misbehaves()),
    };
    if reads >= SAVED_FORMAT {
        return Ok(additions);
    }
    let what = format!(
        "the new process is of an older build: it reads connections up to format {reads}, and this one saves format \
         {SAVED_FORMAT}; start a newer build"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}

/// A loop's part of the move, on its thread. Returns with the loop as it was, or without the connections that have moved.
///
/// `many` connections go in a frame, if the new process takes that.
fn take_part(
    shard: &mut dyn Loop,
    (way, many): (Way, bool),
    tell: &Sender<io::Result<News>>,
    may_go: &Receiver<()>,
) -> io::Result<()> {
    let ended = || io::Error::other("the move has ended");
    for _ in 0..ROUNDS {
        shard.settle();
        tell.send(Ok(News::Settled)).map_err(|_| ended())?;
        may_go.recv().map_err(|_| ended())?;
    }
    shard.hold_still()?;
    let Way { mut channel, mut ledger } = way;
    ledger.begin_last_round();
    let mut others: Vec<Option<ConnId>> = Vec::new();
    let (mut batch, mut changes) = (Batch::new(many), Changes::new());
    let staying = shard.save(&mut |conn, socket, saved| match ledger.entry(conn, saved) {
        Entry::New => {
            others.push(Some(conn));
            batch.add(&mut channel, socket, saved)
        }
        Entry::Same => Ok(()),
        Entry::Changed(number) => changes.add(&mut channel, number, saved),
    })?;
    changes.send(&mut channel)?;
    batch.send(&mut channel)?;
    drop(batch);
    let mut conns = ledger.into_conns();
    let gone: Vec<u8> = conns
        .iter()
        .zip(0_u32..)
        .filter(|(conn, _)| conn.is_none())
        .flat_map(|(_, number)| number.to_be_bytes())
        .collect();
    if !gone.is_empty() {
        channel.send(Kind::Gone, &gone, &[])?;
    }
    conns.append(&mut others);
    channel.send(Kind::End, &shard.totals().encode(), &[])?;
    let taken = channel.expect(Kind::Taken)?;
    let mut refused = 0;
    for bytes in taken.content.as_chunks().0 {
        let conn = conns.get_mut(u32::from_be_bytes(*bytes) as usize).ok_or_else(misbehaves)?;
        refused += usize::from(conn.take().is_some());
    }
    let conns: Vec<ConnId> = conns.into_iter().flatten().collect();
    let saved = News::Saved { moved: conns.len(), refused, staying };
    tell.send(Ok(saved)).map_err(|_| ended())?;
    may_go.recv().map_err(|_| ended())?;
    shard.give_away(&conns);
    shard.give_listening_away();
    Ok(())
}

/// Waits for the next news of all loops.
fn news(parts: &[Part], deadline: Instant, mut each: impl FnMut(News)) -> io::Result<()> {
    for part in parts {
        match part.news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(news) => each(news?),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(stuck()),
        }
    }
    Ok(())
}

fn go(parts: &[Part]) -> io::Result<()> {
    parts.iter().try_for_each(|part| part.go.send(()).map_err(|_| stuck()))
}

fn stuck() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a loop does not take part: a handler blocks it, or it has ended")
}

/// Waits until the new process says that it goes on. Until then it has not touched a connection.
///
/// It may not be given up before, since it could go on a moment later. Its end is noticed.
fn wait_for_running(control: &mut Channel, peer: &Peer) -> io::Result<()> {
    control.wait_at_most(Some(Duration::from_secs(1)))?;
    loop {
        match control.receive() {
            Ok(frame) if frame.kind == Kind::Running => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                log::warn!(
                    "waiting for the new process, which has everything and does not go on; its end would give it back"
                );
            }
            Ok(_) => return Err(misbehaves()),
            Err(error) => {
                let how = if peer.has_ended() { "has ended" } else { "gave up" };
                return Err(io::Error::new(error.kind(), format!("the new process {how} before it went on: {error}")));
            }
        }
    }
}

/// Waits until the new process serves all connections, and returns the time that it took for that. `None` if it does not say.
fn wait_for_resumed(control: &mut Channel) -> Option<Duration> {
    control.wait_at_most(Some(PATIENCE)).ok()?;
    let frame = control.expect(Kind::Resumed).inspect_err(|error| log::warn!("no word of the new process: {error}"));
    let nanos = frame.ok()?.content.as_slice().try_into().ok()?;
    Some(Duration::from_nanos(u64::from_be_bytes(nanos)))
}
