//! Outgoing connections: resolving names, racing addresses, and reconnecting after a loss.

mod resolver;

use crate::dial::address_memory::AddressMemory;
use crate::dial::resolver::MOST_ADDRESSES;
use crate::dial::target::{ATTEMPT_DELAY, Dial, Race, State, Target};
use crate::dial::times::{DialStep, DialTimes, Steps};
use crate::handler::Handler;
use crate::ids::DialId;
use crate::link::state::Link;
use crate::turn::panics::Application;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use resolver::{Name, SystemResolver};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use tautline_conn::closed::{Cause, ConnectError, Deadline};
use tautline_conn::config::Deadlines;
use tautline_conn::due::Due;
use tautline_conn::tick::millis;
use tautline_io::{Address, Driver, End, Token};
use tautline_tls::Engine;

/// The outgoing connections of a shard.
#[derive(Default)]
pub(crate) struct Dialer {
    pub(crate) dials: HashMap<DialId, Dial>,
    /// The addresses at which connections failed recently.
    pub(super) addresses: AddressMemory,
    pub(super) timers: BinaryHeap<Reverse<(Tick, DialId)>>,
    /// The sockets that are still connecting.
    attempts: HashMap<Token, DialId>,
    resolver: SystemResolver,
    /// The lookups that resolvers of the application hold.
    lookups: Arc<AtomicUsize>,
}

/// The consequence of a timer.
pub(crate) enum DialDue {
    Attempt(DialId),
    Failed(DialId, ConnectError),
}

impl Dialer {
    /// The target of an outgoing connection.
    pub(crate) fn target(&self, dial: Option<DialId>) -> Option<&Arc<Target>> {
        self.dials.get(&dial?).map(|dial| &dial.target)
    }

    /// The number of sockets that are still connecting.
    pub(crate) fn connecting(&self) -> usize {
        self.attempts.len()
    }

    /// Whether a socket is still connecting.
    pub(crate) fn is_connecting(&self, token: Token) -> bool {
        self.attempts.contains_key(&token)
    }

    /// When the first timer is due; [`Tick::MAX`] without one.
    #[inline]
    pub(crate) fn due(&self) -> Tick {
        self.timers.peek().map_or(Tick::MAX, |Reverse((at, _))| *at)
    }

    /// A link's next deadline, and the action that is then due.
    pub(crate) fn next_deadline<S, T>(&self, link: &Link<S, T>, deadlines: &Deadlines) -> (Tick, Due) {
        match self.target(link.info.dial).and_then(|target| target.silence) {
            None => link.next_due(deadlines),
            silence => {
                let mut own = deadlines.clone();
                own.silence = silence;
                link.next_due(&own)
            }
        }
    }

    /// A dial begins. Its first attempt follows.
    pub(crate) fn insert(&mut self, id: DialId, target: Arc<Target>) {
        let (state, steps) = (State::Resolving(Tick::MAX), Steps::default());
        self.dials.insert(id, Dial { target, state, failures: 0, opened: 0, ends: false, address: None, steps });
    }

    /// A step of an attempt has ended now.
    pub(crate) fn end_step(&mut self, id: DialId, step: DialStep, shared: &Shared) {
        if let Some(dial) = self.dials.get_mut(&id) {
            dial.steps.end(step, shared.clock.elapsed());
        }
    }

    /// A connection is open. Returns the durations of its steps.
    pub(crate) fn opened(&mut self, id: DialId, shared: &Shared) -> Option<DialTimes> {
        let dial = self.dials.get_mut(&id)?;
        dial.opened = shared.now;
        if let Some(address) = &dial.address {
            self.addresses.opened(address);
        }
        dial.steps.end(DialStep::Upgraded, shared.clock.elapsed());
        Some(dial.steps.times())
    }

    /// The application gives a dial up. Returns its connection, if it has one; `None` if there is no such dial.
    pub(crate) fn give_up(&mut self, driver: &mut dyn Driver, id: DialId) -> Option<Option<Token>> {
        let dial = self.dials.get_mut(&id)?;
        dial.ends = true;
        let attempts = match &mut dial.state {
            State::Linked(token) => return Some(Some(*token)),
            State::Racing(race) => race.end_attempts(),
            State::Resolving(_) | State::Waiting(_) | State::Failed(_) => Vec::new(),
        };
        self.close_attempts(driver, attempts);
        Some(None)
    }

    /// Begins an attempt to connect, with the resolver if the host is a name.
    pub(crate) fn attempt<E: Engine, H: Handler>(
        &mut self,
        driver: &mut dyn Driver,
        id: DialId,
        engine: &E,
        application: &mut Application<H>,
        shared: &mut Shared,
    ) {
        if shared.drain_end.is_some() {
            return self.resolved(driver, id, Err(ConnectError::Ended(Cause::Stopped)), shared);
        }
        self.report_redial(id, application, shared);
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let longest = dial.target.connect.unwrap_or(shared.config.deadlines.connect);
        let end = shared.now + millis(longest);
        dial.state = State::Resolving(end);
        dial.steps = Steps::begin(shared.clock.elapsed());
        let target = dial.target.clone();
        let has_sessions = if target.is_secure() { !engine.is_plain() } else { engine.connect_plain().is_some() };
        if !has_sessions {
            let scheme = if target.is_secure() { "wss" } else { "ws" };
            let error = format!("the TLS engine {:?} cannot connect to a {scheme}:// URI", engine.name());
            return self.resolved(driver, id, Err(ConnectError::Target(error)), shared);
        }
        // Before the network could fail, and have it tried again and again. A session may use up a ticket, and takes time.
        // So it is made for the check only if the first attempt has failed.
        let is_second = dial.failures == 1 && dial.opened == 0;
        let name = || target.session(engine).map_err(|error| ConnectError::Ended(Cause::Tls(error)));
        if let Err(error) = target.check().and_then(|()| if is_second { name().map(drop) } else { Ok(()) }) {
            return self.resolved(driver, id, Err(error), shared);
        }
        if let Some(address) = &target.address {
            return self.race(driver, id, vec![address.clone()], shared);
        }
        if !target.addresses.is_empty() {
            let addresses = target.addresses.iter().take(MOST_ADDRESSES).copied().collect();
            return self.resolved(driver, id, Ok(addresses), shared);
        }
        if let Some(address) = target.literal() {
            return self.race(driver, id, vec![address.into()], shared);
        }
        let (host, port) = target.first_hop();
        // The timer is needed since the resolver's threads may be busy with other names past the deadline.
        self.timers.push(Reverse((end, id)));
        let until = Instant::now().checked_add(longest);
        if let Some(own) = &target.resolver {
            let Some(lookup) = resolver::lookup(id, (host, port), until, shared.remote.clone(), &self.lookups) else {
                let error = format!("cannot resolve {host}: the resolver holds too many lookups without an answer");
                return self.resolved(driver, id, Err(ConnectError::Resolve(error)), shared);
            };
            // A lookup that a panic drops fails the attempt.
            application.guard(shared, format_args!("dial {id}"), |_, _| own.resolve(lookup));
            return;
        }
        let name = Name { dial: id, host: host.to_owned(), port, until, shard: shared.remote.clone() };
        if let Err(error) = self.resolver.resolve(name) {
            let error = ConnectError::Resolve(format!("no thread to resolve on: {error}"));
            self.resolved(driver, id, Err(error), shared);
        }
    }

    /// The resolver has a result for a dial, which may be of an earlier attempt.
    pub(crate) fn resolved(
        &mut self,
        driver: &mut dyn Driver,
        id: DialId,
        result: Result<Vec<SocketAddr>, ConnectError>,
        shared: &Shared,
    ) {
        let now = shared.clock.elapsed();
        let Some(dial) = self.dials.get_mut(&id).filter(|dial| matches!(dial.state, State::Resolving(_))) else {
            return;
        };
        match result {
            Ok(addresses) => {
                dial.steps.end(DialStep::Resolved, now);
                let order = self.addresses.order(addresses, Duration::from_millis(shared.now));
                self.race(driver, id, order.into_iter().map(Address::Tcp).collect(), shared);
            }
            // Reported in a later call, since the application does not know the dial's id yet.
            Err(error) => {
                dial.state = State::Failed(error);
                self.timers.push(Reverse((shared.now, id)));
            }
        }
    }

    fn race(&mut self, driver: &mut dyn Driver, id: DialId, addresses: Vec<Address>, shared: &Shared) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let longest = dial.target.connect.unwrap_or(shared.config.deadlines.connect);
        dial.state = State::Racing(Race::new(addresses, shared.now, shared.now + millis(longest)));
        self.next_attempt(driver, id, shared);
    }

    /// Connects to the next address, or fails the dial if no address and no attempt is left.
    fn next_attempt(&mut self, driver: &mut dyn Driver, id: DialId, shared: &Shared) {
        let Some(Dial { state, target, .. }) = self.dials.get_mut(&id) else { return };
        let State::Racing(race) = state else { return };
        while let Some(address) = race.next_address() {
            let begun = match &target.source {
                Some(source) => driver.connect_from(&address, source),
                None => driver.connect(&address),
            };
            match begun {
                Ok(token) => {
                    race.attempts.push((token, address));
                    race.next_at = shared.now + ATTEMPT_DELAY;
                    self.attempts.insert(token, id);
                    self.timers.push(Reverse((race.due(), id)));
                    return;
                }
                Err(error) => {
                    let (tcp, error) = (tcp_of(&address), race.lose(address, error));
                    self.addresses.note(tcp, &error, shared.now);
                }
            }
        }
        let due = if race.is_lost() { shared.now } else { race.end };
        if race.is_lost() {
            *state = State::Failed(race.error());
        }
        self.timers.push(Reverse((due, id)));
    }

    /// A socket is connected. Returns its dial, if that still waits for one, and closes the other attempts.
    pub(crate) fn connected(
        &mut self,
        driver: &mut dyn Driver,
        token: Token,
        shared: &Shared,
    ) -> Option<(DialId, Arc<Target>)> {
        let id = self.attempts.remove(&token)?;
        let Some(Dial { state: State::Racing(race), target, .. }) = self.dials.get_mut(&id) else {
            driver.close(token, true);
            return None;
        };
        let won = race.attempts.iter().find(|(attempt, _)| *attempt == token);
        let address = won.and_then(|(_, address)| tcp_of(address));
        let losers: Vec<_> = race.end_attempts().into_iter().filter(|&other| other != token).collect();
        let target = target.clone();
        self.close_attempts(driver, losers);
        if let Some(dial) = self.dials.get_mut(&id) {
            dial.state = State::Linked(token);
            dial.address = address;
            dial.steps.end(DialStep::Connected, shared.clock.elapsed());
        }
        Some((id, target))
    }

    /// A socket did not connect.
    pub(crate) fn attempt_failed(&mut self, driver: &mut dyn Driver, token: Token, end: End, shared: &Shared) {
        let Some(id) = self.attempts.remove(&token) else { return };
        driver.close(token, false);
        let Some(Dial { state: State::Racing(race), .. }) = self.dials.get_mut(&id) else { return };
        let error = match end {
            End::Failed(error) => error,
            End::Finished | End::Faulty(_) => std::io::ErrorKind::ConnectionReset.into(),
        };
        if let Some(at) = race.attempts.iter().position(|(attempt, _)| *attempt == token) {
            let (_, address) = race.attempts.swap_remove(at);
            let (tcp, error) = (tcp_of(&address), race.lose(address, error));
            self.addresses.note(tcp, &error, shared.now);
        }
        self.next_attempt(driver, id, shared);
    }

    /// The next dial for which the caller has something to do. A timer may be stale; the state decides.
    pub(crate) fn next_due(&mut self, driver: &mut dyn Driver, shared: &Shared) -> Option<DialDue> {
        let now = shared.now;
        while self.due() <= now {
            let Reverse((_, id)) = self.timers.pop()?;
            let Some(dial) = self.dials.get_mut(&id) else { continue };
            match &mut dial.state {
                State::Waiting(at) if *at <= now => return Some(DialDue::Attempt(id)),
                State::Failed(_) => {
                    if let State::Failed(error) = std::mem::replace(&mut dial.state, State::Resolving(Tick::MAX)) {
                        return Some(DialDue::Failed(id, error));
                    }
                }
                State::Resolving(end) if *end <= now => {
                    let longest = dial.target.connect.unwrap_or(shared.config.deadlines.connect);
                    let host = dial.target.first_hop().0;
                    let error = format!("{host} was not resolved within {longest:?}: is its name server reachable?");
                    return Some(DialDue::Failed(id, ConnectError::Resolve(error)));
                }
                State::Racing(race) if race.end <= now => {
                    let error = ConnectError::Ended(Cause::Timeout(Deadline::Connect));
                    for (_, address) in &race.attempts {
                        self.addresses.note(tcp_of(address), &error, now);
                    }
                    let attempts = race.end_attempts();
                    self.close_attempts(driver, attempts);
                    return Some(DialDue::Failed(id, error));
                }
                State::Racing(race) if race.next_at <= now => self.next_attempt(driver, id, shared),
                _ => {}
            }
        }
        None
    }

    /// Ends every attempt, for a drain. Returns the dials without a connection, which fail. Connections are left to the drain.
    pub(crate) fn cancel(&mut self, driver: &mut dyn Driver) -> Vec<DialId> {
        let mut attempts: Vec<_> = self.attempts.keys().copied().collect();
        // In an order that does not depend on the map's.
        attempts.sort_unstable();
        for dial in self.dials.values_mut() {
            if let State::Racing(race) = &mut dial.state {
                race.attempts.clear();
            }
        }
        self.close_attempts(driver, attempts);
        let given_up = self.dials.iter().filter(|(_, dial)| !matches!(dial.state, State::Linked(_)));
        let mut given_up: Vec<_> = given_up.map(|(id, _)| *id).collect();
        given_up.sort_unstable();
        given_up
    }

    fn close_attempts(&mut self, driver: &mut dyn Driver, attempts: Vec<Token>) {
        for token in attempts {
            driver.close(token, true);
            self.attempts.remove(&token);
        }
    }
}

const fn tcp_of(address: &Address) -> Option<SocketAddr> {
    match address {
        Address::Tcp(address) => Some(*address),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
