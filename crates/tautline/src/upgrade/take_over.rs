//! The new process's side: it starts, takes everything, and goes on once the old process has let go.

use super::arriving::{Arriving, SAVING, is_end};
use super::channel::{ADDITIONS, Channel, Kind, Peer, VERSION, misbehaves, other_version, wait_for_any};
use super::{Legacy, PATIENCE};
use crate::jobs::Loop;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tautline_engine::{SAVED_FORMAT, Totals};
use zeroize::Zeroizing;

/// The connection to the old process, after the greeting.
pub(crate) struct TakeOver {
    control: Channel,
    peer: Peer,
    /// The ticket keys of the old process, if it has its own.
    tickets: Zeroizing<Vec<u8>>,
    taken: Receiver<io::Result<Taken>>,
    go: Vec<Sender<()>>,
    begun: Receiver<()>,
}

/// The loops' part.
pub(crate) struct Arrivals {
    loops: Vec<Mutex<Arrival>>,
    taken: Mutex<Sender<io::Result<Taken>>>,
    begun: Mutex<Sender<()>>,
}

/// The connections of the old loops that go to one new loop.
struct Arrival {
    from: Vec<Channel>,
    may_go: Option<Receiver<()>>,
}

/// A loop has taken its connections: all of them, or those that came before the old process ended.
enum Taken {
    All,
    Some,
}

impl TakeOver {
    /// Greets the old process, and gets its listening sockets and a socket for each of its loops, which `loops` loops share.
    pub(crate) fn greet(
        stream: UnixStream,
        user: Option<u32>,
        loops: usize,
    ) -> io::Result<(Self, Arc<Arrivals>, Vec<OwnedFd>)> {
        let mut control = Channel::new(stream, PATIENCE)?;
        let peer = control.check_peer(user)?;
        control.send(Kind::Hello, &[VERSION, SAVED_FORMAT, ADDITIONS], &[])?;
        let offer = control.expect(Kind::Loops)?;
        let (a, b, c, d) = match offer.content[..] {
            [VERSION, a, b, c, d] => (a, b, c, d),
            [version, ..] if version != VERSION => return Err(other_version(version)),
            _ => return Err(misbehaves()),
        };
        let count = u32::from_be_bytes([a, b, c, d]);
        let loops = loops.max(1);
        let mut from: Vec<Vec<Channel>> = (0..loops).map(|_| Vec::new()).collect();
        for number in 0..count as usize {
            let socket = control.expect(Kind::Loops)?.fds.pop().ok_or_else(misbehaves)?;
            from[number % loops].push(Channel::new(socket.into(), SAVING)?);
        }
        let mut listening = Vec::new();
        let tickets = loop {
            let frame = control.receive()?;
            match frame.kind {
                Kind::Listening => listening.extend(frame.fds),
                Kind::Offered => break frame.content,
                _ => return Err(misbehaves()),
            }
        };
        let (tell, taken) = channel();
        let mut go = Vec::new();
        let arrivals = from.into_iter().map(|from| {
            let (send, may_go) = channel();
            go.push(send);
            Mutex::new(Arrival { from, may_go: Some(may_go) })
        });
        let (begin, begun) = channel();
        let arrivals = Arrivals { loops: arrivals.collect(), taken: Mutex::new(tell), begun: Mutex::new(begin) };
        Ok((Self { control, peer, tickets, taken, go, begun }, Arc::new(arrivals), listening))
    }

    pub(crate) fn tickets(&self) -> &[u8] {
        &self.tickets
    }

    /// All loops have begun: takes the connections, and lets the loops go on once they are this process's. Returns the totals of
    /// the old process.
    pub(crate) fn finish(mut self) -> io::Result<Legacy> {
        let committed = self.take().inspect_err(|error| self.control.abort(error))?;
        // A loop that has failed meanwhile has no connections.
        let going = self.go.iter().filter(|go| go.send(()).is_ok()).count();
        let begun = (0..going).all(|_| self.begun.recv_timeout(PATIENCE).is_ok());
        let Some((mut legacy, committed)) = committed else { return Ok(Legacy::default()) };
        if begun {
            let took = committed.elapsed();
            legacy.upgrades.pause.add(legacy.stopped + took);
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            // The connections are here, whatever the old process does now.
            let _ = self.control.send(Kind::Resumed, &nanos.to_be_bytes(), &[]);
        }
        Ok(legacy)
    }

    /// Returns the totals of the old process, and the time at which the connections became this process's. `None` if the old
    /// process has ended, or is of a build that does not say more.
    fn take(&mut self) -> io::Result<Option<(Legacy, Instant)>> {
        self.control.send(Kind::Started, &[], &[])?;
        let mut all = true;
        for _ in 0..self.go.len() {
            let taken = self.taken.recv_timeout(SAVING + PATIENCE);
            let taken = taken.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "a loop does not take over"))??;
            all &= matches!(taken, Taken::All);
        }
        let committed = if all { self.commit() } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        match committed {
            Err(_) if self.peer.has_ended() => {
                log::warn!("the old process has ended before it let go: its connections that arrived go on here");
                Ok(None)
            }
            committed => committed,
        }
    }

    /// From the moment of the last frame on, the connections are this process's.
    fn commit(&mut self) -> io::Result<Option<(Legacy, Instant)>> {
        self.control.send(Kind::Ready, &[], &[])?;
        let commit = self.control.expect(Kind::Commit)?;
        let committed = Instant::now();
        self.control.send(Kind::Running, &[], &[])?;
        Ok((!commit.content.is_empty()).then(|| (Legacy::decode(&commit.content), committed)))
    }
}

impl Arrivals {
    /// Takes the connections of the loop `number`, on its thread. False if the loop is not to run.
    pub(crate) fn take(&self, number: usize, shard: &mut dyn Loop) -> bool {
        let Some(arrival) = self.loops.get(number) else { return true };
        let mut arrival = arrival.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(may_go) = arrival.may_go.take() else { return true };
        let from = mem::take(&mut arrival.from).into_iter().map(Arriving::new).collect();
        let (taken, totals) = match restore_all(shard, from) {
            Ok((taken, totals)) => (Ok(taken), totals),
            Err(error) => (Err(error), Vec::new()),
        };
        let told = self.taken.lock().unwrap_or_else(PoisonError::into_inner).send(taken);
        if told.is_err() || may_go.recv().is_err() {
            return false;
        }
        totals.iter().for_each(|totals| shard.add_totals(totals));
        shard.begin_restored();
        // Nobody waits any more if that took too long.
        let _ = self.begun.lock().unwrap_or_else(PoisonError::into_inner).send(());
        true
    }
}

/// Restores the connections of old loops as they come, until the last of each has come. Returns their totals.
fn restore_all(shard: &mut dyn Loop, mut from: Vec<Arriving>) -> io::Result<(Taken, Vec<Totals>)> {
    let (mut taken, mut totals) = (Taken::All, Vec::new());
    while !from.is_empty() {
        let number = wait_for_any(from.iter().map(|one| &one.channel), SAVING)?;
        match from[number].receive(shard) {
            Ok(None) => {}
            Ok(Some(of_loop)) => {
                totals.push(of_loop);
                from.swap_remove(number);
            }
            Err(error) if is_end(&error) => {
                from.swap_remove(number).keep_last_states(shard);
                taken = Taken::Some;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((taken, totals))
}
