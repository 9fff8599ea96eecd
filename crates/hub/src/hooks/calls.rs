//! The requests to an application: a queue of a bounded length, and threads that send one each.

use super::cache::{Cache, Key};
use super::counts::{Counters, HookCounts, add};
use super::sign::signature;
use super::verdict::Verdict;
use crate::credentials::now;
use crate::http_client::Unanswered;
use crate::lock::lock;
use crate::rules::Hooks;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of the requests that wait.
const MOST_BYTES: usize = 16 << 20;
/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(10);
/// The time between attempts to connect. It doubles.
const PAUSE: Duration = Duration::from_millis(50);

const FULL: Verdict = Verdict::Unanswered("too many questions wait for the application; try again later");
const SILENT: Verdict = Verdict::Unanswered("the application did not answer");

/// A question to an application.
pub(crate) struct Question {
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) body: String,
    /// The kind, user and topic, if the answer may be kept.
    pub(crate) kept_as: Option<Key>,
    /// Called with the answer. `None` for an event that the application is only told: nobody waits for the answer.
    pub(crate) done: Option<Box<dyn FnOnce(Verdict) + Send>>,
}

/// A question that waits for a thread.
struct Waiting {
    question: Question,
    /// The time until which it has to be answered.
    until: Instant,
    /// The [era](Cache::era) of the kept answers in which it was asked.
    era: u64,
}

/// All requests of a hub.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    wake: Condvar,
    cache: Mutex<Cache>,
    counters: Counters,
}

#[derive(Default)]
struct State {
    /// Questions whose answers are waited for, and those that only tell something. Clients can cause any number of the second
    /// ones, by topics that they enter and leave, so these do not take the places of the first ones.
    asks: VecDeque<Waiting>,
    tells: VecDeque<Waiting>,
    bytes: usize,
    threads: usize,
    /// Threads that wait for work, questions that are being asked, and those among them that only tell something.
    idle: usize,
    running: usize,
    telling: usize,
    /// The time of the last warning that the application does not answer.
    warned: Option<Instant>,
}

impl Calls {
    /// The verdict about a question that was asked before.
    pub(crate) fn known(&self, key: &Key) -> Option<Verdict> {
        let known = lock(&self.cache).get(key, Instant::now());
        if known.is_some() {
            add(&self.counters.cached);
        }
        known
    }

    /// Asks. The answer is given on another thread, or at once if there is no room.
    pub(crate) fn ask(self: &Arc<Self>, question: Question) {
        let era = lock(&self.cache).era;
        let mut state = lock(&self.state);
        let (most, waiting) = (question.hooks.at_once, question.hooks.waiting);
        let idle = state.idle.saturating_sub(state.waiting());
        let may_start = state.threads < most;
        let is_full = match &question.done {
            Some(_) => state.running + state.asks.len() >= most + waiting,
            None => state.tells.len() >= waiting.max(most),
        };
        if is_full || state.bytes > MOST_BYTES {
            drop(state);
            add(&self.counters.full);
            return question.answer(FULL);
        }
        let until = Instant::now() + question.hooks.within;
        state.bytes += question.body.len();
        let queue = if question.done.is_some() { &mut state.asks } else { &mut state.tells };
        queue.push_back(Waiting { question, until, era });
        if idle == 0 && may_start {
            let calls = self.clone();
            let thread = std::thread::Builder::new().name("taut-hooks".to_owned()).spawn(move || calls.run());
            match thread {
                Ok(_) => state.threads += 1,
                Err(error) => {
                    log::error!("cannot start a thread for the hooks: {error}");
                    if state.threads == 0
                        && let Some(Waiting { question, .. }) = state.next()
                    {
                        state.running -= 1;
                        state.telling -= usize::from(question.done.is_none());
                        drop(state);
                        return question.answer(FULL);
                    }
                }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Forgets what was decided about a user.
    pub(crate) fn forget(&self, user: &str) {
        lock(&self.cache).forget(user);
    }

    /// Forgets all that was decided.
    pub(crate) fn forget_all(&self) {
        lock(&self.cache).clear();
    }

    /// Figures so far.
    pub(crate) fn counts(&self) -> HookCounts {
        let waiting = lock(&self.state).waiting();
        self.counters.read(waiting)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let state = lock(&self.state);
        let places = state.asks.capacity() + state.tells.capacity();
        let waiting = places * size_of::<Waiting>() + state.bytes;
        drop(state);
        waiting + lock(&self.cache).memory()
    }

    /// A thread: sends one request after the other.
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(waiting) = state.next() {
                drop(state);
                let tells = waiting.question.done.is_none();
                self.answer(waiting);
                state = lock(&self.state);
                state.running -= 1;
                state.telling -= usize::from(tells);
                continue;
            }
            state.idle += 1;
            let (next, waited) = self
                .wake
                .wait_timeout_while(state, IDLE, |state| !state.has_next())
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && !state.has_next() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn answer(&self, Waiting { question, until, era }: Waiting) {
        let Question { hooks, body, kept_as, done } = question;
        let begin = Instant::now();
        add(&self.counters.calls);
        let answered = post(&hooks, &body, until);
        self.counters.took(begin.elapsed());
        let verdict = match answered {
            Ok(answered) => {
                let verdict = Verdict::read(&answered.body, now());
                let is_kept = !answered.max_age.is_zero() && !matches!(verdict, Verdict::Unanswered(_));
                let replaces = matches!(&verdict, Verdict::Allowed(allowed) if allowed.data.is_some());
                if let Some(key) = kept_as.filter(|_| is_kept && !replaces) {
                    let mut cache = lock(&self.cache);
                    if cache.era == era {
                        cache.put(key, verdict.clone(), answered.max_age, Instant::now());
                    }
                }
                verdict
            }
            Err(error) => {
                self.warn(&error);
                SILENT
            }
        };
        match &verdict {
            Verdict::Unanswered(_) => add(&self.counters.failures),
            Verdict::Refused(..) => add(&self.counters.refused),
            Verdict::Allowed(_) => {}
        }
        if let Some(done) = done {
            done(verdict);
        }
    }

    /// Warns at most once in a while: questions come as often as clients like.
    fn warn(&self, error: &str) {
        let mut state = lock(&self.state);
        let now = Instant::now();
        if state.warned.is_none_or(|last| now.saturating_duration_since(last) >= IDLE) {
            state.warned = Some(now);
            drop(state);
            log::warn!("the application of [hooks] does not answer, so its clients are refused: {error}");
        }
    }
}

impl Question {
    fn answer(self, verdict: Verdict) {
        if let Some(done) = self.done {
            done(verdict);
        }
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.asks.len() + self.tells.len()
    }

    /// Whether one that tells something may be sent: half of all requests at a time are left to questions.
    fn may_tell(&self) -> bool {
        let most = |waiting: &Waiting| waiting.question.hooks.at_once.div_ceil(2);
        self.tells.front().is_some_and(|first| self.telling < most(first))
    }

    fn has_next(&self) -> bool {
        !self.asks.is_empty() || self.may_tell()
    }

    /// The next one to be sent, which is counted as running.
    fn next(&mut self) -> Option<Waiting> {
        let next = match self.asks.pop_front() {
            Some(ask) => ask,
            None if self.may_tell() => self.tells.pop_front()?,
            None => return None,
        };
        self.bytes -= next.question.body.len();
        self.running += 1;
        self.telling += usize::from(next.question.done.is_none());
        Some(next)
    }
}

/// Sends a request, again and again as long as no byte of it has left.
fn post(hooks: &Hooks, body: &str, until: Instant) -> Result<crate::http_client::Answered, String> {
    let mut pause = PAUSE;
    let mut last = "it waited too long for a thread: see `at-once`".to_owned();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(last);
        }
        let signature = signature(&hooks.secret, body, now());
        last = match hooks.client.post(&signature, body, left) {
            Ok(answered) => return Ok(answered),
            Err(Unanswered::Failed(what)) => return Err(what),
            Err(Unanswered::NotSent(what)) => what,
        };
        std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
        pause *= 2;
    }
}
