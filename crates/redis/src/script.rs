//! The scripts by which a topic's messages are stored and read, each in one step.
//!
//! A server that is restarted, or another one that has taken its place, may have lost messages. So a topic's state names the
//! process that stored its last message. A script that meets another one asks for a look at that: whether it has kept all
//! messages. If it has not, the topic gets another epoch.

use crate::config::RedisConfig;
use crate::connect::{Link, field};
use crate::keys;
use redis::{RedisError, Script, Value, cmd};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};
use tautline_hub::{Append, Entry, Kind, Page, Position};

/// Most messages of a page.
const PAGE: usize = 256;
/// Most bytes of a page, beside one message.
const PAGE_BYTES: usize = 256 << 10;
/// Most processes whose kind is remembered.
const MOST_LOOKS: usize = 64;
/// Times that a script is called again after a look, or the process would have changed each time.
const LOOKS: usize = 3;
/// The largest offset.
const MOST_OFFSET: u64 = (1 << 53) - 1;

static APPEND: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("script.lua"), include_str!("append.lua"))));
static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("script.lua"), include_str!("read.lua"))));

/// The result of a script that reads.
#[derive(Debug)]
pub(crate) struct Found {
    /// The last message of the topic, and its epoch.
    pub(crate) at: Position,
    /// The messages that were asked for; `None` if some of them are not kept any more.
    pub(crate) page: Option<Page>,
}

/// Calls scripts over one connection.
#[derive(Clone)]
pub(crate) struct Scripts {
    link: Link,
    config: Arc<RedisConfig>,
    /// Processes, and whether each has kept all messages of the one before it.
    looks: Arc<Mutex<HashMap<String, bool>>>,
}

impl Scripts {
    pub(crate) fn new(link: Link, config: Arc<RedisConfig>) -> Self {
        Self { link, config, looks: Arc::default() }
    }

    /// Stores a message. Returns its place.
    pub(crate) async fn append(&self, topic: &str, append: &Append) -> Result<Position, RedisError> {
        let retention = &self.config.retention;
        let (kind, age) = match append.kind {
            Kind::Latest => ("latest", retention.latest),
            _ => ("history", retention.age),
        };
        let (key, id) = (append.key.as_deref(), append.id.as_deref());
        let flag = |is: bool| if is { "1" } else { "0" };
        let most = retention.entries.to_string();
        let [age, ids] = [age, retention.ids].map(|time| time.as_millis().max(1).to_string());
        let arguments = [
            kind,
            &append.data,
            flag(key.is_some()),
            key.unwrap_or_default(),
            flag(id.is_some()),
            id.unwrap_or_default(),
            &most,
            &age,
            &ids,
        ];
        let answer = self.call(&APPEND, topic, &arguments).await?;
        position(&answer).ok_or_else(|| wrong(&answer))
    }

    /// Reads a page of messages after an offset. If that is from a message of `epoch`, it is known to exist.
    pub(crate) async fn read(&self, topic: &str, after: Option<u64>, epoch: Option<&str>) -> Result<Found, RedisError> {
        self.read_most(topic, after, epoch, PAGE).await
    }

    /// The last message of a topic.
    pub(crate) async fn end(&self, topic: &str) -> Result<Position, RedisError> {
        Ok(self.read_most(topic, None, None, 0).await?.at)
    }

    async fn read_most(
        &self,
        topic: &str,
        after: Option<u64>,
        epoch: Option<&str>,
        most: usize,
    ) -> Result<Found, RedisError> {
        // An offset that a client made up may be any number.
        let number = after.map(|after| after.min(MOST_OFFSET).to_string()).unwrap_or_default();
        let (most, bytes) = (most.to_string(), PAGE_BYTES.to_string());
        let answer = self.call(&READ, topic, &[&number, epoch.unwrap_or_default(), &most, &bytes]).await?;
        found(topic, after, &answer).ok_or_else(|| wrong(&answer))
    }

    async fn call(&self, script: &Script, topic: &str, arguments: &[&str]) -> Result<Vec<Value>, RedisError> {
        let keys = keys::of_log(&self.config.prefix, topic);
        let epoch = tautline_hub::backend::random_name();
        let mut link = self.link.clone();
        let (mut process, mut is_kept) = (String::new(), false);
        for _ in 0..LOOKS {
            let mut call = script.prepare_invoke();
            keys.iter().for_each(|key| _ = call.key(key));
            call.arg(&epoch).arg(&process).arg(if is_kept { "kept" } else { "lost" });
            arguments.iter().for_each(|argument| _ = call.arg(argument));
            let answer: Vec<Value> = call.invoke_async(&mut link).await?;
            match answer.first().and_then(text) {
                Some("look") => {
                    process = answer.get(1).and_then(text).unwrap_or_default().to_owned();
                    let known = self.looks.lock().unwrap_or_else(PoisonError::into_inner).get(&process).copied();
                    is_kept = match known {
                        Some(is_kept) => is_kept,
                        None => self.look(&mut link, &keys[0], &process).await?,
                    };
                }
                _ => return Ok(answer),
            }
        }
        Err(RedisError::from((redis::ErrorKind::Client, "the server was replaced again and again")))
    }

    /// Whether this process has all messages that were stored before it began.
    async fn look(&self, link: &mut Link, key: &str, process: &str) -> Result<bool, RedisError> {
        let mut info = String::new();
        for section in ["server", "replication", "persistence"] {
            let part = link.ask_holder(cmd("INFO").arg(section), key).await?;
            info += &redis::from_redis_value::<String>(part)?;
        }
        let now = [field(&info, "run_id"), field(&info, "master_replid")].map(Option::unwrap_or_default).concat();
        if now != process {
            // The script asks again.
            return Ok(false);
        }
        let policy = match link.ask_holder(cmd("CONFIG").arg("GET").arg("appendfsync"), key).await {
            Ok(policy) => redis::from_redis_value::<HashMap<String, String>>(policy)?.remove("appendfsync"),
            Err(error) if error.is_io_error() => return Err(error),
            Err(error) => {
                static WARNING: Once = Once::new();
                WARNING.call_once(|| {
                    log::warn!(
                        "Redis does not tell its appendfsync, so each restart counts as a loss of messages: {error}"
                    );
                });
                None
            }
        };
        let has_all = has_all(&info, policy.as_deref());
        if !has_all {
            log::warn!(
                "Redis was restarted without `appendonly yes` and `appendfsync always`, or another server has taken its place: \
                 topics begin another epoch, and clients that return are told that they are late"
            );
        }
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() >= MOST_LOOKS {
            looks.clear();
        }
        looks.insert(process.to_owned(), has_all);
        Ok(has_all)
    }
}

/// Whether a server that says this had all messages when it began: it keeps each one on its disk before it answers, and it was no
/// replica, which may lack the last ones of its master.
fn has_all(info: &str, appendfsync: Option<&str>) -> bool {
    let was_replica = field(info, "master_replid2").is_none_or(|id| id.bytes().any(|byte| byte != b'0'));
    field(info, "aof_enabled") == Some("1") && appendfsync == Some("always") && !was_replica
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The epoch and offset of an answer.
fn position(answer: &[Value]) -> Option<Position> {
    Some(Position { epoch: answer.get(1).and_then(text)?.into(), offset: answer.get(2).and_then(text)?.parse().ok()? })
}

fn found(topic: &str, after: Option<u64>, answer: &[Value]) -> Option<Found> {
    let at = position(answer)?;
    if answer.first().and_then(text)? == "late" {
        return Some(Found { at, page: None });
    }
    let is_all = answer.get(3).and_then(text)? == "1";
    let mut entries = Vec::new();
    let mut upto = after.unwrap_or_default();
    for parts in answer.get(4..)?.chunks_exact(4) {
        let [offset, has_key, key, data] = parts else { return None };
        let offset = text(offset)?.parse().ok()?;
        upto = offset;
        let key = if text(has_key) == Some("1") { Some(text(key)?) } else { None };
        let Value::BulkString(data) = data else { return None };
        entries.extend(entry(topic, offset, key, data));
    }
    let offset = if is_all { upto.max(at.offset) } else { upto };
    let upto = Position { offset, ..at.clone() };
    Some(Found { at, page: Some(Page { entries, upto }) })
}

/// A message; `None` if it is no JSON. Programs beside the hub may write, too.
pub(crate) fn entry(topic: &str, offset: u64, key: Option<&str>, data: &[u8]) -> Option<Entry> {
    // Anything else would become a part of the hub's own JSON object.
    let Ok(data) = serde_json::from_slice::<&serde_json::value::RawValue>(data) else {
        // Each reader of the topic meets it again.
        static WARNING: Once = Once::new();
        WARNING.call_once(|| log::warn!("messages that are no JSON are left out; the first is in topic {topic:?}"));
        return None;
    };
    Some(Entry { offset, key: key.map(Into::into), data: data.get().into() })
}

fn wrong(answer: &[Value]) -> RedisError {
    log::debug!("a script's answer is of another form: {answer:?}");
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, "a script's answer is of another form"))
}

/// A message as it comes from a topic's channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct News<'n> {
    pub(crate) epoch: &'n str,
    /// The offset of the message before it.
    pub(crate) before: u64,
    pub(crate) offset: u64,
    pub(crate) key: Option<&'n str>,
    pub(crate) data: &'n [u8],
}

impl<'n> News<'n> {
    pub(crate) fn parse(payload: &'n [u8]) -> Option<Self> {
        let end = payload.iter().position(|byte| *byte == b'\n')?;
        let mut head = std::str::from_utf8(&payload[..end]).ok()?.split(' ');
        let (epoch, before, offset) = (head.next()?, head.next()?.parse().ok()?, head.next()?.parse().ok()?);
        let len: i64 = head.next()?.parse().ok()?;
        let rest = &payload[end + 1..];
        let Ok(len) = usize::try_from(len) else { return Some(Self { epoch, before, offset, key: None, data: rest }) };
        let (key, data) = rest.split_at_checked(len)?;
        Some(Self { epoch, before, offset, key: Some(std::str::from_utf8(key).ok()?), data })
    }
}

#[cfg(test)]
mod tests {
    use super::{News, has_all};

    #[test]
    fn news_are_parsed_and_garbage_is_none() {
        let news = |key, data| News { epoch: "e", before: 1, offset: 2, key, data };
        assert_eq!(News::parse(b"e 1 2 -1\n[1]"), Some(news(None, b"[1]")));
        assert_eq!(News::parse(b"e 1 2 0\n[1]"), Some(news(Some(""), b"[1]")));
        assert_eq!(News::parse(b"e 1 2 3\nk\nk1"), Some(news(Some("k\nk"), b"1")));
        for garbage in [&b""[..], b"\n", b"e 1 2 9\nk", b"e 1 x -1\n", b"e 1 2\n1", b"\xff 1 2 -1\n1"] {
            assert_eq!(News::parse(garbage), None);
        }
    }

    #[test]
    fn only_a_server_that_stores_before_it_answers_has_all_messages() {
        let info = |aof: u8, id: &str| format!("aof_enabled:{aof}\r\nmaster_replid2:{id}\r\n");
        let own = "0000000000000000000000000000000000000000";
        assert!(has_all(&info(1, own), Some("always")));
        assert!(!has_all(&info(1, own), Some("everysec")));
        assert!(!has_all(&info(1, own), None));
        assert!(!has_all(&info(0, own), Some("always")));
        assert!(!has_all(&info(1, "00a0"), Some("always")), "a replica that became a master");
        assert!(!has_all("", Some("always")));
    }
}
