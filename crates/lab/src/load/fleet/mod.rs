//! Load on several servers that share topics: subscribers of all of them, and a publisher on the first.

mod dialect;
mod tally;

use super::client::{Client, OnMessage, WAIT, number, send};
use super::idle::check_descriptors;
use super::make::config;
use super::server::{PATIENCE, Server};
use crate::cpu;
use crate::{Error, Measured, Meter};
pub(crate) use dialect::Dialect;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
pub(crate) use tally::Audience;
use tally::Tally;
use tautline::Outgoing;

/// Bytes of text in a message's data.
pub(crate) const FLEET_TEXT: usize = 128;

/// Longest message: Centrifugo sends several in one, each on a line, while it has much to do.
const LARGEST: usize = 1 << 20;

/// Connections that are opened before they subscribe: Centrifugo ends those that say nothing for some seconds.
const AT_ONCE: usize = 500;

/// Time for the servers to find each other, in which messages may be lost, and for a message meanwhile.
const JOIN: Duration = Duration::from_secs(20);
const TRY: Duration = Duration::from_millis(500);

/// Time between the last subscription or delivery and reading the memory.
const SETTLE: Duration = Duration::from_millis(500);

/// The servers, and their subscribers.
pub(crate) struct FleetPlan<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) servers: &'a [Server],
    /// Subscribers of all servers together.
    pub(crate) subscribers: usize,
    /// Subscribers of a room. The members of each are on all servers.
    pub(crate) room: usize,
    /// Begin of the names of topics.
    pub(crate) prefix: &'a str,
}

/// Subscribers of servers, each in a room, and a publisher.
pub(crate) struct Fleet {
    client: Client,
    tally: Rc<RefCell<Tally>>,
    dialect: Dialect,
    pids: Vec<u32>,
    rooms: Vec<String>,
    everyone: String,
    /// Subscribers, and those of them whose memory counts.
    subscribers: usize,
    counted: usize,
    /// Resident memory of the servers before these came.
    before: u64,
    /// The room of the next message.
    next: usize,
}

impl Fleet {
    /// Opens all connections and subscribes them.
    ///
    /// # Errors
    /// A server refused one, or messages do not reach all servers.
    pub(crate) fn open(plan: &FleetPlan<'_>) -> Result<Self, Error> {
        let servers = plan.servers.len();
        if servers == 0 || plan.room == 0 || plan.subscribers <= servers {
            return Err(Error::Usage("subscribers must be more than servers, and rooms not empty".to_owned()));
        }
        check_descriptors(plan.subscribers + 1)?;
        let tally = Rc::new(RefCell::new(Tally::new(plan.dialect)));
        let taken = Rc::clone(&tally);
        let on_message: OnMessage = Box::new(move |conn, message| taken.borrow_mut().take(conn, message));
        let client = Client::new(&plan.servers[0], config(LARGEST, 1), None, on_message)?;
        let rooms = (0..plan.subscribers.div_ceil(plan.room)).map(|room| format!("{}room-{room}", plan.prefix));
        let mut fleet = Self {
            client,
            tally,
            dialect: plan.dialect,
            pids: plan.servers.iter().filter_map(|server| server.pid).collect(),
            rooms: rooms.collect(),
            everyone: format!("{}everyone", plan.prefix),
            subscribers: 0,
            counted: plan.subscribers - servers,
            before: 0,
            next: 0,
        };
        fleet.client.open(1, &mut |_| {})?;
        if let Some(hello) = fleet.dialect.hello() {
            fleet.say(0, hello)?;
        }
        // The first subscriber of each server makes it touch what all share.
        for server in plan.servers {
            fleet.client.aim(server)?;
            fleet.add(1)?;
        }
        fleet.join(Audience::Rooms)?;
        fleet.hold(SETTLE)?;
        fleet.before = fleet.resident()?;
        for (index, server) in plan.servers.iter().enumerate() {
            fleet.client.aim(server)?;
            fleet.add(fleet.counted * (index + 1) / servers - fleet.counted * index / servers)?;
        }
        fleet.join(Audience::Rooms)?;
        Ok(fleet)
    }

    /// The growth of the servers' resident memory for each subscriber, in bytes.
    ///
    /// # Errors
    /// A server has ended.
    pub(crate) fn memory(&mut self) -> Result<f64, Error> {
        self.hold(SETTLE)?;
        Ok((self.resident()? as f64 - self.before as f64) / self.counted as f64)
    }

    /// Subscribes all to the topic of everyone, too.
    ///
    /// # Errors
    /// A server refused it.
    pub(crate) fn gather(&mut self) -> Result<(), Error> {
        let text = self.dialect.subscribe(&self.everyone, 1);
        let already = self.tally.borrow().subscriptions;
        let all: Vec<usize> = (1..=self.subscribers).collect();
        for some in all.chunks(AT_ONCE) {
            for &connection in some {
                self.say(connection, &text)?;
            }
            self.client.flush();
            let due = already + some.last().copied().unwrap_or_default();
            self.until(|tally| tally.subscriptions >= due, "a subscription was not answered")?;
        }
        self.join(Audience::Everyone)
    }

    /// Publishes messages evenly, `rate` in a second, and waits until all have come everywhere. The count is that of deliveries, and
    /// a latency is from publishing to one of them.
    ///
    /// # Errors
    /// One was wrong or missing.
    pub(crate) fn publish(&mut self, audience: Audience, rate: f64, messages: usize) -> Result<Measured, Error> {
        self.tally.borrow_mut().reset();
        let used = self.used()?;
        let meter = Meter::start(None)?;
        for message in 0..messages {
            let due = meter.began() + Duration::from_secs_f64(message as f64 / rate);
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                self.client.turn(left.min(WAIT))?;
            }
            self.send(audience)?;
        }
        self.until(|tally| tally.missing() == 0, "a message has not come everywhere")?;
        let used = self.used()?.saturating_sub(used);
        let (delivered, latencies) = self.tally.borrow_mut().reset();
        let measured = meter.stop(delivered, latencies)?;
        Ok(Measured { server_cpu: Some(used), ..measured })
    }

    /// Ends all connections.
    ///
    /// # Errors
    /// The driver failed.
    pub(crate) fn close(self) -> Result<(), Error> {
        self.client.close()
    }

    /// Opens subscribers of the server that the client aims at.
    fn add(&mut self, count: usize) -> Result<(), Error> {
        let last = self.subscribers + count;
        while self.subscribers < last {
            let first = self.subscribers + 1;
            let end = (first + AT_ONCE).min(last + 1);
            self.client.open(end, &mut |_| {})?;
            for place in first..end {
                self.subscribe(place)?;
            }
            self.client.flush();
            self.subscribers = end - 1;
            let due = self.subscribers;
            self.until(|tally| tally.subscriptions >= due, "a subscription was not answered")?;
        }
        Ok(())
    }

    /// Subscribes a connection to its room.
    fn subscribe(&mut self, place: usize) -> Result<(), Error> {
        let room = (place - 1) % self.rooms.len();
        let text = self.dialect.subscribe(&self.rooms[room], 0);
        let (hello, tally) = (self.dialect.hello(), &self.tally);
        self.client.with(place, |conn| {
            tally.borrow_mut().add(number(conn), room);
            for text in hello.into_iter().chain([text.as_str()]) {
                send(conn, Outgoing::text(text))?;
            }
            Ok(())
        })
    }

    /// Publishes until messages reach all servers: they meet some time after they have started.
    fn join(&mut self, audience: Audience) -> Result<(), Error> {
        let end = Instant::now() + JOIN;
        let messages = if audience == Audience::Everyone { 1 } else { self.rooms.len() };
        loop {
            (0..messages).try_for_each(|_| self.send(audience))?;
            let began = Instant::now();
            while self.tally.borrow().missing() > 0 {
                let is_late = began.elapsed() > TRY && self.tally.borrow().last.elapsed() > TRY;
                if is_late && Instant::now() > end {
                    let missing = self.tally.borrow().missing();
                    return Err(Error::Failed(format!("{missing} deliveries of {messages} messages do not come")));
                }
                if is_late {
                    break;
                }
                self.client.turn(WAIT)?;
            }
            if self.tally.borrow().missing() == 0 {
                return Ok(());
            }
            self.tally.borrow_mut().forget();
        }
    }

    fn send(&mut self, audience: Audience) -> Result<(), Error> {
        let room = (audience == Audience::Rooms).then_some(self.next % self.rooms.len());
        self.next += usize::from(room.is_some());
        let topic = room.map_or(&self.everyone, |room| &self.rooms[room]);
        let text = self.dialect.publish(topic, self.tally.borrow().next(), FLEET_TEXT);
        self.tally.borrow_mut().publish(room);
        self.say(0, &text)?;
        self.client.flush();
        Ok(())
    }

    fn say(&mut self, place: usize, text: &str) -> Result<(), Error> {
        self.client.with(place, |conn| send(conn, Outgoing::text(text)))
    }

    fn hold(&mut self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.client.turn(WAIT)?;
        }
        Ok(())
    }

    /// Runs until `done`. Fails if nothing comes for some time.
    fn until(&mut self, done: impl Fn(&Tally) -> bool, failure: &str) -> Result<(), Error> {
        self.tally.borrow_mut().last = Instant::now();
        while !done(&self.tally.borrow()) {
            if self.tally.borrow().last.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("{failure} within {} s", PATIENCE.as_secs())));
            }
            self.client.turn(WAIT)?;
        }
        Ok(())
    }

    /// CPU time of all servers.
    fn used(&self) -> Result<Duration, Error> {
        let failed = |error| Error::io("read the CPU time of a server", error);
        self.pids.iter().map(|&pid| cpu::process_time(pid).map_err(failed)).sum()
    }

    fn resident(&self) -> Result<u64, Error> {
        self.pids.iter().map(|&pid| cpu::resident_memory(pid)).sum()
    }
}
