//! Entries of the access log that are not complete.

use crate::counts::counters::LiveCounters;
use crate::http::access::{AccessLog, Traffic};
use crate::raw::joining::Crossed;
use crate::turn::timer::Tick;
use http::header::USER_AGENT;
use http::{Method, Request, StatusCode};
use tautline_buf::fields::{put, take, take_array, take_u64};
use tautline_conn::closed::Closed;
use tautline_conn::notes::Notes;
use tautline_io::{Answered, Token};

/// Most bytes of a method, a path or the name of a program that are kept.
const MOST_TEXT: usize = 512;

/// The entries of a shard's connections that are not complete.
pub(crate) struct AccessTable {
    pub(crate) log: AccessLog,
    /// By the slots of connections.
    records: Vec<Option<Box<Record>>>,
    /// The shard's counters up to which traffic belongs to connections.
    counted: Traffic,
}

/// An entry that is not complete.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) asked: Option<Asked>,
    pub(crate) began: Tick,
    /// The time before `began`, in other processes.
    pub(crate) age: Tick,
    /// When the response had left or the WebSocket ended. The connection may linger.
    pub(crate) ended: Option<Tick>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) is_cut: bool,
    pub(crate) closed: Option<Closed>,
    pub(crate) traffic: Traffic,
    pub(crate) notes: Notes,
}

/// A request, as far as it is logged.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: Box<str>,
    pub(crate) user_agent: Option<Box<str>>,
}

impl Asked {
    pub(crate) fn new(request: &Request<()>) -> Self {
        let user_agent = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok());
        Self { method: cut_method(request.method()), path: cut(request.uri().path()), user_agent: user_agent.map(cut) }
    }

    /// The request of an answer that was not the loop's, if its head was read.
    fn of_answered(answered: &Answered<'_>) -> Option<Self> {
        let method = cut_method(&Method::from_bytes(answered.method?.as_bytes()).ok()?);
        Some(Self { method, path: cut(answered.path.unwrap_or_default()), user_agent: answered.user_agent.map(cut) })
    }

    /// Bytes of the texts.
    fn len(&self) -> usize {
        self.method.as_str().len() + self.path.len() + self.user_agent.as_ref().map_or(0, |text| text.len())
    }
}

fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MOST_TEXT)].into()
}

/// A method may be any token.
fn cut_method(method: &Method) -> Method {
    let front = method.as_str().as_bytes().get(..MOST_TEXT);
    front.and_then(|front| Method::from_bytes(front).ok()).unwrap_or_else(|| method.clone())
}

impl Record {
    fn new(began: Tick) -> Self {
        Self { began, ..Self::default() }
    }

    /// The entry of a request that is answered already, and was no connection of the loop.
    pub(crate) fn of_answered(answered: &Answered<'_>, now: Tick) -> Self {
        let status = StatusCode::from_u16(answered.status).ok();
        Self { asked: Asked::of_answered(answered), status, ..Self::new(now) }
    }

    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.notes.memory() + self.asked.as_ref().map_or(0, Asked::len)
    }

    /// Whether there is something to log.
    pub(crate) const fn is_entry(&self) -> bool {
        self.asked.is_some() || self.status.is_some()
    }
}

impl AccessTable {
    pub(crate) fn new(log: AccessLog, counters: &LiveCounters) -> Self {
        Self { log, records: Vec::new(), counted: Traffic::of(counters) }
    }

    /// The record of a connection, with the traffic up to now.
    pub(crate) fn record(&mut self, token: Token, counters: &LiveCounters, now: Tick) -> &mut Record {
        let index = token.index as usize;
        if self.records.len() <= index {
            self.records.resize_with(index + 1, || None);
        }
        let record = self.records[index].get_or_insert_with(|| Box::new(Record::new(now)));
        let total = Traffic::of(counters);
        record.traffic.add_since(&total, &self.counted);
        self.counted = total;
        record
    }

    /// Adds what the event of another connection has sent to this one. It is no traffic of that other one.
    pub(crate) fn add_crossed(&mut self, to: Token, Crossed { messages, bytes }: Crossed) {
        let add = |traffic: &mut Traffic| {
            traffic.messages_out += messages;
            traffic.bytes_out += bytes;
        };
        add(&mut self.counted);
        if let Some(Some(record)) = self.records.get_mut(to.index as usize) {
            add(&mut record.traffic);
        }
    }

    /// The counters have grown by the totals of another process, which are of no connection here.
    pub(crate) fn skip(&mut self, counters: &LiveCounters) {
        self.counted = Traffic::of(counters);
    }

    /// The record of a connection, with the traffic up to its last event.
    pub(crate) fn get(&self, token: Token) -> Option<&Record> {
        self.records.get(token.index as usize)?.as_deref()
    }

    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Record>> {
        self.records.get_mut(token.index as usize)?.take()
    }
}

/// An entry on its way to another process, with the time since it began.
impl AccessTable {
    /// Appends the entry of a connection, with its own notes or those that are not in it yet.
    pub(crate) fn save(
        &mut self,
        token: Token,
        counters: &LiveCounters,
        now: Tick,
        notes: Option<&Notes>,
        out: &mut Vec<u8>,
    ) {
        let record = self.record(token, counters, now);
        let Some(asked) = &record.asked else { return };
        let Traffic { bytes_in, bytes_out, messages_in, messages_out } = record.traffic;
        let age = record.age + now.saturating_sub(record.began);
        for number in [age, bytes_in, bytes_out, messages_in, messages_out] {
            out.extend(number.to_be_bytes());
        }
        put(asked.method.as_str().as_bytes(), out);
        put(asked.path.as_bytes(), out);
        out.push(u8::from(asked.user_agent.is_some()));
        put(asked.user_agent.as_deref().unwrap_or_default().as_bytes(), out);
        notes.unwrap_or(&record.notes).save(out);
    }

    /// Goes on with an entry of another process, which was saved `since` milliseconds ago. Bytes that are none begin a new one.
    pub(crate) fn restore(&mut self, token: Token, counters: &LiveCounters, (now, since): (Tick, Tick), saved: &[u8]) {
        let record = self.record(token, counters, now);
        if let Some((age, traffic, asked, notes)) = read(saved) {
            (record.began, record.age) = (now, age.saturating_add(since));
            (record.traffic, record.asked, record.notes) = (traffic, Some(asked), notes);
        }
    }
}

fn read(mut saved: &[u8]) -> Option<(Tick, Traffic, Asked, Notes)> {
    let rest = &mut saved;
    let age = take_u64(rest)?;
    let traffic = Traffic {
        bytes_in: take_u64(rest)?,
        bytes_out: take_u64(rest)?,
        messages_in: take_u64(rest)?,
        messages_out: take_u64(rest)?,
    };
    let method = Method::from_bytes(take(rest)?).ok()?;
    let path = cut(str::from_utf8(take(rest)?).ok()?);
    let [has_agent] = *take_array::<1>(rest)?;
    let user_agent = cut(str::from_utf8(take(rest)?).ok()?);
    let notes = Notes::restore(rest)?;
    Some((age, traffic, Asked { method, path, user_agent: (has_agent == 1).then_some(user_agent) }, notes))
}

#[cfg(test)]
mod tests {
    use super::{AccessTable, Asked, MOST_TEXT};
    use crate::counts::counters::LiveCounters;
    use crate::http::access::{AccessLog, Traffic};
    use http::{Request, StatusCode};
    use std::time::Duration;
    use tautline_conn::notes::{Note, Notes};
    use tautline_io::Token;

    fn table(counters: &LiveCounters) -> AccessTable {
        AccessTable::new(AccessLog::new(|_| {}), counters)
    }

    #[test]
    fn an_entry_goes_on_in_another_process() {
        let (counters, token) = (LiveCounters::default(), Token { index: 3, generation: 1 });
        let mut old = table(&counters);
        let request = Request::get("/chat?token=secret").header("user-agent", "test").body(()).unwrap();
        let record = old.record(token, &counters, 1_000);
        (record.asked, record.status) = (Some(Asked::new(&request)), Some(StatusCode::SWITCHING_PROTOCOLS));
        counters.bytes_in.add(10);
        counters.messages_out.add(2);
        let mut saved = Vec::new();
        let mut notes = Notes::default();
        notes.set("route", Note::from("chat"));
        notes.set("connect", Note::Time(Duration::from_micros(1_500)));
        old.save(token, &counters, 5_000, Some(&notes), &mut saved);
        assert!(!String::from_utf8_lossy(&saved).contains("secret"));

        let counters = LiveCounters::default();
        counters.bytes_in.add(500);
        let (mut new, token) = (table(&counters), Token { index: 0, generation: 7 });
        // The clock of a new process has just begun.
        new.restore(token, &counters, (60, 10), &saved);
        counters.bytes_in.add(1);
        let record = new.record(token, &counters, 60);
        assert_eq!(record.notes, notes);
        assert_eq!(record.traffic, Traffic { bytes_in: 11, messages_out: 2, ..Traffic::default() });
        assert_eq!((record.began, record.age), (60, 4_010));
        let asked = record.asked.as_ref().unwrap();
        assert_eq!((asked.method.as_str(), &*asked.path, asked.user_agent.as_deref()), ("GET", "/chat", Some("test")));
        for len in 0..saved.len() {
            new.take(token);
            new.restore(token, &counters, (60, 10), &saved[..len]);
            assert!(new.record(token, &counters, 0).asked.is_none(), "{len}");
        }
    }

    #[test]
    fn texts_of_clients_are_bounded() {
        let path = format!("/{}", "x".repeat(9_000));
        let request = Request::get(&path).header("user-agent", &path).method(&*"M".repeat(9_000)).body(()).unwrap();
        let asked = Asked::new(&request);
        assert_eq!((asked.method.as_str().len(), asked.len()), (MOST_TEXT, 3 * MOST_TEXT));
        let request = Request::builder().method("PURGE").uri("/").body(()).unwrap();
        assert_eq!(Asked::new(&request).method, "PURGE");
    }
}
