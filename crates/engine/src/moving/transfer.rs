//! Open connections that move from a shard of one process to a shard of another.
//!
//! ```text
//!  old: begin_move ─► save_ahead, turns ─► hold_still ─► save each ───────────► give_away     or the next turn goes on
//!  new:                 └─ restore each                   └─ those that changed:
//!                                                            restore_again, undo ─► begin_restored   or the shard is dropped
//! ```
//! Saving only reads, so the old shard goes on as if nothing had happened until it gives the connections away. The new
//! shard's driver has the sockets when they are restored, and neither reads nor writes before they begin. The caller ensures
//! that exactly one of the two goes on.
//!
//! Connections of which the handler says that they [move together](Handler::moves_with) are one step of all this: they are saved,
//! restored and undone together, so that no side of a proxy is ever in another process than its other side.
//!
//! A connection that was saved ahead goes on changing. The new shard may begin it only with its last state: a session with an
//! earlier one would use nonces twice.

use crate::counts::outcomes::Outcomes;
use crate::counts::totals::Totals;
use crate::handler::Handler;
use crate::ids::{ConnId, Movers};
use crate::moving::restored::Restored;
use crate::moving::restoring::{invalid, place_link};
use crate::moving::saving::{Room, Saving, save_slot};
use crate::moving::staying::Staying;
use crate::shard::Shard;
use crate::turn::core::Core;
use crate::turn::reactor::Reactor;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use tautline_io::Token;
use tautline_tls::Engine;

/// Takes connections that move together, with their sockets, which the shard keeps open for `'s`, and their bytes.
type Give<'g, 's> = dyn FnMut(Movers, &[BorrowedFd<'s>], &[u8]) -> io::Result<()> + 'g;

/// Takes connections as [`Give`] does, or `None` for a slot without any. It breaks if that is enough for now.
type GiveAhead<'g, 's> = dyn FnMut(Option<(Movers, &[BorrowedFd<'s>], &[u8])>) -> io::Result<ControlFlow<()>> + 'g;

impl<E: Engine, H: Handler> Shard<E, H> {
    /// Handles the commands that wait and sends their output, without reading from any connection.
    ///
    /// Shards publish to each other. If all of them do this twice before they save, no message is left between them.
    pub fn settle(&mut self) {
        self.reactor.core.shared.refresh();
        self.reactor.handle_commands(&mut *self.driver);
        self.reactor.deliver_most(&mut *self.driver, usize::MAX);
    }

    /// Begins a move: until this is called again, saved times count up to now, so that bytes differ only if a connection does.
    pub fn begin_move(&mut self) {
        self.reactor.core.shared.refresh();
        self.reactor.moving.began = Some(self.reactor.core.shared.now);
    }

    /// Saves connections that can move and calls `give` as [`save`](Self::save) does, but while they go on. It looks at the
    /// slots from `from` on until `give` breaks. Returns the next slot, or `None` after the last one.
    ///
    /// Some drivers give only connections that [hold still](Self::hold_still).
    ///
    /// # Errors
    /// The first error of `give`.
    pub fn save_ahead<'s>(&'s mut self, from: usize, give: &mut GiveAhead<'_, 's>) -> io::Result<Option<usize>> {
        self.reactor.core.shared.refresh();
        let (now, mut room) = (self.reactor.moving.at(self.reactor.core.shared.now), Room::new());
        let Self { driver, reactor: Reactor { core, .. } } = self;
        for number in from..core.links.len() {
            let saved = save_slot(&**driver, core, number, (true, now), &mut room);
            let given = match saved {
                Saving::Moves(movers) => give(Some((movers, &room.sockets, &room.encoded)))?,
                Saving::Nothing | Saving::Stays(..) => give(None)?,
            };
            if given.is_break() {
                return Ok(Some(number + 1));
            }
        }
        Ok(None)
    }

    /// Has nothing of any connection move until the next turn.
    ///
    /// # Errors
    /// The driver cannot give connections away, or fails. The next turn goes on.
    pub fn hold_still(&mut self) -> io::Result<()> {
        self.driver.hold_still()
    }

    /// Saves each connection that can move, after [`hold_still`](Self::hold_still), and calls `give` with its socket and its
    /// bytes. These hold its keys. Connections that [move together](Handler::moves_with) are given together. Returns the numbers
    /// of the others.
    ///
    /// # Errors
    /// The first error of `give`.
    pub fn save<'s>(&'s mut self, give: &mut Give<'_, 's>) -> io::Result<Staying> {
        self.reactor.core.shared.refresh();
        let (now, mut room) = (self.reactor.moving.at(self.reactor.core.shared.now), Room::new());
        let mut staying = Staying { outgoing: self.reactor.core.dialer.connecting(), ..Staying::default() };
        let Self { driver, reactor: Reactor { core, .. } } = self;
        for number in 0..core.links.len() {
            match save_slot(&**driver, core, number, (false, now), &mut room) {
                Saving::Nothing => {}
                Saving::Moves(movers) => give(movers, &room.sockets, &room.encoded)?,
                Saving::Stays(reason, count) => *reason(&mut staying) += count,
            }
        }
        Ok(staying)
    }

    /// Forgets connections that another process has taken over. Nothing is reported to the handler, since they have not ended.
    pub fn give_away(&mut self, conns: &[ConnId]) {
        for conn in conns {
            if let Some(link) = self.reactor.core.links.take(conn.token) {
                self.reactor.forget(&mut *self.driver, link);
            }
        }
    }

    /// The totals so far, for the shard that takes over: [`Counters`](crate::Counters) without the present numbers, and
    /// [`Outcomes`](crate::Outcomes).
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.counters().put_totals(&mut totals);
        self.reactor.core.shared.remote.outcomes().put_totals(&mut totals);
        totals
    }

    /// Adds the totals of a shard whose connections this one takes over. Names that this build does not know are left out.
    pub fn add_totals(&mut self, totals: &Totals) {
        let mut outcomes = Outcomes::default();
        for (name, value) in totals.iter() {
            if !self.reactor.core.shared.counters.add_named(name, value) {
                outcomes.add_total(name, value);
            }
        }
        self.reactor.core.shared.remote.live_outcomes().add(&outcomes);
        if let Some(access) = &mut self.reactor.core.access.table {
            access.skip(&self.reactor.core.shared.counters);
        }
    }

    /// Copies of the listening sockets, for another process.
    ///
    /// # Errors
    /// The driver cannot give them.
    pub fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.driver.listening()
    }

    /// Stops accepting, and leaves the listening sockets to the process that has copies of them.
    pub fn give_listening_away(&mut self) {
        self.driver.give_listening_away();
    }

    /// Takes connections that another process has [saved](Self::save) together, and returns their number among those that were
    /// taken. They do not begin yet: no turn may come before [`begin_restored`](Self::begin_restored).
    ///
    /// # Errors
    /// The bytes are no connections of these sockets that this shard can go on with, or the driver cannot take them. The other
    /// process keeps them then.
    pub fn restore(&mut self, sockets: Vec<OwnedFd>, saved: &[u8]) -> io::Result<usize> {
        self.reactor.core.shared.refresh();
        if self.reactor.moving.restored.is_empty() {
            self.driver.hold_still()?;
            self.reactor.moving.began = Some(self.reactor.core.shared.now);
        }
        let Self { driver, reactor } = self;
        let Reactor { core: Core { engine, kernel_tls, application, shared, .. }, moving, .. } = &mut *reactor;
        let mut all = moving.restore_all(saved, (engine, *kernel_tls), &mut application.handler, shared)?;
        if all.len() != sockets.len() {
            return Err(invalid(format!("{} sockets came with {} connections", sockets.len(), all.len())));
        }
        // The driver comes last, since nothing can fail behind it.
        for (at, socket) in sockets.into_iter().enumerate() {
            match driver.adopt(socket) {
                Ok(token) => all[at].0.token = token,
                Err(error) => {
                    all[..at].iter().for_each(|(link, _)| driver.give_away(link.token));
                    return Err(error);
                }
            }
        }
        let place = |(link, rest)| Restored { link: reactor.core.batch_alloc.place(link), rest };
        reactor.moving.restored.push(all.into_iter().map(place).collect());
        Ok(reactor.moving.restored.len() - 1)
    }

    /// Takes a later state of the connections with this number.
    ///
    /// # Errors
    /// There are none, or this shard cannot go on with them. They are [undone](Self::undo_restore) then.
    pub fn restore_again(&mut self, number: usize, saved: &[u8]) -> io::Result<()> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "no connection with this number has arrived");
        let tokens: Vec<Token> =
            self.reactor.moving.restored.get(number).into_iter().flatten().map(|one| one.link.token).collect();
        if tokens.is_empty() {
            return Err(none());
        }
        let Reactor { core: Core { engine, kernel_tls, application, shared, .. }, moving, .. } = &mut self.reactor;
        let later = moving.restore_all(saved, (engine, *kernel_tls), &mut application.handler, shared);
        let later = later.and_then(|all| {
            let fits = all.len() == tokens.len();
            if fits { Ok(all) } else { Err(invalid("the number of connections has changed".to_owned())) }
        });
        if later.is_err() {
            self.undo_restore(number);
        }
        let restored = self.reactor.moving.restored.get_mut(number).into_iter().flatten();
        for ((restored, (mut link, rest)), token) in restored.zip(later?).zip(tokens) {
            link.token = token;
            (*restored.link, restored.rest) = (link, rest);
        }
        Ok(())
    }

    /// Closes this process's descriptors of the connections with this number: the other process keeps these connections.
    pub fn undo_restore(&mut self, number: usize) {
        let restored = self.reactor.moving.restored.get_mut(number).map(std::mem::take);
        restored.into_iter().flatten().for_each(|restored| self.driver.give_away(restored.link.token));
    }

    /// Begins all connections that were restored, and returns their number. From now on they are this shard's.
    pub fn begin_restored(&mut self) -> usize {
        self.reactor.core.shared.refresh();
        let since = self.reactor.core.shared.now.saturating_sub(self.reactor.moving.at(self.reactor.core.shared.now));
        let restored = std::mem::take(&mut self.reactor.moving.restored);
        let mut rests = Vec::with_capacity(restored.len());
        // All have their places before one of them begins: it may write to another.
        for mut movers in restored {
            if let [one, two] = &mut movers[..] {
                let Core { application, shared, .. } = &mut self.reactor.core;
                application.pair(&mut one.link, two.link.token, shared);
                application.pair(&mut two.link, one.link.token, shared);
            }
            for Restored { link, rest } in movers {
                rests.push((link.token, place_link(&mut self.reactor, link, rest, since)));
            }
        }
        let count = rests.len();
        for (token, rest) in rests {
            self.reactor.begin_link(&mut *self.driver, token, &rest, since);
        }
        count
    }
}
