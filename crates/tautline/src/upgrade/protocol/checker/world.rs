//! Two processes, the socket between them, and their loops, as values.

use super::rules::Rule;
use crate::upgrade::kind::Kind;
use crate::upgrade::protocol::{Input, New, NewDo, Old, OldDo, Wrote};

/// Loops of the old process, with a connection each.
const LOOPS: usize = 2;
/// Most records of a connection that each process seals. More of them show nothing else.
const MOST_SEALED: u8 = 2;
/// Most frames on their way in one direction.
const MOST_FRAMES: usize = 6;

/// Something in the stream of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Frame(Kind),
    /// The first bytes of a frame. Nothing comes after it.
    Cut(Kind),
    Garbage,
}

/// The stream of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Stream {
    items: Vec<Item>,
    /// The writer has closed its end.
    ended: bool,
    /// The reader has closed its end.
    unread: bool,
}

/// How far a step comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Comes {
    Whole,
    /// The first byte of its frame was written.
    InPart,
    /// Nothing was written, or the step failed before it had an effect.
    Nowhere,
    /// Nothing came in time.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Old,
    New,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Step(Who, Comes),
    /// A loop of the old process holds still, and sends its connection's last state.
    Hold(usize),
    /// A loop of the old process that holds still fails before all have sent their states, and goes on.
    LetGo(usize),
    Seal(Who, usize),
    Kill(Who),
    Stop(Who),
    Continue(Who),
    /// The thread that coordinates panics.
    Panic(Who),
    /// A frame comes that nobody expects.
    Strange(Who, Kind),
    Garbage(Who),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    stopped: bool,
    /// The thread that coordinates has ended.
    over: bool,
}

const RUNS: Process = Process { alive: true, stopped: false, over: false };

impl Process {
    const fn runs(self) -> bool {
        self.alive && !self.stopped
    }
}

/// A connection, in the loop of the old process and that of the new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Conn {
    /// The next sequence number in the old process.
    next: u8,
    held: bool,
    /// The old process has forgotten it.
    forgotten: bool,
    /// The state that was sent: the next sequence number in the new process.
    sent: Option<u8>,
    /// Sequence numbers that were used, a bit for each.
    used: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    old: Process,
    new: Process,
    old_state: Old,
    new_state: New,
    old_do: OldDo,
    new_do: NewDo,
    /// The step has sent what comes first in it: Hello, or Started.
    new_began: bool,
    to_old: Stream,
    to_new: Stream,
    conns: [Conn; LOOPS],
    /// All loops of the old process have sent their states, and wait for the word.
    saved: bool,
    /// All loops of the new process have taken them.
    taken: bool,
    /// The loops of the old process know that Commit is about to be written.
    commits: bool,
    /// The whole of Commit was written.
    committed: bool,
    /// The new process has written a byte of Running, or gone on.
    running: bool,
    /// The new process goes on.
    owner: bool,
    /// Things that excuse a lost connection: somebody broke the protocol, or the coordinating thread ended after Commit.
    excused: bool,
    /// The new process was too late, or failed, after Commit was written.
    tired: bool,
    faults: u8,
}

impl World {
    pub(super) fn new() -> Self {
        let ((old_state, old_do), (new_state, new_do)) = (Old::begin(), New::begin());
        Self {
            old: RUNS,
            new: RUNS,
            old_state,
            new_state,
            old_do,
            new_do,
            new_began: false,
            to_old: Stream::default(),
            to_new: Stream::default(),
            conns: [Conn::default(); LOOPS],
            saved: false,
            taken: false,
            commits: false,
            committed: false,
            running: false,
            owner: false,
            excused: false,
            tired: false,
            faults: 0,
        }
    }

    /// The steps that can come next, with at most `faults` of those that are nobody's step.
    pub(super) fn events(&self, faults: u8, out: &mut Vec<Event>) {
        out.clear();
        self.steps(out);
        for conn in 0..LOOPS {
            out.extend(
                [Who::Old, Who::New]
                    .into_iter()
                    .filter(|who| self.may_seal(*who, conn))
                    .map(|who| Event::Seal(who, conn)),
            );
        }
        if self.faults >= faults {
            out.extend([Who::Old, Who::New].into_iter().filter(|who| self.of(*who).stopped).map(Event::Continue));
            return;
        }
        for who in [Who::Old, Who::New] {
            let Process { alive, stopped, over } = self.of(who);
            if !alive {
                continue;
            }
            out.extend([Event::Kill(who), if stopped { Event::Continue(who) } else { Event::Stop(who) }]);
            if !stopped && !over {
                out.push(Event::Panic(who));
            }
            // From the other side: all but the frames that are that side's word.
            let stream = self.stream(who);
            if !stream.ended && !stream.is_cut() && stream.items.len() < MOST_FRAMES {
                let kinds = match who {
                    Who::Old => [Kind::Hello, Kind::Ready, Kind::Resumed],
                    Who::New => [Kind::Offered, Kind::Loops, Kind::Ready],
                };
                out.extend(kinds.map(|kind| Event::Strange(who, kind)));
                out.push(Event::Garbage(who));
            }
        }
    }

    /// Steps of the two processes.
    pub(super) fn steps(&self, out: &mut Vec<Event>) {
        if self.old.runs() && !self.old.over {
            if self.old_do == OldDo::Move && !self.saved {
                let open = self.conns.iter().enumerate().filter(|(_, conn)| conn.sent.is_none());
                out.extend(open.map(|(number, _)| Event::Hold(number)));
                let held = self.conns.iter().enumerate().filter(|(_, conn)| conn.held);
                out.extend(held.map(|(number, _)| Event::LetGo(number)));
            }
            out.extend(self.results_of_old().iter().map(|comes| Event::Step(Who::Old, *comes)));
        }
        if self.new.runs() && !self.new.over {
            out.extend(self.results_of_new().iter().map(|comes| Event::Step(Who::New, *comes)));
        }
    }

    fn results_of_old(&self) -> &'static [Comes] {
        use Comes::{InPart, Late, Nowhere, Whole};
        match self.old_do {
            OldDo::Wait if self.to_old.has_news() => &[Whole, Nowhere],
            OldDo::Wait => &[Late],
            OldDo::Move if self.saved && self.taken => &[Whole],
            OldDo::Move => &[Nowhere],
            OldDo::Offer | OldDo::Commit | OldDo::Abort if !self.to_new.unread => &[Whole, InPart, Nowhere],
            OldDo::Offer | OldDo::Commit | OldDo::Abort => &[Nowhere],
            OldDo::Resume | OldDo::Forget | OldDo::Leave => &[Whole],
        }
    }

    fn results_of_new(&self) -> &'static [Comes] {
        use Comes::{InPart, Late, Nowhere, Whole};
        let closed = self.to_old.unread;
        match self.new_do {
            NewDo::Greet | NewDo::Take if !self.new_began && !closed => &[Whole, InPart, Nowhere],
            NewDo::Greet | NewDo::Take if !self.new_began => &[Nowhere],
            NewDo::Greet | NewDo::Wait if self.to_new.has_news() => &[Whole],
            NewDo::Greet | NewDo::Wait => &[Late],
            NewDo::Take if self.saved => &[Whole, Nowhere],
            NewDo::Take => &[Nowhere],
            NewDo::Prepare => &[Whole, Nowhere],
            NewDo::SayReady | NewDo::SayRunning | NewDo::Withdraw | NewDo::GoOn if !closed => &[Whole, InPart, Nowhere],
            NewDo::SayReady | NewDo::SayRunning | NewDo::Withdraw | NewDo::GoOn => &[Nowhere],
        }
    }

    fn may_seal(&self, who: Who, conn: usize) -> bool {
        let conn = &self.conns[conn];
        match who {
            Who::Old => self.old.runs() && !conn.held && !conn.forgotten && conn.next < 2 * MOST_SEALED,
            Who::New => self.new.runs() && self.owner && conn.sent.is_some_and(|next| next < 2 * MOST_SEALED + 1),
        }
    }

    const fn of(&self, who: Who) -> Process {
        match who {
            Who::Old => self.old,
            Who::New => self.new,
        }
    }

    const fn process(&mut self, who: Who) -> &mut Process {
        match who {
            Who::Old => &mut self.old,
            Who::New => &mut self.new,
        }
    }

    /// The stream that this process reads.
    const fn stream(&self, reader: Who) -> &Stream {
        match reader {
            Who::Old => &self.to_old,
            Who::New => &self.to_new,
        }
    }

    const fn stream_mut(&mut self, reader: Who) -> &mut Stream {
        match reader {
            Who::Old => &mut self.to_old,
            Who::New => &mut self.to_new,
        }
    }

    /// Lets this happen. Returns the fault that it shows.
    pub(super) fn apply<R: Rule>(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Step(Who::Old, comes) => self.step_old::<R>(comes),
            Event::Step(Who::New, comes) => self.step_new::<R>(comes),
            Event::Hold(number) => {
                let conn = &mut self.conns[number];
                (conn.held, conn.sent) = (true, Some(conn.next));
                self.saved = self.conns.iter().all(|conn| conn.held);
            }
            Event::LetGo(number) => self.conns[number].held = false,
            Event::Seal(who, number) => return self.seal(who, number),
            Event::Kill(who) => {
                self.faults += 1;
                *self.process(who) = Process { alive: false, stopped: false, over: true };
                self.close(who);
            }
            Event::Stop(who) => {
                self.faults += 1;
                self.process(who).stopped = true;
            }
            Event::Continue(who) => self.process(who).stopped = false,
            Event::Panic(who) => {
                self.faults += 1;
                self.panic(who);
            }
            Event::Strange(who, kind) => {
                (self.faults, self.excused) = (self.faults + 1, true);
                self.stream_mut(who).put(Item::Frame(kind));
            }
            Event::Garbage(who) => {
                (self.faults, self.excused) = (self.faults + 1, true);
                self.stream_mut(who).put(Item::Garbage);
            }
        }
        Ok(())
    }

    fn seal(&mut self, who: Who, number: usize) -> Result<(), String> {
        let conn = &mut self.conns[number];
        let next = match who {
            Who::Old => &mut conn.next,
            // It may seal only if there is a state.
            Who::New => conn.sent.get_or_insert(0),
        };
        let bit = 1 << *next;
        let sequence = *next;
        *next += 1;
        if conn.used & bit != 0 {
            return Err(format!("connection {number}: sequence number {sequence} is used twice"));
        }
        conn.used |= bit;
        Ok(())
    }

    /// The process's end of the socket closes.
    fn close(&mut self, who: Who) {
        let (to, from) = match who {
            Who::Old => (&mut self.to_new, &mut self.to_old),
            Who::New => (&mut self.to_old, &mut self.to_new),
        };
        to.ended = true;
        from.unread = true;
    }

    fn panic(&mut self, who: Who) {
        self.process(who).over = true;
        match who {
            Who::Old if self.commits => {
                self.conns.iter_mut().for_each(|conn| conn.forgotten = true);
                // Nobody waits for the new process any more.
                self.excused = true;
            }
            Who::Old => self.conns.iter_mut().for_each(|conn| conn.held = false),
            // An owner has let its loops go.
            Who::New if self.new_state == New::Owner => self.owner = true,
            Who::New => self.tired = true,
        }
        self.close(who);
    }

    fn step_old<R: Rule>(&mut self, comes: Comes) {
        let whole = comes == Comes::Whole;
        let done = if whole { Input::Done } else { Input::Failed };
        let input = match self.old_do {
            OldDo::Wait if comes == Comes::Late => Input::Late,
            OldDo::Wait => match self.to_old.take() {
                // The content of a frame may be wrong, or a drain may have begun.
                Input::Frame(Kind::Hello | Kind::Started | Kind::Ready) if !whole => Input::Failed,
                input => input,
            },
            OldDo::Offer => self.write(Who::New, Kind::Offered, comes, done),
            OldDo::Move => done,
            OldDo::Commit => {
                (self.commits, self.committed) = (true, whole);
                self.write(Who::New, Kind::Commit, comes, done)
            }
            OldDo::Abort => {
                self.conns.iter_mut().for_each(|conn| conn.held = false);
                self.write(Who::New, Kind::Abort, comes, Input::Done)
            }
            OldDo::Resume => {
                self.conns.iter_mut().for_each(|conn| conn.held = false);
                Input::Done
            }
            OldDo::Forget | OldDo::Leave => {
                self.conns.iter_mut().for_each(|conn| conn.forgotten = true);
                Input::Done
            }
        };
        if self.old_state.has_ended() {
            self.old.over = true;
            return self.close(Who::Old);
        }
        (self.old_state, self.old_do) = R::old_side(self.old_state, input);
    }

    fn step_new<R: Rule>(&mut self, comes: Comes) {
        let whole = comes == Comes::Whole;
        let done = if whole { Input::Done } else { Input::Failed };
        self.tired |=
            matches!(comes, Comes::Late | Comes::Nowhere) && !matches!(self.new_do, NewDo::GoOn | NewDo::Withdraw);
        let began = std::mem::take(&mut self.new_began);
        let input = match self.new_do {
            NewDo::Greet | NewDo::Take if !began => {
                let kind = if self.new_do == NewDo::Greet { Kind::Hello } else { Kind::Started };
                if self.write(Who::Old, kind, comes, done) == Input::Done {
                    self.new_began = true;
                    return;
                }
                Input::Failed
            }
            NewDo::Greet if comes == Comes::Late => Input::Failed,
            NewDo::Greet => match self.to_new.take() {
                Input::Frame(Kind::Offered) => Input::Done,
                _ => Input::Failed,
            },
            NewDo::Take => {
                self.taken |= whole;
                done
            }
            NewDo::Prepare => done,
            NewDo::SayReady => self.write(Who::Old, Kind::Ready, comes, done),
            NewDo::Wait if comes == Comes::Late => Input::Late,
            NewDo::Wait => self.to_new.take(),
            NewDo::SayRunning => {
                let closed = self.to_old.unread;
                self.write(Who::Old, Kind::Running, comes, done);
                self.running |= comes != Comes::Nowhere;
                Input::Wrote(match comes {
                    Comes::Whole | Comes::InPart => Wrote::Some,
                    _ if closed => Wrote::Closed,
                    _ => Wrote::Nothing,
                })
            }
            NewDo::GoOn => {
                (self.owner, self.running, self.new.over) = (true, true, true);
                self.write(Who::Old, Kind::Resumed, comes, done);
                return self.close(Who::New);
            }
            NewDo::Withdraw => {
                self.new.over = true;
                self.write(Who::Old, Kind::Abort, comes, done);
                return self.close(Who::New);
            }
        };
        (self.new_state, self.new_do) = R::new_side(self.new_state, input, !self.old.alive);
    }

    fn write(&mut self, reader: Who, kind: Kind, comes: Comes, done: Input) -> Input {
        match comes {
            Comes::Whole => self.stream_mut(reader).put(Item::Frame(kind)),
            Comes::InPart => self.stream_mut(reader).put(Item::Cut(kind)),
            Comes::Nowhere | Comes::Late => {}
        }
        done
    }

    /// Lets all go on that live, without further faults, and checks who has the connections in the end.
    pub(super) fn settle<R: Rule>(mut self) -> Result<(), String> {
        (self.old.stopped, self.new.stopped) = (false, false);
        let mut steps = Vec::new();
        for round in 0..200 {
            steps.clear();
            self.steps(&mut steps);
            // Steps succeed where they can, and a wait is late if nothing else can happen.
            let next = steps.iter().find(|event| matches!(event, Event::Hold(_) | Event::Step(_, Comes::Whole)));
            // Both have their turns.
            let next = next.or_else(|| steps.get(round % steps.len().max(1)));
            let Some(next) = next else { break };
            self.apply::<R>(*next)?;
        }
        self.judge()
    }

    fn both_seal(mut self) -> Result<(), String> {
        while self.conns[0].next <= self.conns[0].sent.unwrap_or_default() {
            self.seal(Who::Old, 0)?;
        }
        self.seal(Who::New, 0)?;
        Err("both go on".to_owned())
    }

    fn judge(&self) -> Result<(), String> {
        let old = self.old.alive && self.conns.iter().all(|conn| !conn.held && !conn.forgotten);
        let new = self.new.alive && self.owner;
        let died_in_time = self.old.alive && !self.running;
        let took_over = self.new.alive && self.committed && !self.tired;
        match (old, new) {
            // Their next records show it.
            (true, true) => self.clone().both_seal(),
            (false, false) if self.excused => Ok(()),
            (false, false) if self.old.alive && self.new.alive => Err(format!("nobody goes on: {self:?}")),
            (false, false) if died_in_time => Err(format!("the old process has to go on: {self:?}")),
            (false, false) if took_over => Err(format!("the new process has to go on: {self:?}")),
            _ => Ok(()),
        }
    }
}

impl Stream {
    fn put(&mut self, item: Item) {
        // Nobody writes after a part of a frame, or to a closed end.
        if !self.unread && !self.is_cut() {
            self.items.push(item);
        }
    }

    fn is_cut(&self) -> bool {
        matches!(self.items.last(), Some(Item::Cut(_)))
    }

    fn has_news(&self) -> bool {
        match self.items.first() {
            Some(Item::Cut(_)) | None => self.ended,
            Some(_) => true,
        }
    }

    /// Takes what a reader hears. The end and garbage stay.
    fn take(&mut self) -> Input {
        match self.items.first() {
            Some(Item::Frame(kind)) => {
                let kind = *kind;
                self.items.remove(0);
                Input::Frame(kind)
            }
            Some(Item::Garbage) => Input::Garbage,
            Some(Item::Cut(kind)) if self.ended => Input::End { within: Some(*kind) },
            None if self.ended => Input::End { within: None },
            Some(Item::Cut(_)) | None => Input::Late,
        }
    }
}
