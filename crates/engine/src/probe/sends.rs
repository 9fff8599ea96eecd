use super::message_times::MessageTimes;
use super::send_stages::{SendResults, SendStage};
use super::stages::Stage;
use crate::ids::ConnId;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline_conn::message::Delivery;
use tautline_io::{Arrival, Clock, Scale, Ticker, Token};

/// The times of a message that was sent by [`Conn::send_timed`](crate::Conn::send_timed).
///
/// A stamp is that of a system call: of the last byte of all messages that left the connection together, and with TLS of the
/// last record. Without a stamp the message may have arrived all the same.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SendTimes {
    /// The connection.
    pub conn: ConnId,
    /// The number that the application gave.
    pub id: u64,
    /// From the decision, which is the call of `send_timed`, to the system call. `None` if the message waited for a slow peer,
    /// was dropped, or its connection ended.
    pub written: Option<Duration>,
    /// From the decision until the kernel gave the last byte to the network card. `None` if it gave no stamp within a second.
    pub sent: Option<Duration>,
    /// From the arrival of the message that was being handled at the decision until then. `None` also if there was no such
    /// message, or it was not timed.
    pub tick_to_trade: Option<Duration>,
    /// When the kernel gave the last byte to the network card, by the system's clock.
    pub sent_at: Option<SystemTime>,
}

/// Sends that are timed at once.
const MOST: usize = 1024;

/// The longest time that a stamp is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A send that is being timed.
struct Mark {
    serial: u64,
    conn: ConnId,
    id: u64,
    /// When the deciding message arrived, in ticks.
    arrived: Option<u64>,
    decided: u64,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is on its way to the connection.
    Published,
    /// The next system call for the connection sends its last byte.
    Corked,
    /// The system call began at that time.
    Written(u64),
    /// The kernel's stamp has this number.
    Numbered(u64, u32),
}

/// The timed sends of a shard.
pub(crate) struct Sends {
    ticker: Ticker,
    scale: Scale,
    /// The oldest first.
    waiting: Vec<Mark>,
    /// Marks that are [corked](Place::Corked).
    corked: usize,
    last: u64,
    /// The times that the application does not know yet.
    ended: Vec<SendTimes>,
    results: SendResults,
}

impl Sends {
    #[cold]
    pub(crate) fn new() -> Box<Self> {
        let ticker = Ticker::here();
        Box::new(Self {
            ticker,
            scale: ticker.scale(),
            waiting: Vec::new(),
            corked: 0,
            last: 0,
            ended: Vec::new(),
            results: SendResults::new(),
        })
    }

    /// A send is decided on now. Returns the mark's number; `None` if too many are timed already.
    pub(crate) fn decide(&mut self, conn: ConnId, id: u64, times: Option<&MessageTimes>) -> Option<u64> {
        let decided = self.ticker.now();
        if self.waiting.len() + self.ended.len() >= MOST {
            self.results.untimed += 1;
            return None;
        }
        self.last += 1;
        let arrived = times.and_then(MessageTimes::arrived_ticks);
        self.waiting.push(Mark { serial: self.last, conn, id, arrived, decided, place: Place::Published });
        Some(self.last)
    }

    /// A connection has, or has not, taken the message of a mark.
    pub(crate) fn taken(&mut self, serial: u64, delivery: Delivery) {
        let Some(at) = self.waiting.iter().position(|mark| mark.serial == serial) else { return };
        if delivery == Delivery::Sent {
            self.waiting[at].place = Place::Corked;
            self.corked += 1;
        } else {
            self.lose(at);
        }
    }

    /// All that a connection has corked leaves with a system call now. Returns whether a timed message is part of it.
    #[inline]
    pub(crate) fn writes(&mut self, token: Token) -> bool {
        self.corked > 0 && self.writes_timed(token)
    }

    #[inline(never)]
    fn writes_timed(&mut self, token: Token) -> bool {
        let now = self.ticker.now();
        let before = self.corked;
        for mark in self.waiting.iter_mut().filter(|mark| mark.conn.token == token && mark.place == Place::Corked) {
            mark.place = Place::Written(now);
            self.corked -= 1;
        }
        self.corked < before
    }

    /// The system call was made, and the kernel's stamp will have this number, if one is to come.
    pub(crate) fn written(&mut self, token: Token, number: Option<u32>) {
        let mut at = 0;
        while let Some(mark) = self.waiting.get_mut(at) {
            match (mark.place, number) {
                (Place::Written(left), Some(number)) if mark.conn.token == token => {
                    mark.place = Place::Numbered(left, number);
                }
                (Place::Written(_), None) if mark.conn.token == token => {
                    self.lose(at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The kernel gave the byte of this number to the network card at `nanos` of its clock.
    pub(crate) fn departed(&mut self, token: Token, number: u32, nanos: u64) {
        // Both clocks are read anew: a stamp is rare.
        let anchor = self.ticker.anchor(Clock::Realtime);
        let departed = anchor.ticks_of(Arrival { clock: Clock::Realtime, nanos }, self.scale);
        let is =
            |mark: &Mark| mark.conn.token == token && matches!(mark.place, Place::Numbered(_, its) if its == number);
        while let Some(at) = self.waiting.iter().position(is) {
            let mark = self.waiting.remove(at);
            self.end(&mark, Some((departed, nanos)));
        }
    }

    /// The time until a mark is to be looked at; `None` if there is none.
    pub(crate) fn wait(&self) -> Option<Duration> {
        if self.ended.is_empty() { self.waiting.first().map(|_| PATIENCE) } else { Some(Duration::ZERO) }
    }

    /// The next times for the application: those of stamps, and of marks that have waited for too long.
    pub(crate) fn next_ended(&mut self) -> Option<SendTimes> {
        if let Some(mark) = self.waiting.first()
            && self.duration(mark.decided, self.ticker.now()) > PATIENCE
        {
            self.lose(0);
        }
        if self.ended.is_empty() { None } else { Some(self.ended.remove(0)) }
    }

    /// The results so far.
    pub(crate) fn results(&self) -> SendResults {
        self.results.clone()
    }

    fn lose(&mut self, at: usize) {
        let mark = self.waiting.remove(at);
        self.corked -= usize::from(mark.place == Place::Corked);
        self.end(&mark, None);
    }

    fn end(&mut self, mark: &Mark, departed: Option<(u64, u64)>) {
        let written = match mark.place {
            Place::Published | Place::Corked => None,
            Place::Written(at) | Place::Numbered(at, _) => Some(at),
        };
        // The clocks differ by some nanoseconds: nothing leaves before the system call.
        let at = departed.map(|(at, _)| at.max(written.unwrap_or(0)));
        let results = &mut self.results;
        results.timed += 1;
        results.unstamped += u64::from(at.is_none());
        let mut add = |stage, from: Option<u64>, to: Option<u64>| {
            if let (Some(from), Some(to)) = (from, to) {
                results.add(stage, to.saturating_sub(from));
            }
        };
        add(SendStage::Write, Some(mark.decided), written);
        add(SendStage::Kernel, written, at);
        add(SendStage::Sent, Some(mark.decided), at);
        add(SendStage::TickToTrade, mark.arrived, at);
        self.ended.push(SendTimes {
            conn: mark.conn,
            id: mark.id,
            written: written.map(|at| self.duration(mark.decided, at)),
            sent: at.map(|at| self.duration(mark.decided, at)),
            tick_to_trade: mark.arrived.zip(at).map(|(from, to)| self.duration(from, to)),
            sent_at: departed.map(|(_, nanos)| UNIX_EPOCH + Duration::from_nanos(nanos)),
        });
    }

    fn duration(&self, from: u64, to: u64) -> Duration {
        Duration::from_secs_f64(to.saturating_sub(from) as f64 * self.scale.nanos_per_tick / 1e9)
    }
}

impl MessageTimes {
    /// When the message's last segment arrived, in ticks.
    fn arrived_ticks(&self) -> Option<u64> {
        self.ticks(Stage::Total).map(|total| self.called().saturating_sub(total))
    }
}
