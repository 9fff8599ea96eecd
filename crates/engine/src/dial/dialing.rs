//! Outgoing connections: resolving names, racing addresses, and reconnecting after a loss.

mod resolver;

pub(crate) use resolver::SystemResolver;

use crate::dial::resolver::MOST_ADDRESSES;
use crate::dial::target::{ATTEMPT_DELAY, Dial, Race, State, Target};
use crate::dial::times::{DialStep, Steps};
use crate::handler::Handler;
use crate::ids::DialId;
use crate::link::input::Inbound;
use crate::link::phase::Phase;
use crate::turn::reactor::Reactor;
use crate::turn::slot::Slot;
use crate::turn::timer::Tick;
use resolver::Name;
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_conn::closed::{Cause, ConnectError, Deadline};
use tautline_conn::inbound;
use tautline_conn::tick::millis;
use tautline_io::{Address, Driver, End, Token};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

impl<E: Engine, H: Handler> Reactor<E, H> {
    pub(crate) fn dial(&mut self, driver: &mut dyn Driver, target: Arc<Target>) -> DialId {
        let id = self.core.shared.remote.dials().begin();
        self.begin_dial(driver, id, target);
        id
    }

    pub(crate) fn begin_dial(&mut self, driver: &mut dyn Driver, id: DialId, target: Arc<Target>) {
        let steps = Steps::default();
        let state = State::Resolving(Tick::MAX);
        self.core.dials.insert(id, Dial { target, state, failures: 0, opened: 0, ends: false, address: None, steps });
        if self.core.drain_end.is_some() {
            return self.resolved(driver, id, Err(ConnectError::Ended(Cause::Stopped)));
        }
        self.attempt(driver, id);
    }

    /// Ends a dial for the application.
    pub(crate) fn disconnect(&mut self, driver: &mut dyn Driver, id: DialId, code: CloseCode, reason: &str) {
        let Some(dial) = self.core.dials.get_mut(&id) else { return };
        dial.ends = true;
        match &mut dial.state {
            State::Linked(token) => {
                let token = *token;
                self.visit(driver, token, |core, _, link| {
                    if link.phase.is_handshaking() {
                        core.dial_failed(link, Phase::GONE, ConnectError::Ended(Cause::Local));
                    } else if link.phase.is_raw() {
                        core.end(link, Phase::finishing(false), Cause::Local);
                    } else {
                        link.close(code, reason);
                    }
                });
            }
            State::Racing(race) => {
                let attempts = race.end_attempts();
                self.close_attempts(driver, attempts);
                self.core.fail_dial(id, ConnectError::Ended(Cause::Local));
            }
            State::Resolving(_) | State::Waiting(_) | State::Failed(_) => {
                self.core.fail_dial(id, ConnectError::Ended(Cause::Local));
            }
        }
    }

    /// Begins an attempt to connect, with the resolver if the host is a name.
    fn attempt(&mut self, driver: &mut dyn Driver, id: DialId) {
        self.core.report_redial(id);
        let usual = self.core.shared.config.deadlines.connect;
        let Some(dial) = self.core.dials.get_mut(&id) else { return };
        let longest = dial.target.connect.unwrap_or(usual);
        let end = self.core.shared.now + millis(longest);
        dial.state = State::Resolving(end);
        dial.steps = Steps::begin(self.core.clock.elapsed());
        let target = dial.target.clone();
        let has_sessions =
            if target.is_secure() { !self.core.engine.is_plain() } else { self.core.engine.connect_plain().is_some() };
        if !has_sessions {
            let scheme = if target.is_secure() { "wss" } else { "ws" };
            let error = format!("the TLS engine {:?} cannot connect to a {scheme}:// URI", self.core.engine.name());
            self.resolved(driver, id, Err(ConnectError::Target(error)));
            return;
        }
        // Before the network could fail, and have it tried again and again. A session may use up a ticket, and takes time.
        // So it is made for the check only if the first attempt has failed.
        let is_second = dial.failures == 1 && dial.opened == 0;
        let name = || self.core.session_to(&target).map_err(|error| ConnectError::Ended(Cause::Tls(error)));
        if let Err(error) = target.check().and_then(|()| if is_second { name().map(drop) } else { Ok(()) }) {
            return self.resolved(driver, id, Err(error));
        }
        if let Some(address) = &target.address {
            let address = address.clone();
            self.race(driver, id, vec![address]);
            return;
        }
        if !target.addresses.is_empty() {
            let addresses = target.addresses.iter().take(MOST_ADDRESSES).copied().collect();
            return self.resolved(driver, id, Ok(addresses));
        }
        if let Some(address) = target.literal() {
            self.race(driver, id, vec![address.into()]);
            return;
        }
        let (host, port) = target.first_hop();
        // The timer is needed since the resolver's threads may be busy with other names past the deadline.
        self.core.dial_timers.push(Reverse((end, id)));
        let until = Instant::now().checked_add(longest);
        if let Some(own) = &target.resolver {
            let Some(lookup) =
                resolver::lookup(id, (host, port), until, self.core.shared.remote.clone(), &self.lookups)
            else {
                let error = format!("cannot resolve {host}: the resolver holds too many lookups without an answer");
                return self.resolved(driver, id, Err(ConnectError::Resolve(error)));
            };
            // A lookup that a panic drops fails the attempt.
            self.core.guard(format_args!("dial {id}"), |_| own.resolve(lookup));
            return;
        }
        let name = Name { dial: id, host: host.to_owned(), port, until, shard: self.core.shared.remote.clone() };
        if let Err(error) = self.resolver.resolve(name) {
            self.resolved(driver, id, Err(ConnectError::Resolve(format!("no thread to resolve on: {error}"))));
        }
    }

    /// The resolver has a result for a dial, which may be of an earlier attempt.
    pub(crate) fn resolved(
        &mut self,
        driver: &mut dyn Driver,
        id: DialId,
        result: Result<Vec<SocketAddr>, ConnectError>,
    ) {
        let now = self.core.clock.elapsed();
        let Some(dial) = self.core.dials.get_mut(&id).filter(|dial| matches!(dial.state, State::Resolving(_))) else {
            return;
        };
        match result {
            Ok(addresses) => {
                dial.steps.end(DialStep::Resolved, now);
                let order = self.core.addresses.order(addresses, Duration::from_millis(self.core.shared.now));
                self.race(driver, id, order.into_iter().map(Address::Tcp).collect());
            }
            // Reported in a later call, since the application does not know the dial's id yet.
            Err(error) => {
                dial.state = State::Failed(error);
                self.core.dial_timers.push(Reverse((self.core.shared.now, id)));
            }
        }
    }

    fn race(&mut self, driver: &mut dyn Driver, id: DialId, addresses: Vec<Address>) {
        let (now, usual) = (self.core.shared.now, self.core.shared.config.deadlines.connect);
        let Some(dial) = self.core.dials.get_mut(&id) else { return };
        let longest = dial.target.connect.unwrap_or(usual);
        dial.state = State::Racing(Race::new(addresses, now, now + millis(longest)));
        self.next_attempt(driver, id);
    }

    /// Connects to the next address, or fails the dial if no address and no attempt is left.
    fn next_attempt(&mut self, driver: &mut dyn Driver, id: DialId) {
        loop {
            let Some(Dial { state: State::Racing(race), target, .. }) = self.core.dials.get_mut(&id) else { return };
            let Some(address) = race.next_address() else { break };
            let begun = match &target.source {
                Some(source) => driver.connect_from(&address, source),
                None => driver.connect(&address),
            };
            match begun {
                Ok(token) => {
                    race.attempts.push((token, address));
                    race.next_at = self.core.shared.now + ATTEMPT_DELAY;
                    let due = race.due();
                    self.put(token, Slot::Attempt(token, id));
                    self.core.dial_timers.push(Reverse((due, id)));
                    return;
                }
                Err(error) => {
                    let (tcp, error) = (tcp_of(&address), race.lose(address, error));
                    self.core.addresses.note(tcp, &error, self.core.shared.now);
                }
            }
        }
        let Some(dial) = self.core.dials.get_mut(&id) else { return };
        let State::Racing(race) = &mut dial.state else { return };
        if race.is_lost() {
            dial.state = State::Failed(race.error());
            self.core.dial_timers.push(Reverse((self.core.shared.now, id)));
        } else {
            let end = race.end;
            self.core.dial_timers.push(Reverse((end, id)));
        }
    }

    pub(crate) fn attempt_connected(&mut self, driver: &mut dyn Driver, token: Token) {
        let Some(Slot::Attempt(attempt, id)) = self.core.slots.get(token.index as usize) else { return };
        let (attempt, id) = (*attempt, *id);
        if attempt != token {
            return;
        }
        self.put(token, Slot::Free);
        let Some(Dial { state: State::Racing(race), target, .. }) = self.core.dials.get_mut(&id) else {
            driver.close(token, true);
            return;
        };
        let won = race.attempts.iter().find(|(attempt, _)| *attempt == token);
        let address = won.and_then(|(_, address)| tcp_of(address));
        let losers: Vec<_> = race.end_attempts().into_iter().filter(|&other| other != token).collect();
        let target = target.clone();
        self.close_attempts(driver, losers);
        if let Some(dial) = self.core.dials.get_mut(&id) {
            dial.state = State::Linked(token);
            dial.address = address;
            dial.steps.end(DialStep::Connected, self.core.clock.elapsed());
        }
        self.begin(driver, token, id, &target);
    }

    /// The socket is connected: begins with the proxy, TLS or HTTP.
    fn begin(&mut self, driver: &mut dyn Driver, token: Token, id: DialId, target: &Target) {
        let peer = driver.peer(token).unwrap_or(Address::UnixUnnamed);
        let session = match self.core.session_to(target) {
            Ok(session) => session,
            Err(error) => {
                driver.close(token, true);
                self.core.fail_dial(id, ConnectError::Ended(Cause::Tls(error)));
                return;
            }
        };
        let opened = self
            .core
            .guard(format_args!("dial {id}"), |core| core.open_link(token, Phase::Tls, session, peer, Some(id)));
        let Some(link) = opened else {
            driver.close(token, true);
            return self.core.fail_dial(id, ConnectError::Ended(Cause::Panicked));
        };
        self.put_link(link);
        self.visit(driver, token, |core, driver, link| {
            if let Some(longest) = target.connect {
                link.clock.phase_end = core.shared.now + millis(longest);
                core.schedule(link);
            }
            let begun = match &target.proxy {
                Some(proxy) => match target.tunnel(proxy.clone(), link.wire.buf(&mut core.shared.pool)) {
                    Ok(tunnel) => {
                        link.phase = Phase::Proxy(Box::new(tunnel));
                        Ok(())
                    }
                    Err(error) => return core.dial_failed(link, Phase::GONE, error),
                },
                None => {
                    if !target.preface.is_empty() {
                        link.wire.buf(&mut core.shared.pool).put(&target.preface);
                    }
                    inbound::secure(&mut Inbound { core, driver, link })
                }
            };
            if let Err(stop) = begun {
                core.stop(link, stop);
            }
        });
    }

    pub(crate) fn attempt_failed(&mut self, driver: &mut dyn Driver, token: Token, id: DialId, end: End) {
        driver.close(token, false);
        self.put(token, Slot::Free);
        let Some(Dial { state: State::Racing(race), .. }) = self.core.dials.get_mut(&id) else { return };
        let error = match end {
            End::Failed(error) => error,
            End::Finished | End::Faulty(_) => std::io::ErrorKind::ConnectionReset.into(),
        };
        if let Some(at) = race.attempts.iter().position(|(attempt, _)| *attempt == token) {
            let (_, address) = race.attempts.swap_remove(at);
            let (tcp, error) = (tcp_of(&address), race.lose(address, error));
            self.core.addresses.note(tcp, &error, self.core.shared.now);
        }
        self.next_attempt(driver, id);
    }

    /// Handles every dial whose timer is due. A timer may be stale; the state decides.
    pub(crate) fn expire_dials(&mut self, driver: &mut dyn Driver) {
        let now = self.core.shared.now;
        while let Some(Reverse((at, id))) = self.core.dial_timers.peek().copied() {
            if at > now {
                return;
            }
            self.core.dial_timers.pop();
            let Some(dial) = self.core.dials.get_mut(&id) else { continue };
            match &mut dial.state {
                State::Waiting(at) if *at <= now => self.attempt(driver, id),
                State::Failed(_) => {
                    if let State::Failed(error) = std::mem::replace(&mut dial.state, State::Resolving(Tick::MAX)) {
                        self.core.fail_dial(id, error);
                    }
                }
                State::Resolving(end) if *end <= now => {
                    let usual = self.core.shared.config.deadlines.connect;
                    let (host, longest) = (dial.target.first_hop().0, dial.target.connect.unwrap_or(usual));
                    let error = format!("{host} was not resolved within {longest:?}: is its name server reachable?");
                    self.core.fail_dial(id, ConnectError::Resolve(error));
                }
                State::Racing(race) if race.end <= now => {
                    let error = ConnectError::Ended(Cause::Timeout(Deadline::Connect));
                    let silent: Vec<_> = race.attempts.iter().map(|(_, address)| tcp_of(address)).collect();
                    let attempts = race.end_attempts();
                    self.close_attempts(driver, attempts);
                    silent
                        .into_iter()
                        .for_each(|address| self.core.addresses.note(address, &error, self.core.shared.now));
                    self.core.fail_dial(id, error);
                }
                State::Racing(race) if race.next_at <= now => self.next_attempt(driver, id),
                _ => {}
            }
        }
    }

    /// Ends every attempt, for a drain. Existing connections are left to the drain.
    pub(crate) fn cancel_dials(&mut self, driver: &mut dyn Driver) {
        let racing = self.core.dials.values_mut().filter_map(|dial| match &mut dial.state {
            State::Racing(race) => Some(race.end_attempts()),
            _ => None,
        });
        let mut attempts: Vec<_> = racing.flatten().collect();
        // In an order that does not depend on the map's.
        attempts.sort_unstable();
        self.close_attempts(driver, attempts);
        let given_up = self.core.dials.iter().filter(|(_, dial)| !matches!(dial.state, State::Linked(_)));
        let mut given_up: Vec<_> = given_up.map(|(id, _)| *id).collect();
        given_up.sort_unstable();
        for id in given_up {
            self.core.fail_dial(id, ConnectError::Ended(Cause::Stopped));
        }
    }

    fn close_attempts(&mut self, driver: &mut dyn Driver, attempts: Vec<Token>) {
        for token in attempts {
            driver.close(token, true);
            self.put(token, Slot::Free);
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
