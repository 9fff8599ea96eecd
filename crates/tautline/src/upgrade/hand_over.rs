//! The old process's side: it executes the steps of [`Old`], with its loops.

use super::channel::{Channel, Frame, PATIENCE, VERSION, misbehaves, other_version, private};
use super::error::HandOverError;
use super::handed::HandedOver;
use super::kind::Kind;
use super::part::{Go, News, Part, ROUNDS, Way, news, stuck};
use super::protocol::{Input, Old, OldDo as Do};
use super::settings::HandOver;
use super::upgrades::Legacy;
use crate::{Restart, ServerHandle};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::TryLockError;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tautline_engine::{SAVED_FORMAT, ShardHandle, Totals};

/// How long connections in their handshake may go on in the old process before it drains.
const HANDSHAKES: Duration = Duration::from_secs(2);
/// How long the new process may take to start, and to prepare all that may fail.
const STARTING: Duration = Duration::from_secs(60);
/// The longest time between two log lines about a new process that does not go on.
const REMINDER: Duration = Duration::from_secs(60);

impl ServerHandle {
    /// Moves all connections that can move, and the listening sockets, to the process at the other end of `stream`, which
    /// [takes over](crate::Server::take_over). Blocks until they are served there. Peers notice a pause, and nothing else.
    ///
    /// If the new process fails or ends at any step before it goes on with them, the connections go on here, and an error is
    /// returned. Connections that cannot move are closed with 1012 (service restart) within
    /// [`HandOver::deadline`]; then the loops end, and [`join`](Self::join) returns.
    ///
    /// `stream` has to be the only copy of its socket.
    ///
    /// # Errors
    /// The step that failed, and whether connections were lost. This server then goes on with the others.
    pub fn hand_over(&self, stream: UnixStream, settings: &HandOver) -> Result<HandedOver, HandOverError> {
        // An upgrade that panicked has left the loops in order.
        let _one = match self.upgrading().try_lock() {
            Err(TryLockError::WouldBlock) => {
                let what = "an upgrade of this server is on its way";
                return Err(HandOverError::Failed(io::Error::new(io::ErrorKind::ResourceBusy, what)));
            }
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Ok(one) => one,
        };
        let handed =
            self.move_to(stream, settings).inspect_err(|_| self.count_upgrade(|upgrades| upgrades.failed += 1))?;
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
        for server in settings.also.iter().chain([self]) {
            server.leave_listening();
            // Their clients return one by one.
            server.drain_for_restart(&Restart::default().with_reason("service restart"), settings.deadline);
        }
        Ok(handed)
    }

    fn move_to(&self, stream: UnixStream, settings: &HandOver) -> Result<HandedOver, HandOverError> {
        let mut moving = Moving::new(self, stream, settings).map_err(HandOverError::Failed)?;
        let (mut state, mut step) = Old::begin();
        let mut input;
        while !state.has_ended() {
            input = moving.execute(step, state);
            (state, step) = state.handle(input);
        }
        // The last step is followed by nothing.
        moving.execute(step, state);
        match state {
            Old::Done => Ok(moving.handed),
            Old::Lost => Err(HandOverError::Lost { connections: moving.handed.moved, error: moving.why() }),
            _ => Err(HandOverError::Failed(moving.why())),
        }
    }

    /// Leaves the listening sockets, and their files, to the process that has copies of them.
    fn leave_listening(&self) {
        let (tell, told) = channel();
        let running = (0..self.shards().len()).filter(|number| self.shards()[*number].is_running());
        for number in running {
            let tell = tell.clone();
            self.run_on(number, move |shard| {
                shard.give_listening_away();
                // Nobody listens any more if that took too long.
                let _ = tell.send(());
            });
        }
        drop(tell);
        while told.recv_timeout(PATIENCE).is_ok() {}
    }

    /// Whether this server can hand over at all.
    fn can_move(&self) -> io::Result<()> {
        if !self.is_running() {
            return Err(io::Error::other("a loop of this server has ended"));
        }
        if self.is_draining() {
            return Err(io::Error::other("this server closes its connections"));
        }
        if self.shards().iter().any(ShardHandle::has_own_descriptors) {
            // A number of this loop would be another descriptor on the thread that sends it.
            let what = "loops with descriptors of their own (`own_descriptors`) cannot hand sockets over";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Ok(())
    }

    /// The totals of this server after an upgrade.
    fn legacy(&self, handed: &HandedOver, application: Totals, stopped: Duration) -> Legacy {
        let mut upgrades = self.upgrades();
        upgrades.count(handed);
        let reloads = self.reloader().reloads();
        let broker = self.broker_counters().unwrap_or_default().totals();
        Legacy { upgrades, reloads: [reloads.done, reloads.failed], broker, application, stopped }
    }
}

/// A hand-over on its way.
struct Moving<'s> {
    server: &'s ServerHandle,
    also: &'s [ServerHandle],
    totals: &'s Totals,
    control: Channel,
    /// The ways of the loops, until they take part.
    ways: Vec<Way>,
    parts: Vec<Part>,
    /// When the loops were asked to hold still.
    start: Instant,
    handed: HandedOver,
    /// How long the next frame may take.
    patience: Duration,
    /// Why the upgrade fails.
    why: Option<io::Error>,
}

impl<'s> Moving<'s> {
    fn new(server: &'s ServerHandle, stream: UnixStream, settings: &'s HandOver) -> io::Result<Self> {
        let control = Channel::new(private(stream)?, PATIENCE)?;
        let mut moving = Self {
            server,
            also: &settings.also,
            totals: &settings.totals,
            control,
            ways: Vec::new(),
            parts: Vec::new(),
            start: Instant::now(),
            handed: HandedOver::default(),
            patience: PATIENCE,
            why: None,
        };
        let checked = moving.control.check_peer(settings.user).and_then(|()| server.can_move());
        checked.inspect_err(|error| moving.control.abort(error))?;
        Ok(moving)
    }

    fn why(self) -> io::Error {
        self.why.unwrap_or_else(misbehaves)
    }

    fn execute(&mut self, step: Do, state: Old) -> Input {
        match step {
            Do::Wait => self.wait(state),
            Do::Offer => {
                let offered = self.offer();
                self.done(offered)
            }
            Do::Move => {
                let moved = self.hold_and_send();
                self.done(moved)
            }
            Do::Commit => {
                let committed = self.commit();
                self.done(committed)
            }
            Do::Abort => {
                self.go(Go::Resume);
                let why = self.why.get_or_insert_with(misbehaves);
                self.control.abort(why);
                Input::Done
            }
            Do::Resume => self.go(Go::Resume),
            Do::Forget => self.go(Go::Forget),
            Do::Leave => self.go(Go::Leave),
        }
    }

    fn done(&mut self, result: io::Result<()>) -> Input {
        match result {
            Ok(()) => Input::Done,
            Err(error) => {
                self.why = Some(error);
                Input::Failed
            }
        }
    }

    /// Gives the loops the word. None of them has to take it: one that has ended touches nothing.
    fn go(&self, word: Go) -> Input {
        self.parts.iter().for_each(|part| _ = part.go.send(word));
        Input::Done
    }

    fn wait(&mut self, state: Old) -> Input {
        if let Err(error) = self.control.wait_at_most(self.patience) {
            log::debug!("the time to wait for the new process cannot be set: {error}");
        }
        let heard = self.control.hear();
        let input = heard.input();
        if input == Input::Late && matches!(state, Old::Committed | Old::Left { .. }) {
            self.patience = (self.patience * 2).min(REMINDER);
            let what = match state {
                Old::Left { .. } => "has taken over and does not serve all connections yet",
                _ => "has everything and does not go on; its end would give it back",
            };
            log::warn!("waiting for the new process, which {what}");
            return input;
        }
        let taken = match heard.frame() {
            Ok(frame) => self.take(state, frame),
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => input,
            Err(error) => {
                self.why = Some(error);
                // Only a frame whose content is wrong is another input than itself.
                if matches!(input, Input::Frame(kind) if kind != Kind::Abort) { Input::Failed } else { input }
            }
        }
    }

    /// Checks what a frame says.
    fn take(&mut self, state: Old, frame: Frame) -> io::Result<()> {
        match (state, frame.kind) {
            (Old::Greeting, Kind::Hello) => greeted(&frame.content)?,
            // Its drain is this process's matter.
            (Old::Moved, Kind::Ready) => self.server.can_move()?,
            (Old::Committed, Kind::Running) => self.patience = PATIENCE,
            (Old::Left { .. }, Kind::Resumed) => {
                let nanos = frame.content.as_slice().try_into().map_or(0, u64::from_be_bytes);
                self.handed.pause += Duration::from_nanos(nanos);
            }
            _ => {}
        }
        Ok(())
    }

    fn offer(&mut self) -> io::Result<()> {
        self.ways = self.server.offer(&mut self.control, self.also)?;
        // The new process starts its loops meanwhile.
        self.patience = STARTING;
        Ok(())
    }

    /// Sends connections ahead, and then holds all loops still, which send the rest.
    fn hold_and_send(&mut self) -> io::Result<()> {
        let ways = self.server.send_ahead(std::mem::take(&mut self.ways))?;
        self.start = Instant::now();
        let deadline = self.start + PATIENCE;
        let server = self.server;
        self.parts = ways.into_iter().enumerate().map(|(number, way)| server.begin(number, way)).collect();
        for _ in 0..ROUNDS {
            news(&self.parts, deadline, |_| ())?;
            self.parts.iter().try_for_each(|part| part.go.send(Go::Next).map_err(|_| stuck()))?;
        }
        let handed = &mut self.handed;
        news(&self.parts, deadline, |news| {
            if let News::Saved { moved, refused, staying } = news {
                handed.moved += moved;
                handed.refused += refused;
                handed.staying.merge(&staying);
            }
        })?;
        self.patience = deadline.saturating_duration_since(Instant::now());
        Ok(())
    }

    /// Writes Commit. The loops know before its first byte leaves.
    fn commit(&mut self) -> io::Result<()> {
        self.go(Go::Commits);
        let stopped = self.start.elapsed();
        self.handed.pause = stopped;
        self.patience = Duration::from_secs(1);
        let totals = self.server.legacy(&self.handed, self.totals.clone(), stopped).encode();
        self.control.send(Kind::Commit, &totals, &[])
    }
}

/// Refuses a new process that does not know the protocol, or not the format in which connections are saved.
fn greeted(hello: &[u8]) -> io::Result<()> {
    let reads = match *hello {
        [VERSION, reads] => reads,
        [version, ..] if version != VERSION => return Err(other_version(version)),
        _ => return Err(misbehaves()),
    };
    if reads >= SAVED_FORMAT {
        return Ok(());
    }
    let what = format!(
        "the new process is of an older build: it reads connections up to format {reads}, and this one saves format \
         {SAVED_FORMAT}; start a newer build"
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}
