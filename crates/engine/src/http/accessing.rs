//! The steps of connections that their entries of the access log follow.
//!
//! The table of entries exists only while somebody takes them, so connections are as small as without it. With the table every
//! connection has a part in the [account](crate::memory::account). The step that keeps the account after an event also adds what the
//! shard's counters have grown by to the connection of that event. Without the table nothing is done for a message.

use crate::http::access::{Access, AccessLog};
use crate::http::access_table::{AccessTable, Asked, Record};
use crate::ids::ConnId;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::shared::Shared;
use crate::turn::timer::Tick;
use http::{Request, StatusCode};
use std::time::Duration;
use tautline_conn::closed::{Cause, Closed};
use tautline_conn::front::Via;
use tautline_conn::notes::Notes;
use tautline_io::{Address, Answered, Token};
use tautline_tls::Session;
use tautline_ws::CloseCode;

/// The entries of a shard's connections, if somebody takes them.
pub(crate) struct Accessing {
    pub(crate) table: Option<Box<AccessTable>>,
}

impl Accessing {
    /// Adds the traffic of an event to its connection, and logs a response that has left. Returns the memory of the entry.
    pub(crate) fn note_traffic<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) -> usize {
        let now = shared.now;
        let Some(record) = self.record(link, shared) else { return 0 };
        let memory = record.memory();
        let is_plain = record.status.is_some_and(|status| status != StatusCode::SWITCHING_PROTOCOLS);
        if is_plain && !link.wire.is_in_flight() {
            match link.phase {
                Phase::Request(_) => self.log_access(link, shared),
                // The connection ends with this response, and its last bytes belong to it.
                Phase::Linger(_) => _ = record.ended.get_or_insert(now),
                _ => {}
            }
        }
        memory
    }

    /// Adds the traffic of a step that no account follows.
    #[inline]
    pub(crate) fn count_traffic<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) {
        if self.table.is_some() {
            let _ = self.record(link, shared);
        }
    }

    /// The head of a request is whole.
    pub(crate) fn note_request<S: Session, T>(&mut self, link: &Link<S, T>, request: &Request<()>, shared: &Shared) {
        let now = shared.now;
        let Some(record) = self.record(link, shared) else { return };
        if record.is_entry() {
            self.log_access(link, shared);
        }
        if let Some(record) = self.record(link, shared) {
            (record.asked, record.began, record.age) = (Some(Asked::new(request)), now, 0);
        }
    }

    /// A request is answered, whether its head was read or not.
    pub(crate) fn note_answer<S: Session, T>(&mut self, link: &Link<S, T>, status: StatusCode, shared: &Shared) {
        let Some(record) = self.record(link, shared) else { return };
        if record.status.is_some() {
            // It belongs to the request before.
            self.log_access(link, shared);
        }
        if let Some(record) = self.record(link, shared) {
            record.status = Some(status);
        }
    }

    /// The driver has answered a request in place of the loop: that of a connection, or of one that it would have carried.
    pub(crate) fn note_answered<S: Session, T>(&mut self, link: &Link<S, T>, answered: &Answered<'_>, shared: &Shared) {
        if link.phase.carries() {
            if let Some(table) = &self.table {
                log(&table.log, link, &Record::of_answered(answered, shared.now), shared);
            }
        } else if let Some(record) = self.record(link, shared)
            && record.status.is_some()
        {
            record.status = StatusCode::from_u16(answered.status).ok();
        }
    }

    /// A connection goes on that was another process's `since` milliseconds ago.
    pub(crate) fn go_on<S: Session, T>(&mut self, link: &mut Link<S, T>, since: Tick, saved: &[u8], shared: &Shared) {
        let Some(table) = &mut self.table else { return };
        table.restore(link.token, &shared.counters, (shared.now, since), saved);
        let record = table.record(link.token, &shared.counters, shared.now);
        match &mut link.phase {
            // Its status and notes are the application's until its end.
            Phase::Raw(raw) => {
                if let Some(head) = &mut raw.head {
                    head.notes = std::mem::take(&mut record.notes);
                }
            }
            _ => record.status = Some(StatusCode::SWITCHING_PROTOCOLS),
        }
    }

    /// The application's notes about the request.
    pub(crate) fn note_notes<S: Session, T>(&mut self, link: &Link<S, T>, notes: Notes, shared: &Shared) {
        if let Some(record) = self.record(link, shared) {
            record.notes = notes;
        }
    }

    /// A response is cut off.
    pub(crate) fn note_cut<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) {
        if let Some(record) = self.record(link, shared) {
            record.is_cut = true;
        }
    }

    /// A WebSocket has ended. Its last bytes may still leave.
    pub(crate) fn note_closed<S: Session, T>(&mut self, link: &Link<S, T>, closed: &Closed, shared: &Shared) {
        let now = shared.now;
        if let Some(record) = self.record(link, shared) {
            (record.closed, record.ended) = (Some(closed.clone()), Some(now));
        }
    }

    /// The connection is over, and nothing more leaves.
    pub(crate) fn end_access<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) {
        let Some(record) = self.record(link, shared) else { return };
        if record.status == Some(StatusCode::SWITCHING_PROTOCOLS) && record.closed.is_none() {
            // The application panicked at the end.
            record.closed = Some(Closed::new(CloseCode::ABNORMAL, Cause::Panicked));
        }
        if record.is_entry() {
            self.log_access(link, shared);
        }
    }

    /// Forgets the entry of a connection that is dropped.
    pub(crate) fn forget_access(&mut self, token: Token) {
        let _ = self.table.as_mut().and_then(|table| table.take(token));
    }

    #[inline(never)]
    fn record<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) -> Option<&mut Record> {
        let now = shared.now;
        let table = self.table.as_mut()?;
        for (to, crossed) in shared.joining.crossed.take() {
            table.add_crossed(to, crossed);
        }
        Some(table.record(link.token, &shared.counters, now))
    }

    /// Logs the entry of a connection, and begins the next one.
    #[cold]
    fn log_access<S: Session, T>(&mut self, link: &Link<S, T>, shared: &Shared) {
        let Some(table) = &mut self.table else { return };
        let Some(record) = table.take(link.token) else { return };
        if link.info.dial.is_none() {
            log(&table.log, link, &record, shared);
        }
        let _ = self.record(link, shared);
    }
}

/// Logs an entry of a connection.
fn log<S: Session, T>(log: &AccessLog, link: &Link<S, T>, record: &Record, shared: &Shared) {
    let tls = link.session.tls_info();
    let Record { asked, began, age, ended, status, is_cut, closed, traffic, notes } = record;
    (log.0)(&Access {
        conn: ConnId { shard: shared.shard, token: link.token },
        peer: &link.info.peer,
        direct: direct_of(link),
        method: asked.as_ref().map(|asked| &asked.method),
        path: asked.as_ref().map(|asked| &*asked.path),
        user_agent: asked.as_ref().and_then(|asked| asked.user_agent.as_deref()),
        status: *status,
        is_cut: *is_cut,
        closed: closed.as_ref(),
        duration: Duration::from_millis(ended.unwrap_or(shared.now).saturating_sub(*began) + age),
        traffic: *traffic,
        tls_version: tls.version,
        http2: tls.alpn.as_deref() == Some(b"h2"),
        notes,
    });
}

/// The peer of the socket, if it named another client.
pub(crate) fn direct_of<S, T>(link: &Link<S, T>) -> Option<&Address> {
    let direct = link.cold.as_ref().and_then(|cold| cold.via()).map(|Via { direct, .. }| direct);
    direct.filter(|direct| **direct != link.info.peer)
}

#[cfg(test)]
mod tests {
    use crate::fake::{Event, Fake};
    use crate::{Access, AccessLog, Config, Conn, Handler, Opening, Outgoing, Reply, Request, Shard, Traffic};
    use http::StatusCode;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tautline_tls::plain;
    use tautline_ws::Message;

    /// Echoes, and answers plain HTTP with its path.
    struct Echo;

    impl Handler for Echo {
        type State = ();

        fn on_request(&mut self, request: &Request<'_>) -> Reply {
            match (request.is_upgrade, request.http.uri().path()) {
                (true, "/forbidden") => Reply::status(StatusCode::FORBIDDEN),
                (true, _) => Reply::upgrade(),
                (false, path) => Reply::Respond(http::Response::new(path.as_bytes().to_vec())),
            }
        }

        fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
            if opening.request.is_some_and(|request| request.uri().path() == "/room") {
                conn.subscribe("a");
                conn.subscribe("b");
            }
        }

        fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
            conn.send(Outgoing::from(&message));
            conn.publish("a", Outgoing::from(&message));
            conn.publish("b", Outgoing::from(&message));
        }
    }

    struct Bench {
        kernel: Fake,
        shard: Shard<plain::Engine, Echo>,
        entries: Arc<Mutex<Vec<(String, Traffic)>>>,
        durations: Arc<Mutex<Vec<Duration>>>,
    }

    fn text(access: &Access<'_>) -> String {
        let closed = access.closed.map(|closed| format!(" {} {}", closed.code.get(), closed.cause));
        format!(
            "{} {} {} {:?}{}{}",
            access.method.map_or("-", |method| method.as_str()),
            access.path.unwrap_or("-"),
            access.status.map_or(0, |status| status.as_u16()),
            access.user_agent.unwrap_or("-"),
            if access.is_cut { " cut" } else { "" },
            closed.unwrap_or_default()
        )
    }

    impl Bench {
        fn new() -> Self {
            let kernel = Fake::default();
            kernel.0.borrow_mut().room = usize::MAX;
            let (entries, mut config) = (Arc::<Mutex<Vec<_>>>::default(), Config::default());
            let (taken, durations) = (entries.clone(), Arc::<Mutex<Vec<_>>>::default());
            let times = durations.clone();
            config.access_log = Some(AccessLog::new(move |access| {
                taken.lock().unwrap().push((text(access), access.traffic));
                times.lock().unwrap().push(access.duration);
            }));
            let shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), Echo).unwrap();
            Self { kernel, shard, entries, durations }
        }

        fn push(&mut self, event: Event) {
            self.kernel.push(event);
            self.shard.turn(None).unwrap();
        }

        /// The entries since the last call.
        fn entries(&self) -> Vec<(String, Traffic)> {
            std::mem::take(&mut self.entries.lock().unwrap())
        }

        fn texts(&self) -> Vec<String> {
            self.entries().into_iter().map(|(text, _)| text).collect()
        }
    }

    fn upgrade(path: &str) -> Vec<u8> {
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nUser-Agent: test\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        .into_bytes()
    }

    const GET: &[u8] = b"GET /a?token=secret HTTP/1.1\r\nHost: localhost\r\n\r\n";
    /// A text frame with a mask of zeros.
    const HELLO: &[u8] = &[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'];
    /// A close frame with 1000.
    const CLOSE: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 3, 232];

    #[test]
    fn a_websocket_is_one_entry_with_its_own_traffic() {
        let mut bench = Bench::new();
        for index in 0..2 {
            bench.push(Event::Accept);
            bench.push(Event::Bytes(index, upgrade("/chat?token=secret")));
        }
        for index in [0, 1, 1] {
            bench.push(Event::Bytes(index, HELLO.to_vec()));
        }
        assert!(bench.entries().is_empty());
        bench.push(Event::Bytes(1, CLOSE.to_vec()));
        bench.push(Event::Finished(1));
        let [(text, traffic)] = &bench.entries()[..] else { panic!("one entry") };
        assert_eq!(text, "GET /chat 101 \"test\" 1000 closed by the peer");
        assert_eq!((traffic.messages_in, traffic.messages_out), (2, 2));
        assert_eq!(traffic.bytes_in, (upgrade("/chat?token=secret").len() + 2 * HELLO.len() + CLOSE.len()) as u64);
        assert_eq!(traffic.bytes_out, bench.kernel.with(1, |wire| wire.received.len()) as u64);
        bench.push(Event::Failed(0));
        let [(text, other)] = &bench.entries()[..] else { panic!("one entry") };
        assert_eq!(text, "GET /chat 101 \"test\" 1006 connection lost");
        let counters = bench.shard.counters();
        assert_eq!(traffic.bytes_in + other.bytes_in, counters.bytes_in);
        assert_eq!(traffic.bytes_out + other.bytes_out, counters.bytes_out);
        assert_eq!(traffic.messages_out + other.messages_out, counters.messages_out);
        assert_eq!(counters.memory_heads, 0, "the entries are counted as long as they are there");
    }

    #[test]
    fn published_messages_count_for_their_subscribers() {
        let mut bench = Bench::new();
        for index in 0..4 {
            bench.push(Event::Accept);
            bench.push(Event::Bytes(index, upgrade(if index == 0 { "/sender" } else { "/room" })));
        }
        for _ in 0..2 {
            bench.push(Event::Bytes(0, HELLO.to_vec()));
            bench.shard.turn(None).unwrap();
        }
        for index in 0..4 {
            bench.push(Event::Failed(index));
            let [(_, traffic)] = bench.entries()[..] else { panic!("one entry") };
            assert_eq!(traffic.messages_out, if index == 0 { 2 } else { 4 }, "{index}");
            assert_eq!(traffic.bytes_out, bench.kernel.with(index, |wire| wire.received.len()) as u64, "{index}");
        }
    }

    #[test]
    fn each_request_of_a_connection_is_an_entry() {
        let mut bench = Bench::new();
        bench.push(Event::Accept);
        bench.push(Event::Bytes(0, GET.to_vec()));
        assert_eq!(bench.texts(), ["GET /a 200 \"-\""]);
        // Two at once, and the beginning of another.
        bench.push(Event::Bytes(0, [GET, GET, b"GET"].concat()));
        assert_eq!(bench.texts(), ["GET /a 200 \"-\"", "GET /a 200 \"-\""]);
        bench.push(Event::Bytes(0, b" \x01\r\n\r\n".to_vec()));
        bench.push(Event::Finished(0));
        assert_eq!(bench.texts(), ["- - 400 \"-\""]);
        assert_eq!(bench.shard.counters().connections, 0);
    }

    #[test]
    fn a_slow_client_is_an_entry_when_all_has_left() {
        let mut bench = Bench::new();
        bench.kernel.0.borrow_mut().room = 10;
        bench.push(Event::Accept);
        bench.push(Event::Bytes(0, GET.to_vec()));
        assert!(bench.entries().is_empty());
        bench.push(Event::Room(0, usize::MAX - 10));
        assert_eq!(bench.texts(), ["GET /a 200 \"-\""]);
    }

    #[test]
    fn an_entry_ends_with_its_response_and_not_with_the_connection() {
        let mut bench = Bench::new();
        let now = Rc::new(Cell::new(Duration::from_secs(5)));
        let clock = now.clone();
        bench.shard.danger_simulate(move || clock.get(), [0; 32]);
        for (index, request, wait) in [
            (0, b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(), 0),
            (1, [&upgrade("/chat")[..], HELLO].concat(), 300),
        ] {
            bench.push(Event::Accept);
            bench.push(Event::Bytes(index, request));
            now.set(now.get() + Duration::from_millis(wait));
            if wait > 0 {
                bench.push(Event::Bytes(index, CLOSE.to_vec()));
            }
            now.set(now.get() + Duration::from_millis(700));
            bench.push(Event::Finished(index));
            assert_eq!(bench.texts().len(), 1);
            assert_eq!(bench.durations.lock().unwrap().pop(), Some(Duration::from_millis(wait)));
        }
    }

    #[test]
    fn refusals_are_entries_and_silent_connections_are_none() {
        let mut bench = Bench::new();
        for (index, bytes, expected) in [
            (0, upgrade("/forbidden"), "GET /forbidden 403 \"test\""),
            (1, [&upgrade("/x")[..upgrade("/x").len() - 4], b"0\r\n\r\n"].concat(), "GET /x 426 \"test\""),
        ] {
            bench.push(Event::Accept);
            bench.push(Event::Bytes(index, bytes));
            bench.push(Event::Finished(index));
            assert_eq!(bench.texts(), [expected]);
        }
        bench.push(Event::Accept);
        bench.push(Event::Bytes(2, b"GET / HT".to_vec()));
        bench.push(Event::Failed(2));
        bench.push(Event::Accept);
        bench.push(Event::Failed(3));
        assert!(bench.entries().is_empty());
    }
}
