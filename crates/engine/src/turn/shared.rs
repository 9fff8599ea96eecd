use crate::config::Config;
use crate::counts::counters::LiveCounters;
use crate::http::date::DateCache;
use crate::ids::ConnId;
use crate::memory::account::Account;
use crate::memory::budget::MemoryBudget;
use crate::offload::RecordPool;
use crate::peer_log::PeerLog;
use crate::probe::{MessageTimes, Probe, Sends, Stages};
use crate::raw::joining::Joining;
use crate::threads::remote::ShardHandle;
use crate::topics::broker::Bridge;
use crate::topics::closings::Closings;
use crate::topics::letters::Letters;
use crate::topics::publications::Publications;
use crate::topics::topic::Topics;
use crate::turn::clock::Clock;
use crate::turn::timer::Tick;
use crate::turn::timers::Timers;
use crate::turn::visit::Visit;
use http::HeaderValue;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use tautline_buf::{Buf, Pool};
use tautline_conn::cork::Means;
use tautline_conn::keys::Keys;
use tautline_conn::message::{Delivery, Published};
use tautline_io::{Address, Token};
use tautline_ws::deflate::SharedDeflater;

/// State that all connections of one shard share. It is never shared between threads.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) shard: u32,
    pub(crate) pool: Pool,
    /// The plaintext of one record, for engines that cannot open records in place. Boxed, since each event takes it out.
    pub(crate) scratch: Option<Box<Buf>>,
    pub(crate) keys: Keys,
    /// Compresses published messages.
    pub(crate) shared_deflater: SharedDeflater,
    pub(crate) counters: Arc<LiveCounters>,
    /// The account of messages that are published here.
    pub(crate) published: Published,
    /// Threads that help to seal large messages.
    pub(crate) records: Option<RecordPool>,
    /// The log of what peers cause.
    pub(crate) peer_log: PeerLog,
    pub(crate) topics: Topics,
    pub(crate) timers: Timers,
    /// Messages that were published and are not delivered yet. They follow after the driver's events.
    pub(crate) publications: Publications,
    /// Messages of handlers to single connections of this shard. They leave before what is published later.
    pub(crate) letters: Letters,
    /// Connections that handlers close by their ids. They are closed after the messages that were sent to them before.
    pub(crate) closings: Closings,
    /// Connections to be flushed, whose output was not made by their own event.
    pub(crate) dirty: Vec<Token>,
    /// Bytes on their way from one raw connection to another.
    pub(crate) passing: Passing,
    /// The handle of this shard.
    pub(crate) remote: ShardHandle,
    /// The other shards of this server.
    pub(crate) others: Vec<ShardHandle>,
    /// The way to other hosts.
    pub(crate) bridge: Option<Bridge>,
    pub(crate) clock: Clock,
    /// The clock's time at the begin of a turn, or when its wait ended.
    pub(crate) now: Tick,
    /// The `Date` of responses.
    pub(crate) dates: DateCache,
    /// The end of a drain, once one has begun.
    pub(crate) drain_end: Option<Tick>,
    pub(crate) probe: Option<Box<dyn Probe>>,
    /// Connections that wait for their next [visit](crate::turn::visit), in their order. Some may have ended.
    pub(crate) resting: VecDeque<Token>,
    /// The work of the connection that is being visited.
    pub(crate) visit: Visit,
    /// The times of the message that the handler is called with.
    pub(crate) times: Option<MessageTimes>,
    /// The sends that are timed, if there is a probe that wants to.
    pub(crate) sends: Option<Box<Sends>>,
    pub(crate) joining: Joining,
    /// A part of what is being sealed in pieces may have left. A panic that finds it set cuts it off.
    pub(crate) amid_pieces: bool,
    /// The budget of memory that the shard shares with others.
    pub(crate) budget: MemoryBudget,
    /// The account of the shard's memory.
    pub(crate) account: Account,
}

/// Bytes on their way from one raw connection to another.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// A connection that got many bytes of another one's event. They leave once that one's input is processed.
    pub(crate) filled: Option<Token>,
    /// Bytes of the input that is processed.
    pub(crate) input: usize,
}

impl Shared {
    /// Whether messages of handlers wait for their connections, or closings.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        !self.publications.is_empty() || !self.letters.is_empty() || !self.closings.is_empty()
    }

    /// Reads the clock. Once per turn is enough, since deadlines are exact only to 64 ms.
    pub(crate) fn refresh(&mut self) {
        self.now = self.clock.read();
    }

    /// The value of `Date` in this turn's responses.
    pub(crate) fn date(&mut self) -> HeaderValue {
        self.dates.of_turn(self.now, &self.clock)
    }

    /// The results of the probe so far, if there is one.
    pub(crate) fn stages(&self) -> Option<Box<Stages>> {
        let mut stages = self.probe.as_ref()?.stages()?;
        if let Some(sends) = &self.sends {
            stages.set_sends(sends.results());
        }
        Some(stages)
    }

    /// The means by which a connection writes frames.
    #[inline]
    pub(crate) const fn means(&mut self) -> Means<'_> {
        Means { pool: &mut self.pool, keys: &mut self.keys }
    }

    /// A send that is to be timed is decided on. Returns its mark, if it is timed.
    pub(crate) fn decide(&mut self, conn: ConnId, id: u64) -> Option<u64> {
        self.sends.as_mut()?.decide(conn, id, self.times.as_ref())
    }

    /// The connection has, or has not, taken the message of a mark.
    pub(crate) fn taken(&mut self, mark: Option<u64>, delivery: Delivery) {
        if let (Some(sends), Some(mark)) = (&mut self.sends, mark) {
            sends.taken(mark, delivery);
        }
    }

    /// Logs a line about a peer, unless there are too many.
    #[cold]
    pub(crate) fn log_peer(&mut self, level: log::Level, peer: &Address, line: fmt::Arguments<'_>) {
        self.peer_log.log(level, self.now, peer, line);
    }
}
