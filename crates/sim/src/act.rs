//! The actions of a run: what applications, other threads and nature do, at random times.

use crate::app::{App, State, TOPICS, outgoing, topic_name};
use crate::end_id::EndId;
use crate::ledger::{GOODBYE, Ledger};
use crate::letter::Letter;
use crate::network::Event;
use crate::plan::CALM;
use crate::trace::SECOND;
use crate::world::World;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Conn, ConnId, Outgoing, Reconnect, Upgrade};
use tautline_tls::Engine;
use tautline_ws::CloseCode;

/// Most connections that one action begins.
const MOST_DIALS: usize = 4;

impl<E: Engine> World<E> {
    /// Does something.
    pub(crate) fn act(&mut self) {
        let faults = self.plan.weather.faults;
        if self.net.borrow_mut().chance(faults) {
            return self.fault();
        }
        let (servers, clients) = (self.plan.servers, self.plan.clients);
        let client = servers + self.below(clients);
        let server = self.below(servers);
        match self.below(20) {
            0..3 => self.dial(client),
            3..7 => {
                let burst = 1 + self.below(30);
                self.with(client, |app, conn| (0..burst).for_each(|_| app.send(conn, b'd', 0)));
            }
            7 => {
                let verb = [b'e', b'b'][self.below(2)];
                self.with(client, |app, conn| app.send(conn, verb, 20));
            }
            8 | 9 => {
                let (verb, topic) = (b"ssuppoSU"[self.below(8)], self.topic());
                self.with(client, |app, conn| app.send(conn, verb, topic));
            }
            10 => {
                let burst = 1 + self.below(30);
                self.with(server, |app, conn| (0..burst).for_each(|_| app.send(conn, b'd', 0)));
            }
            11 => self.by_handle(server),
            12 => self.publish(server),
            13 => self.close(server, client),
            14 => self.answer(server),
            15 => self.list(server),
            16 | 17 => {
                let (verb, timer) = (b"tttk"[self.below(4)], self.topic());
                self.with(client, |app, conn| app.send(conn, verb, timer));
            }
            18 => self.pause(if self.below(2) == 0 { server } else { client }),
            _ => self.offend(client),
        }
    }

    fn below(&self, limit: usize) -> usize {
        self.net.borrow_mut().random.below(limit)
    }

    fn topic(&self) -> u8 {
        u8::try_from(self.below(usize::from(TOPICS))).unwrap_or(0)
    }

    /// Any open connection of a host.
    fn any(&mut self, host: usize) -> Option<ConnId> {
        let count = self.hosts[host].handler().conns.len();
        let at = self.below(count);
        self.hosts[host].handler().conns.get(at).copied()
    }

    fn with<R>(&mut self, host: usize, act: impl FnOnce(&mut App, &mut Conn<'_, State>) -> R) -> Option<R> {
        let id = self.any(host)?;
        self.due_now(host);
        self.hosts[host].with_conn(id, act)
    }

    fn dial(&mut self, client: usize) {
        for _ in 0..=self.below(MOST_DIALS) {
            let mut target = self.target.clone();
            if self.below(3) == 0 {
                let again = Reconnect::new(Duration::from_millis(100), Duration::from_secs(4)).with_attempts(6);
                target.reconnect = Some(again);
            }
            self.hosts[client].connect(Arc::new(target));
        }
        self.due_now(client);
    }

    /// Another thread sends to a connection: by the loop's handle, or by the connection's own.
    fn by_handle(&mut self, server: usize) {
        let count = self.hosts[server].handler().handles.borrow().len();
        let at = self.below(2 * count);
        let own = self.hosts[server].handler().handles.borrow().get(at).cloned();
        let Some(id) = own.as_ref().map(|(id, _)| *id).or_else(|| self.any(server)) else { return };
        let is_live = self.ledger.borrow().is_live(id);
        if let Some((_, handle)) = &own
            && (handle.is_open() != is_live || !is_live && handle.send(Outgoing::text("nobody is there")).is_ok())
        {
            self.net
                .borrow_mut()
                .find(format!("the handle of connection {id} says open; the connection is: {is_live}"));
        }
        let Some(Some((flow, bytes))) = self.hosts[server].with_conn(id, |app, conn| app.by_handle(conn)) else {
            return;
        };
        let message = Outgoing::binary(&bytes);
        let sent =
            own.map_or_else(|| self.hosts[server].handle().send(id, message), |(_, handle)| handle.send(message));
        if sent.is_ok() {
            self.ledger.borrow_mut().sent(flow);
        }
    }

    /// Another thread answers a request that waits.
    fn answer(&mut self, server: usize) {
        let count = self.hosts[server].handler().tickets.borrow().len();
        if count == 0 {
            return;
        }
        let at = self.below(count);
        let (number, ticket) = self.hosts[server].handler().tickets.borrow_mut().swap_remove(at);
        let (is_wanted, is_refused) = (ticket.is_wanted(), self.below(4) == 0);
        self.net.borrow_mut().note(server, "answers", number as usize, usize::from(is_refused));
        let answered = if is_refused {
            ticket.status(http::StatusCode::FORBIDDEN)
        } else {
            self.ledger.borrow_mut().upgraded(number);
            ticket.upgrade(Upgrade::new().with_state(State { ticket: number, ..State::default() }))
        };
        if answered.is_ok() != is_wanted {
            self.net
                .borrow_mut()
                .find(format!("request {number} is wanted: {is_wanted}, but the answer: {answered:?}"));
        }
    }

    /// Another thread sends to some of a server's connections, or to all.
    fn list(&mut self, server: usize) {
        let is_for_all = self.below(4) == 0;
        let flow = Ledger::list(server, is_for_all);
        let number = self.ledger.borrow().published(flow);
        let len = self.below(self.plan.longest_message);
        let bytes = Letter { verb: b'p', argument: 0, flow, number }.write(len);
        let (mut ids, mut talks) = (Vec::new(), Vec::new());
        for id in self.hosts[server].handler().conns.clone() {
            let talk = self.hosts[server].with_conn(id, |_, conn| conn.state().talk).unwrap_or(0);
            if talk != 0 && self.below(2) == 0 {
                ids.push(id);
                talks.push(talk);
            }
        }
        let (handle, message) = (self.hosts[server].handle(), outgoing(&bytes, u64::from(number)));
        let sent = if is_for_all { handle.broadcast(message) } else { handle.send_to(&ids, message) };
        if sent.is_ok() {
            self.ledger.borrow_mut().sent_to(flow, if is_for_all { &[] } else { &talks });
        }
    }

    /// Another thread publishes.
    fn publish(&self, server: usize) {
        for _ in 0..=self.below(20) {
            let topic = self.topic();
            let flow = Ledger::publications(server, topic, true);
            let number = self.ledger.borrow().published(flow);
            let len = self.below(self.plan.longest_message);
            let bytes = Letter { verb: b'p', argument: 0, flow, number }.write(len);
            if self.hosts[server].handle().publish(topic_name(topic), Outgoing::binary(&bytes)).is_ok() {
                self.ledger.borrow_mut().publish(flow);
            }
        }
    }

    fn close(&mut self, server: usize, client: usize) {
        match self.below(4) {
            0 => drop(self.with(client, |_, conn| conn.close(CloseCode::new(GOODBYE), "bye"))),
            1 => drop(self.with(server, |_, conn| conn.close(CloseCode::new(GOODBYE), "bye"))),
            2 => drop(self.with(client, |app, conn| app.send(conn, b'c', 0))),
            _ => {
                if let Some(id) = self.any(server) {
                    // The loop takes every command.
                    let _ = self.hosts[server].handle().close(id, CloseCode::new(GOODBYE), "bye");
                }
            }
        }
    }

    /// Stops reading, or resumes it.
    fn pause(&mut self, host: usize) {
        let pause = self.below(2) == 0;
        self.with(host, |_, conn| conn.pause(pause));
    }

    /// A client does something for which its connection is closed, now and then.
    fn offend(&mut self, client: usize) {
        match self.below(6) {
            0 => drop(self.with(client, |app, conn| app.send_too_long(conn))),
            1 => drop(self.with(client, |app, conn| app.send_panic(conn))),
            _ => self.dial(client),
        }
    }

    /// The network or a host fails for a while.
    fn fault(&self) {
        let now = self.net.borrow().clock.now();
        let left = CALM - now.min(CALM);
        let mut guard = self.net.borrow_mut();
        let net = &mut *guard;
        let count = net.tcps.len();
        let tcp = net.random.below(count);
        let until = now + net.random.next() % (left + 1).min(30 * SECOND);
        match net.random.below(5) {
            0 | 1 if count > 0 => {
                net.note(0, "fault: reset", tcp, 0);
                net.reset(tcp);
            }
            2 if count > 0 => {
                let side = net.random.below(2);
                net.note(0, "fault: stall", tcp, side);
                net.stall(EndId { tcp, side }, until);
            }
            // Only with deadlines that notice it before the last check.
            3 if count > 0 && net.weather.silence && now < 20 * SECOND => {
                net.note(0, "fault: silence", tcp, 0);
                net.tcps[tcp].is_silent = true;
            }
            _ => {
                // The host is stopped, or its clock leaps: to a monotonic clock both are one.
                let host = net.random.below(net.hosts.len());
                net.note(host, "fault: stopped", 0, 0);
                net.hosts[host].busy_until = until;
            }
        }
    }

    /// Resumes reading on all connections, and answers all requests: a ticket that is dropped answers too.
    pub(crate) fn resume_all(&mut self) {
        for host in 0..self.hosts.len() {
            self.hosts[host].handler().tickets.borrow_mut().clear();
            for id in self.hosts[host].handler().conns.clone() {
                self.hosts[host].with_conn(id, |_, conn| conn.pause(false));
            }
            self.due_now(host);
        }
    }

    /// Has `resume_all` follow at the end of the actions.
    pub(crate) fn schedule_calm(&self) {
        self.net.borrow_mut().schedule(CALM + 1, Event::Act(u32::MAX));
    }
}
