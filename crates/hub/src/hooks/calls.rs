//! The requests to an application: a queue of a bounded length, and threads that send one each.

use super::cache::{Cache, Key};
use super::counts::{Counters, HookCounts, add};
use super::sign::signature;
use super::verdict::Verdict;
use crate::credentials::now;
use crate::http_client::Unanswered;
use crate::rules::Hooks;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    pub(crate) done: Box<dyn FnOnce(Verdict) + Send>,
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
    /// Questions with the time until which they have to be answered.
    queue: VecDeque<(Question, Instant)>,
    bytes: usize,
    threads: usize,
    /// Threads that wait for work, and questions that are being asked.
    idle: usize,
    running: usize,
    /// The time of the last warning that the application does not answer.
    warned: Option<Instant>,
}

impl Calls {
    /// The verdict about a question that was asked before.
    pub(crate) fn known(&self, key: &Key) -> Option<Verdict> {
        let known = self.cache().get(key, Instant::now());
        if known.is_some() {
            add(&self.counters.cached);
        }
        known
    }

    /// Asks. `done` is called on another thread, or at once if there is no room.
    pub(crate) fn ask(self: &Arc<Self>, question: Question) {
        let mut state = self.lock();
        let (most, waiting) = (question.hooks.at_once, question.hooks.waiting);
        let idle = state.idle.saturating_sub(state.queue.len());
        let may_start = state.threads < most;
        let is_full = state.running + state.queue.len() >= most + waiting;
        if is_full || state.bytes > MOST_BYTES {
            drop(state);
            add(&self.counters.full);
            return (question.done)(FULL);
        }
        let until = Instant::now() + question.hooks.within;
        state.bytes += question.body.len();
        state.queue.push_back((question, until));
        if idle == 0 && may_start {
            let calls = self.clone();
            let thread = std::thread::Builder::new().name("taut-hooks".to_owned()).spawn(move || calls.run());
            match thread {
                Ok(_) => state.threads += 1,
                Err(error) => {
                    log::error!("cannot start a thread for the hooks: {error}");
                    if state.threads == 0
                        && let Some((question, _)) = state.queue.pop_back()
                    {
                        state.bytes -= question.body.len();
                        drop(state);
                        return (question.done)(FULL);
                    }
                }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Forgets what was decided about a user.
    pub(crate) fn forget(&self, user: &str) {
        self.cache().forget(user);
    }

    /// Forgets all that was decided.
    pub(crate) fn forget_all(&self) {
        self.cache().clear();
    }

    /// Figures so far.
    pub(crate) fn counts(&self) -> HookCounts {
        let waiting = self.lock().queue.len();
        self.counters.read(waiting)
    }

    /// Its memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let state = self.lock();
        let waiting = state.queue.capacity() * size_of::<(Question, Instant)>() + state.bytes;
        drop(state);
        waiting + self.cache().memory()
    }

    /// A thread: sends one request after the other.
    fn run(&self) {
        let mut state = self.lock();
        loop {
            if let Some((question, until)) = state.queue.pop_front() {
                state.bytes -= question.body.len();
                state.running += 1;
                drop(state);
                self.answer(question, until);
                state = self.lock();
                state.running -= 1;
                continue;
            }
            state.idle += 1;
            let (next, waited) = self
                .wake
                .wait_timeout_while(state, IDLE, |state| state.queue.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn answer(&self, question: Question, until: Instant) {
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
                    self.cache().put(key, verdict.clone(), answered.max_age, Instant::now());
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
        done(verdict);
    }

    /// Warns at most once in a while: questions come as often as clients like.
    fn warn(&self, error: &str) {
        let mut state = self.lock();
        let now = Instant::now();
        if state.warned.is_none_or(|last| now.saturating_duration_since(last) >= IDLE) {
            state.warned = Some(now);
            drop(state);
            log::warn!("the application of [hooks] does not answer, so its clients are refused: {error}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
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
