//! Expensive handshakes, on threads beside the loops.
//!
//! A signature with an RSA key takes longer than a hundred messages. A loop that makes many of them delays all its other
//! connections. So a shard gives the session and its ClientHello to a [`HandshakePool`] and goes on. The session comes back
//! with the server's flight. The queue between them is bounded in length and in time. A client that would wait too long is
//! refused at once, so that it can try another server.

mod hello;
mod job_queue;
mod pool;
mod records;
mod sys;

pub use pool::HandshakePool;
use pool::{Done, Handshakes};
pub use records::RecordPool;
pub(crate) use records::Seals;

use crate::accept::admission::Admission;
use crate::accept::pace::Pace;
use crate::link::phase::Phase;
use crate::link::state::{HandshakeCost, Link};
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use hello::{PLAIN_HANDSHAKE, is_whole};
use job_queue::Rejected;
use std::num::NonZeroU64;
use tautline_buf::Pool;
use tautline_conn::closed::Cause;
use tautline_conn::inbound::Step;
use tautline_conn::verdict::Stop;
use tautline_io::Waker;
use tautline_tls::record::{Front, front};
use tautline_tls::{Answer, Engine, Handshake, Session, Signing};

/// Milliseconds after an invalid ticket during which tickets do not keep a handshake in the loop. Anyone can forge a ticket.
const DISTRUST: Tick = 1_000;

impl<S, T> Link<S, T> {
    /// Updates the cost after the server's answer, if there is one.
    fn note_answer(&mut self, answer: Option<Answer>) {
        match answer {
            Some(Answer::Full | Answer::Resumed) => self.cost = HandshakeCost::Answered,
            // The second ClientHello is rated anew.
            Some(Answer::Retry) => self.cost = HandshakeCost::Plain,
            None => {}
        }
    }
}

/// A shard's part in the [pool](HandshakePool), if it has one.
pub(crate) struct Offloading<S> {
    handshakes: Option<Handshakes<S>>,
    /// The end of the time during which tickets do not keep handshakes in the loop.
    distrust_end: Tick,
}

impl<S: Session> Offloading<S> {
    pub(crate) const fn new() -> Self {
        Self { handshakes: None, distrust_end: 0 }
    }

    pub(crate) fn set_pool(&mut self, pool: HandshakePool<S>, waker: Waker) {
        self.handshakes = Some(Handshakes::new(pool, waker));
    }

    /// The sessions that come back.
    pub(crate) fn done(&self) -> Vec<Done<S>> {
        self.handshakes.as_ref().map(Handshakes::done).unwrap_or_default()
    }

    /// Takes a session out of the queue, if it waits there.
    pub(crate) fn withdraw(&self, number: NonZeroU64, pool: &mut Pool) {
        if let Some(handshakes) = &self.handshakes {
            handshakes.withdraw(number, pool);
        }
    }

    /// Decides where the next step of this handshake is done, and gives an expensive one to the pool. Such a step waits until
    /// its message is whole, so that a ClientHello in pieces is offloaded once.
    pub(crate) fn next_step<E: Engine<Session = S>, T>(
        &mut self,
        link: &mut Link<S, T>,
        wire: &[u8],
        engine: &E,
        admission: &mut Admission,
        shared: &mut Shared,
    ) -> Result<Step, Stop> {
        let all = Step::Here(wire.len());
        if self.handshakes.is_none() || link.info.dial.is_some() || link.cost == HandshakeCost::Answered {
            return Ok(all);
        }
        // Only one record: the next one may be the one that makes the server sign.
        let here = if let Front::Whole(len) = front(wire) { Step::Here(len) } else { all };
        if let HandshakeCost::Heavy(offered) = link.cost {
            // Other plain records, such as alerts, are cheap. Encrypted ones come after the answer.
            if wire.first() != Some(&PLAIN_HANDSHAKE) || wire.len() <= offered as usize {
                return Ok(here);
            }
        } else {
            let Some(Signing { time, may_resume, .. }) = engine.signing(wire) else { return Ok(here) };
            if time < shared.config.offload.min_signature {
                return Ok(here);
            }
            if may_resume && shared.now >= self.distrust_end {
                link.cost = HandshakeCost::Resumes;
                return Ok(here);
            }
            link.cost = HandshakeCost::Heavy(0);
        }
        if !is_whole(wire) {
            return Ok(Step::Waits);
        }
        Ok(if self.give(link, wire, engine, admission, shared)? { Step::Taken } else { all })
    }

    /// Does the next step in the loop. Returns the bytes used, and whether the handshake is complete.
    pub(crate) fn handshake_step<T>(
        &mut self,
        link: &mut Link<S, T>,
        wire: &mut [u8],
        pace: &mut Pace,
        shared: &mut Shared,
    ) -> Result<(usize, Handshake), Stop> {
        let out = link.wire.buf(&mut shared.pool);
        let start = out.len();
        let result = link.session.handshake(wire, out);
        if link.info.dial.is_none() && link.cost != HandshakeCost::Answered {
            let answer = Answer::read(&out.filled()[start..]);
            pace.answered(answer);
            // The client did not resume although it sent a ticket. A client with a forged ticket may never continue, so this
            // is noted at once: a burst of forged tickets costs the loop one signature.
            if link.cost == HandshakeCost::Resumes && (answer == Some(Answer::Full) || result.is_err()) {
                self.distrust_end = shared.now + DISTRUST;
            }
            link.note_answer(answer);
        }
        Ok(result?)
    }

    /// Gives a session and its input to the pool. False if the step must be done in the loop instead.
    fn give<E: Engine<Session = S>, T>(
        &mut self,
        link: &mut Link<S, T>,
        wire: &[u8],
        engine: &E,
        admission: &mut Admission,
        shared: &mut Shared,
    ) -> Result<bool, Stop> {
        let Some(handshakes) = &mut self.handshakes else { return Ok(false) };
        let placeholder = handshakes.placeholder().map_or_else(|| engine.accept(), Ok)?;
        let pool = &mut shared.pool;
        let (mut bytes, out) = (pool.take_for(wire.len()), pool.take_for(Pool::MIN_CAPACITY));
        bytes.put(wire);
        let session = std::mem::replace(&mut link.session, placeholder);
        match handshakes.begin(link.token, session, bytes, out) {
            Ok(number) => {
                link.phase = Phase::Offloaded(Some(number));
                admission.stop_waiting(link);
                Ok(true)
            }
            Err((session, bytes, out, why)) => {
                handshakes.keep(std::mem::replace(&mut link.session, session));
                pool.give(bytes);
                pool.give(out);
                if why == Rejected::Stalled {
                    return Ok(false);
                }
                // A refused client gets a reset.
                link.phase = Phase::Offloaded(None);
                Err(shared.overloaded())
            }
        }
    }

    /// Takes a session back from the pool, with the rest of the input, the output and the result. Returns whether the handshake is
    /// complete.
    pub(crate) fn take_back<T>(
        &mut self,
        link: &mut Link<S, T>,
        done: Done<S>,
        admission: &mut Admission,
        pace: &mut Pace,
        shared: &mut Shared,
    ) -> Result<bool, Stop> {
        let Done { session, mut wire, out, result, .. } = done;
        // A session that panicked is gone. The placeholder stays, and ends the connection.
        if let Some(session) = session {
            let placeholder = std::mem::replace(&mut link.session, session);
            if let Some(handshakes) = &mut self.handshakes {
                handshakes.keep(placeholder);
            }
        }
        if result.is_some() {
            link.phase = Phase::Tls;
            admission.wait_again(link, shared.now);
            pace.answered_elsewhere();
        }
        link.wire.buf(&mut shared.pool).put(out.filled());
        link.note_answer(Answer::read(out.filled()));
        let continued = match result {
            None => Err(shared.overloaded()),
            Some(Err(error)) => Err(error.into()),
            Some(Ok((used, step))) => {
                wire.take(used);
                if let HandshakeCost::Heavy(offered) = &mut link.cost {
                    *offered = u32::try_from(wire.len()).unwrap_or(u32::MAX);
                }
                if !wire.is_empty() {
                    wire.put(link.carry.filled());
                    std::mem::swap(&mut wire, &mut link.carry);
                    link.held = true;
                }
                Ok(step == Handshake::Complete)
            }
        };
        shared.pool.give(wire);
        shared.pool.give(out);
        continued
    }
}

impl Shared {
    /// Counts a handshake that is refused because the pool is overloaded.
    fn overloaded(&self) -> Stop {
        self.counters.handshakes_refused.add(1);
        Stop::Failed(Cause::Overloaded)
    }
}
