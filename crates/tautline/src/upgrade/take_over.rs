//! The new process's side: it executes the steps of [`New`], with its loops.

use super::arriving::{Arriving, SAVING};
use super::channel::{Channel, Frame, PATIENCE, VERSION, is_closed, misbehaves, other_version, private, wait_for_any};
use super::kind::Kind;
use super::protocol::{Input, New, NewDo as Do, Wrote};
use super::upgrades::Legacy;
use crate::erased::ThreadLoop;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_engine::{SAVED_FORMAT, Totals};
use zeroize::Zeroizing;

/// The time between two attempts to write Running.
const AGAIN: Duration = Duration::from_millis(100);

/// A take-over on its way. Dropping it leaves everything to the old process, and says so.
#[derive(Debug)]
pub(crate) struct TakeOver {
    control: Channel,
    state: New,
    /// The next step.
    step: Do,
    offer: Offer,
    loops: Vec<Taker>,
    /// The totals of the old process.
    legacy: Legacy,
    /// When Commit came.
    committed: Option<Instant>,
    /// Why the take-over fails.
    why: Option<io::Error>,
}

/// The offer of the old process.
#[derive(Debug, Default)]
struct Offer {
    /// The ticket keys, if it has its own.
    tickets: Zeroizing<Vec<u8>>,
    /// A socket for each loop.
    loops: Vec<Channel>,
    listening: Vec<OwnedFd>,
    /// The listening sockets of further servers, with the servers' numbers from 1 on.
    also: Vec<(u8, OwnedFd)>,
}

/// A loop that takes connections, as the starting thread sees it.
#[derive(Debug)]
struct Taker {
    /// The loop has taken its connections.
    taken: Receiver<io::Result<()>>,
    /// Lets the loop go on. Without it the loop ends.
    go: Sender<()>,
    /// The loop serves its connections. It ends without a word if the loop does.
    begun: Receiver<()>,
}

/// The loops' part.
pub(crate) struct Arrivals(Vec<Mutex<Option<Arrival>>>);

/// The connections of the old loops that go to one new loop.
struct Arrival {
    from: Vec<Channel>,
    tell: Sender<io::Result<()>>,
    may_go: Receiver<()>,
    begin: Sender<()>,
}

impl TakeOver {
    /// Greets the old process, and gets its offer. Returns the part of `loops` loops, and the listening sockets.
    pub(crate) fn greet(
        stream: UnixStream,
        user: Option<u32>,
        loops: usize,
    ) -> io::Result<(Self, Arc<Arrivals>, Vec<OwnedFd>)> {
        let control = Channel::new(private(stream)?, PATIENCE)?;
        control.check_peer(user)?;
        let (state, step) = New::begin();
        let mut own = Self {
            control,
            state,
            step,
            offer: Offer::default(),
            loops: Vec::new(),
            legacy: Legacy::default(),
            committed: None,
            why: None,
        };
        own.run_while(|step| step == Do::Greet);
        if own.state == New::Withdrawn {
            return Err(own.fail());
        }
        let loops = loops.max(1);
        let mut from: Vec<Vec<Channel>> = (0..loops).map(|_| Vec::new()).collect();
        for (number, channel) in mem::take(&mut own.offer.loops).into_iter().enumerate() {
            from[number % loops].push(channel);
        }
        let arrivals = from.into_iter().map(|from| {
            let ((tell, taken), (go, may_go), (begin, begun)) = (channel(), channel(), channel());
            own.loops.push(Taker { taken, go, begun });
            Mutex::new(Some(Arrival { from, tell, may_go, begin }))
        });
        let arrivals = Arrivals(arrivals.collect());
        let listening = mem::take(&mut own.offer.listening);
        Ok((own, Arc::new(arrivals), listening))
    }

    pub(crate) fn tickets(&self) -> &[u8] {
        &self.offer.tickets
    }

    /// Takes the listening sockets of a further server of the old process.
    pub(crate) fn take_listening_of(&mut self, server: usize) -> Vec<OwnedFd> {
        let of_it = |one: &mut (u8, OwnedFd)| usize::from(one.0) == server + 1;
        self.offer.also.extract_if(.., of_it).map(|(_, socket)| socket).collect()
    }

    /// Tells the old process why nothing is taken over.
    pub(crate) fn give_up(mut self, why: &dyn fmt::Display) {
        self.why = Some(io::Error::other(why.to_string()));
    }

    /// Everything is prepared: takes the connections, and lets the loops go on once they are this process's. Returns the totals of
    /// the old process.
    pub(crate) fn finish(mut self) -> io::Result<Legacy> {
        (self.state, self.step) = self.state.handle(Input::Done);
        self.run_while(|step| !matches!(step, Do::GoOn | Do::Withdraw));
        if self.state != New::Owner {
            return Err(self.fail());
        }
        self.go_on();
        Ok(mem::take(&mut self.legacy))
    }

    /// Executes steps.
    fn run_while(&mut self, goes_on: impl Fn(Do) -> bool) {
        while goes_on(self.step) {
            let input = self.execute(self.step);
            (self.state, self.step) = self.state.handle(input);
        }
    }

    fn execute(&mut self, step: Do) -> Input {
        let result = match step {
            Do::Greet => self.get_offer(),
            Do::Take => self.take(),
            Do::SayReady => self.control.send(Kind::Ready, &[], &[]),
            Do::Wait => return self.wait(),
            Do::SayRunning => return Input::Wrote(self.say_running()),
            // They are executed where the caller knows more.
            Do::Prepare | Do::GoOn | Do::Withdraw => Ok(()),
        };
        match result {
            Ok(()) => Input::Done,
            Err(error) => {
                self.why = Some(error);
                Input::Failed
            }
        }
    }

    fn fail(&mut self) -> io::Error {
        let error = self.why.take().unwrap_or_else(misbehaves);
        self.why = Some(io::Error::new(error.kind(), error.to_string()));
        error
    }

    fn get_offer(&mut self) -> io::Result<()> {
        self.control.send(Kind::Hello, &[VERSION, SAVED_FORMAT], &[])?;
        let count = match self.control.expect(Kind::Loops)?.content[..] {
            [VERSION, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
            [version, ..] if version != VERSION => return Err(other_version(version)),
            _ => return Err(misbehaves()),
        };
        for _ in 0..count {
            let socket = self.control.expect(Kind::Loops)?.fds.pop().ok_or_else(misbehaves)?;
            self.offer.loops.push(Channel::new(socket.into(), SAVING)?);
        }
        loop {
            let Frame { kind, content, fds } = self.control.receive()?;
            match (kind, &content[..]) {
                (Kind::Listening, []) => self.offer.listening.extend(fds),
                (Kind::Listening, &[server]) => self.offer.also.extend(fds.into_iter().map(|socket| (server, socket))),
                (Kind::Offered, _) => {
                    self.offer.tickets = content;
                    return Ok(());
                }
                _ => return Err(misbehaves()),
            }
        }
    }

    /// Has the loops take all connections.
    fn take(&mut self) -> io::Result<()> {
        self.control.send(Kind::Started, &[], &[])?;
        for taker in &self.loops {
            let taken = taker.taken.recv_timeout(SAVING + PATIENCE);
            match taken.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "a loop does not take over"))? {
                // The old process has closed the loop's socket. It says why on the other one.
                Err(error) if is_closed(&error) => return Err(self.control.receive().err().unwrap_or(error)),
                taken => taken?,
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> Input {
        let heard = self.control.hear();
        let input = heard.input();
        match heard.frame() {
            Ok(frame) if frame.kind == Kind::Commit => {
                self.committed = Some(Instant::now());
                self.legacy = Legacy::decode(&frame.content);
            }
            Ok(_) => {}
            Err(error) => self.why = Some(error),
        }
        input
    }

    fn say_running(&mut self) -> Wrote {
        let wrote = self.control.write(Kind::Running);
        if wrote == Wrote::Nothing {
            self.why = Some(io::Error::other("the old process cannot be told that this one goes on"));
            std::thread::sleep(AGAIN);
        }
        wrote
    }

    /// Lets the loops go on, and says so once all that have not failed serve their connections.
    fn go_on(&mut self) {
        for taker in &self.loops {
            // A loop that has failed is reported as ever.
            let _ = taker.go.send(());
        }
        let begun = self.loops.iter().filter(|taker| has_begun(taker)).count();
        let Some(committed) = self.committed.filter(|_| begun > 0) else { return };
        let took = committed.elapsed();
        self.legacy.upgrades.pause.add(self.legacy.stopped + took);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // The connections are here, whatever the old process does now.
        let _ = self.control.send(Kind::Resumed, &nanos.to_be_bytes(), &[]);
    }
}

/// An owner says nothing here: it has gone on.
impl Drop for TakeOver {
    fn drop(&mut self) {
        if self.state == New::Owner {
            return;
        }
        self.state = New::Withdrawn;
        // The loops end: nobody lets them go on.
        self.loops.clear();
        match &self.why {
            Some(why) => self.control.abort(why),
            None => self.control.abort(&"the program did not go on"),
        }
    }
}

/// Waits until a loop serves its connections. False if it has ended.
fn has_begun(taker: &Taker) -> bool {
    loop {
        match taker.begun.recv_timeout(PATIENCE) {
            Ok(()) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                log::warn!("waiting for a loop to begin its connections: `on_restored` of the handler blocks it");
            }
        }
    }
}

impl Arrivals {
    /// Takes the connections of the loop `number`, on its thread. False if the loop is not to run.
    pub(crate) fn take(&self, number: usize, shard: &mut dyn ThreadLoop) -> bool {
        let arrival = self.0.get(number);
        let arrival = arrival.and_then(|arrival| arrival.lock().unwrap_or_else(PoisonError::into_inner).take());
        let Some(Arrival { from, tell, may_go, begin }) = arrival else { return true };
        let from = from.into_iter().map(Arriving::new).collect();
        let (taken, totals) = match restore_all(shard, from) {
            Ok(totals) => (Ok(()), totals),
            Err(error) => (Err(error), Vec::new()),
        };
        if tell.send(taken).is_err() || may_go.recv().is_err() {
            return false;
        }
        totals.iter().for_each(|totals| shard.add_totals(totals));
        shard.begin_restored();
        // The program may have ended meanwhile.
        let _ = begin.send(());
        true
    }
}

/// Restores the connections of old loops as they come, until the last of each has come. Returns their totals.
fn restore_all(shard: &mut dyn ThreadLoop, mut from: Vec<Arriving>) -> io::Result<Vec<Totals>> {
    let mut totals = Vec::new();
    while !from.is_empty() {
        let number = wait_for_any(from.iter().map(|one| &one.channel), SAVING)?;
        if let Some(of_loop) = from[number].receive(shard)? {
            totals.push(of_loop);
            from.swap_remove(number);
        }
    }
    Ok(totals)
}
