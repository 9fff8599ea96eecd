//! Expensive handshakes, on threads beside the loops.
//!
//! A signature with an RSA key takes longer than a hundred messages, and a loop that makes them one after the other keeps
//! everyone else waiting. A shard hands such a session, with the ClientHello that it got, to a [`HandshakePool`] and goes
//! on; the session comes back with the server's flight. The queue between them is bounded in length and in time: who would
//! wait too long is refused at once, while there is still time to try another server.

mod hello;
mod pool;
mod records;
mod sys;
mod waiting;

pub use pool::HandshakePool;
pub(crate) use pool::{Done, Handshakes};
pub use records::RecordPool;
pub(crate) use records::Seals;

use crate::closed::Cause;
use crate::handler::Handler;
use crate::link::{Hello, Link, Phase, Stop};
use crate::probe::Probe;
use crate::shard::Core;
use crate::timer::Tick;
use hello::is_whole;
use tautline_io::Driver;
use tautline_tls::record::{Front, front};
use tautline_tls::{Answer, Engine, Handshake, Session, Signing};
use waiting::NotNow;

/// What begins a record of handshake messages that are not encrypted (RFC 8446, section 5.1).
const PLAIN_HANDSHAKE: u8 = 22;

/// For so long after a ticket was no good, tickets do not keep a handshake in the loop: anyone can make one up.
const DISTRUST: Tick = 1_000;

/// Where a step of a handshake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// In the loop, with so many bytes: it is cheap, or nothing can be done yet.
    Here(usize),
    /// In the pool.
    Away,
    /// Nowhere, until more has arrived.
    Waits,
}

impl Step {
    /// Expensive, with the message that `wire` begins with: whoever sends it in pieces costs one visit to the pool.
    fn away(wire: &[u8]) -> Self {
        if is_whole(wire) { Self::Away } else { Self::Waits }
    }
}

impl<S, T> Link<S, T> {
    /// Takes note of what was answered to the client, if anything.
    fn note(&mut self, answer: Option<Answer>) {
        match answer {
            Some(Answer::Full | Answer::Resumed) => self.hello = Hello::Answered,
            // The second ClientHello is judged anew.
            Some(Answer::Retry) => self.hello = Hello::Plain,
            None => {}
        }
    }
}

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Where the next step of this handshake is done.
    pub(crate) fn next_step(&self, link: &mut Link<E::Session, H::State>, wire: &[u8]) -> Step {
        if self.handshakes.is_none() || link.info.dial.is_some() || link.hello == Hello::Answered {
            return Step::Here(wire.len());
        }
        // One record and no more: the next may be the one that makes the server sign.
        let here = Step::Here(if let Front::Whole(len) = front(wire) { len } else { wire.len() });
        if let Hello::Heavy(offered) = link.hello {
            // Alerts and the like; all that is encrypted comes after the answer.
            let is_hello = wire.first() == Some(&PLAIN_HANDSHAKE);
            return if is_hello && wire.len() > offered as usize { Step::away(wire) } else { here };
        }
        let Some(Signing { time, may_resume }) = self.engine.signing(wire) else { return here };
        if time < self.shared.config.offload.min_signature {
            return here;
        }
        if may_resume && self.shared.now >= self.distrust_end {
            link.hello = Hello::Resumes;
            return here;
        }
        link.hello = Hello::Heavy(0);
        Step::away(wire)
    }

    /// Does the next step in the loop.
    pub(crate) fn shake(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
    ) -> Result<(usize, Handshake), Stop> {
        let out = link.out.wire(&mut self.shared.pool);
        let start = out.len();
        let result = link.session.handshake(wire, out);
        if self.handshakes.is_some() && link.info.dial.is_none() && link.hello != Hello::Answered {
            let answer = Answer::read(&out.filled()[start..]);
            // Whoever made a ticket up need not go on, so this is the time to notice: it costs one signature, not one for
            // each of those who come together.
            if link.hello == Hello::Resumes && (answer == Some(Answer::Full) || result.is_err()) {
                self.distrust_end = self.shared.now + DISTRUST;
            }
            link.note(answer);
        }
        Ok(result?)
    }

    /// Sends a session away, with the bytes that it goes on with. Says whether that was possible; otherwise it goes on here.
    pub(crate) fn hand_over(&mut self, link: &mut Link<E::Session, H::State>, wire: &[u8]) -> Result<bool, Stop> {
        let Some(handshakes) = &mut self.handshakes else { return Ok(false) };
        let place = handshakes.place().map_or_else(|| self.engine.accept(), Ok)?;
        let pool = &mut self.shared.pool;
        let (mut bytes, out) = (pool.take(), pool.take());
        bytes.put(wire);
        let session = std::mem::replace(&mut link.session, place);
        match handshakes.begin(link.token, session, bytes, out) {
            Ok(number) => {
                link.phase = Phase::Away(Some(number));
                Ok(true)
            }
            Err((session, bytes, out, why)) => {
                handshakes.keep(std::mem::replace(&mut link.session, session));
                pool.give(bytes);
                pool.give(out);
                if why == NotNow::Stalled {
                    return Ok(false);
                }
                // Whoever is not let in learns of it by a reset.
                link.phase = Phase::Away(None);
                Err(self.overloaded())
            }
        }
    }

    /// A session that is away is not wanted back: nobody has to sign for one that has hung up.
    pub(crate) fn give_up(&mut self, number: u64) {
        if let Some(handshakes) = &self.handshakes
            && let Some((wire, out)) = handshakes.forget(number)
        {
            self.shared.pool.give(wire);
            self.shared.pool.give(out);
        }
    }

    /// Takes a session back, and goes on where it stands now.
    pub(crate) fn come_back<D: Driver>(&mut self, driver: &mut D, done: Done<E::Session>) {
        let Done { token, session, mut wire, result, out, stalled } = done;
        let counters = &mut self.shared.counters;
        counters.handshakes_offloaded += u64::from(result.is_some());
        counters.handshakes_stalled += u64::from(result.is_some() && stalled);
        let Some(mut link) = self.take(token) else {
            self.shared.pool.give(wire);
            self.shared.pool.give(out);
            return;
        };
        // What panicked is not used any more; its place is as good to end the connection with.
        if let Some(session) = session {
            let place = std::mem::replace(&mut link.session, session);
            if let Some(handshakes) = &mut self.handshakes {
                handshakes.keep(place);
            }
        }
        if result.is_some() {
            link.phase = Phase::Tls;
        }
        link.out.wire(&mut self.shared.pool).put(out.filled());
        link.note(Answer::read(out.filled()));
        let went_on = match result {
            None => Err(self.overloaded()),
            Some(Err(error)) => Err(error.into()),
            Some(Ok((used, step))) => {
                wire.take(used);
                if let Hello::Heavy(offered) = &mut link.hello {
                    *offered = u32::try_from(wire.len()).unwrap_or(u32::MAX);
                }
                if !wire.is_empty() {
                    wire.put(link.carry.filled());
                    std::mem::swap(&mut wire, &mut link.carry);
                    link.held = true;
                }
                if step == Handshake::Complete { self.secured(&mut link) } else { Ok(()) }
            }
        };
        self.shared.pool.give(wire);
        self.shared.pool.give(out);
        if let Err(stop) = went_on {
            self.stop(&mut link, stop);
        }
        self.settle(driver, link);
    }

    fn overloaded(&mut self) -> Stop {
        self.shared.counters.handshakes_refused += 1;
        Stop::Failed(Cause::Overloaded)
    }
}
