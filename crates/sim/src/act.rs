//! The actions of a run: what applications, other threads and nature do, at random times.

use crate::app::{App, State, TOPICS, topic_name};
use crate::end_id::EndId;
use crate::ledger::{GOODBYE, Ledger};
use crate::letter::Letter;
use crate::network::Event;
use crate::trace::SECOND;
use crate::world::{CALM, World};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{Conn, ConnId, Outgoing, Reconnect};
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
        match self.below(16) {
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
                let (verb, topic) = (b"ssup"[self.below(4)], self.topic());
                self.with(client, |app, conn| app.send(conn, verb, topic));
            }
            10 => {
                let burst = 1 + self.below(30);
                self.with(server, |app, conn| (0..burst).for_each(|_| app.send(conn, b'd', 0)));
            }
            11 => self.by_handle(server),
            12 => self.publish(server),
            13 => self.close(server, client),
            14 => self.pause(if self.below(2) == 0 { server } else { client }),
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

    /// Another thread sends to a connection.
    fn by_handle(&mut self, server: usize) {
        let Some(id) = self.any(server) else { return };
        let Some(Some((flow, bytes))) = self.hosts[server].with_conn(id, |app, conn| app.by_handle(conn)) else {
            return;
        };
        if self.hosts[server].handle().send(id, Outgoing::binary(&bytes)).is_ok() {
            self.ledger.borrow_mut().sent(flow);
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

    /// Resumes reading on all connections.
    pub(crate) fn resume_all(&mut self) {
        for host in 0..self.hosts.len() {
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
