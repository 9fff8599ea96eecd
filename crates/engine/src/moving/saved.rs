//! A connection as bytes, or a pair of them, on its way from one process to another.
//!
//! The format begins with its version. The number of connections follows, one or two: those of a pair move together, or not at
//! all. A build reads all versions from `OLDEST` up to its own, and refuses others. A field
//! that an older version lacks is read by `since`. Integers are big-endian. Each field of variable length has its length in front, in four bytes.

use http::StatusCode;
use std::fmt;
use std::io;
use tautline_buf::fields::{put, put_len, take, take_array, take_len, take_u64};
use tautline_conn::phase::Finish;
use tautline_conn::queue::{Drops, Item};
use tautline_ws::Kind;
use zeroize::{Zeroize, Zeroizing};

/// The version of the format that this build writes for connections that [move](crate::Shard::save).
///
/// It includes the formats of what is within: a change of one of those raises it, too.
pub const SAVED_FORMAT: u8 = 5;
/// The oldest version that this build reads: no release had an older one.
const OLDEST: u8 = 3;
/// The first version with a number of connections. Before it there was always one.
const COUNTED: u8 = 5;
/// Most topics, prefixes, timers and messages that are read of each. The bytes bound the memory before this does.
const MOST: usize = 1 << 20;

/// All that goes along with a connection, beside its socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    /// The peer's address as text.
    pub(crate) peer: String,
    /// The TLS session, empty without TLS.
    pub(crate) session: Secret,
    pub(crate) decoder: Vec<u8>,
    pub(crate) encoder: u8,
    /// Bytes from the peer that were not opened.
    pub(crate) received: Vec<u8>,
    /// Sealed bytes that the kernel has not taken.
    pub(crate) unsent: Vec<u8>,
    /// Frames that are not sealed.
    pub(crate) cork: Vec<u8>,
    /// Messages that are not framed.
    pub(crate) queue: Vec<Waiting>,
    /// The kind of the streamed message that the application has begun.
    pub(crate) streaming: Option<Kind>,
    /// The application pauses reading.
    pub(crate) paused: bool,
    /// `on_drain` is to be called once nothing waits.
    pub(crate) drain_owed: bool,
    /// A ping was sent since the peer's last input.
    pub(crate) ping_sent: bool,
    /// Milliseconds since the last input and the last message.
    pub(crate) silent: [u64; 2],
    pub(crate) subprotocol: Option<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) prefixes: Vec<String>,
    /// Identifiers of timers, and the milliseconds until they are due.
    pub(crate) timers: Vec<(u64, u64)>,
    /// The application's state.
    pub(crate) state: Vec<u8>,
    /// The parameters of permessage-deflate.
    pub(crate) deflate: Option<u8>,
    /// The entry of the access log. Empty without one.
    pub(crate) access: Vec<u8>,
    /// Bytes from the peer that were opened and not processed, before `received`.
    pub(crate) plain: Vec<u8>,
    /// The client's way, if it is not the socket's peer: that peer as text, and the header of the PROXY protocol, empty without one.
    pub(crate) via: Option<(String, Vec<u8>)>,
    /// The part of its life.
    pub(crate) life: Life,
    /// Where it leads, if this process has opened it.
    pub(crate) outgoing: Option<Outgoing>,
}

/// The part of its life in which a connection moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its WebSocket is open.
    #[default]
    Open,
    /// A server awaits the next request. The numbers are milliseconds: for plain HTTP altogether, and for this request.
    Idle([u64; 2]),
    /// Its bytes are the application's.
    Raw(SavedRaw),
}

/// A connection whose bytes are the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedRaw {
    pub(crate) ours: Finish,
    pub(crate) peer_finished: bool,
    /// The end of the peer's direction, behind bytes that are held back.
    pub(crate) late: Option<bool>,
    /// The status of the response, for the access log.
    pub(crate) status: Option<StatusCode>,
    /// Whether it can be given back to HTTP.
    pub(crate) is_http: bool,
}

/// The target of an outgoing connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) uri: String,
    /// Milliseconds without a message after which it is closed, if it has such a time of its own.
    pub(crate) silence: Option<u64>,
    /// Whether another connection follows if it is lost. The application then has to name the target in the new process.
    pub(crate) reconnects: bool,
    /// Milliseconds since it was opened.
    pub(crate) opened: u64,
}

/// Bytes that are wiped on drop, and shown by their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) Vec<u8>);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A message that waits for a slow peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
    pub(crate) part: Part,
    pub(crate) drops: Drops,
    pub(crate) compress: bool,
    pub(crate) key: Option<u64>,
}

/// The part of a message that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Piece,
    LastPiece,
}

/// Replaces `out` by connections that move together as bytes. It does not grow: a larger one takes its place, so that no copy
/// stays behind.
pub(crate) fn encode_into(all: &[Saved], out: &mut Zeroizing<Vec<u8>>) {
    let room = 2 + all.iter().map(Saved::room).sum::<usize>();
    out.clear();
    if out.capacity() < room {
        *out = Zeroizing::new(Vec::with_capacity(room));
    }
    out.extend([SAVED_FORMAT, u8::try_from(all.len()).unwrap_or(u8::MAX)]);
    all.iter().for_each(|saved| saved.write(out));
}

/// Reads bytes that [`encode_into`] made: one connection, or two that move together.
///
/// # Errors
/// The bytes are not exactly that, or of a version that this build does not read.
pub(crate) fn decode(bytes: &[u8]) -> io::Result<Vec<Saved>> {
    decode_from(OLDEST, bytes)
}

/// The number of sockets that belong to saved bytes.
///
/// [`Shard::restore`](crate::Shard::restore) says whether the bytes are good for anything.
#[must_use]
pub const fn sockets_of(saved: &[u8]) -> usize {
    match saved {
        [version, 2, ..] if *version >= COUNTED => 2,
        _ => 1,
    }
}

fn decode_from(oldest: u8, bytes: &[u8]) -> io::Result<Vec<Saved>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    match bytes.first() {
        Some(version) if !(oldest..=SAVED_FORMAT).contains(version) => Err(invalid(format!(
            "the saved connection has format {version}, and this build reads {oldest} to {SAVED_FORMAT}"
        ))),
        _ => {
            let mut rest = bytes;
            let read = read_all(&mut rest).filter(|_| rest.is_empty());
            read.ok_or_else(|| invalid("the bytes are no saved connection".to_owned()))
        }
    }
}

fn read_all(rest: &mut &[u8]) -> Option<Vec<Saved>> {
    let [version] = *take_array(rest)?;
    let count = if version < COUNTED { 1 } else { take_array::<1>(rest)?[0] };
    if !matches!(count, 1 | 2) {
        return None;
    }
    (0..count).map(|_| Saved::read(version, rest)).collect()
}

impl Saved {
    /// At least the bytes that it takes.
    fn room(&self) -> usize {
        let waiting: usize = self.queue.iter().map(|item| item.payload.len() + 32).sum();
        let names: usize = self.topics.iter().chain(&self.prefixes).map(|name| name.len() + 4).sum();
        let fixed = 320
            + self.outgoing.as_ref().map_or(0, |outgoing| outgoing.uri.len())
            + self.peer.len()
            + self.access.len()
            + self.plain.len()
            + self.via.as_ref().map_or(0, |(direct, header)| direct.len() + header.len() + 9)
            + self.subprotocol.as_ref().map_or(0, String::len)
            + 16 * self.timers.len();
        fixed + waiting + names + self.bytes().iter().map(|bytes| bytes.len()).sum::<usize>()
    }

    /// The fields that are byte strings, in their order.
    const fn bytes(&self) -> [&Vec<u8>; 6] {
        [&self.session.0, &self.decoder, &self.received, &self.unsent, &self.cork, &self.state]
    }

    fn write(&self, out: &mut Vec<u8>) {
        let streams = self.streaming.is_some();
        let text = self.streaming == Some(Kind::Text);
        let flags = [
            self.paused,
            self.drain_owed,
            self.ping_sent,
            streams,
            text,
            self.subprotocol.is_some(),
            self.deflate.is_some(),
            !self.plain.is_empty(),
        ];
        out.extend([bits(&flags), self.encoder]);
        for silent in self.silent {
            out.extend(silent.to_be_bytes());
        }
        put(self.peer.as_bytes(), out);
        put(self.subprotocol.as_deref().unwrap_or_default().as_bytes(), out);
        for field in self.bytes() {
            put(field, out);
        }
        put_len(self.queue.len(), out);
        for Waiting { kind, payload, part, drops, compress, key } in &self.queue {
            let flags = bits(&[*kind == Kind::Text, *compress, key.is_some()]);
            out.extend([flags, *part as u8, *drops as u8]);
            out.extend(key.unwrap_or_default().to_be_bytes());
            put(payload, out);
        }
        for names in [&self.topics, &self.prefixes] {
            put_len(names.len(), out);
            names.iter().for_each(|name| put(name.as_bytes(), out));
        }
        put_len(self.timers.len(), out);
        for (id, due) in &self.timers {
            out.extend(id.to_be_bytes());
            out.extend(due.to_be_bytes());
        }
        out.extend(self.deflate);
        put(&self.access, out);
        if !self.plain.is_empty() {
            put(&self.plain, out);
        }
        out.push(u8::from(self.via.is_some()));
        if let Some((direct, header)) = &self.via {
            put(direct.as_bytes(), out);
            put(header, out);
        }
        self.life.write(out);
        out.push(u8::from(self.outgoing.is_some()));
        self.outgoing.iter().for_each(|outgoing| outgoing.write(out));
    }

    fn read(version: u8, rest: &mut &[u8]) -> Option<Self> {
        let [flags, encoder] = *take_array(rest)?;
        let flag = |bit: u8| flags >> bit & 1 == 1;
        let silent = [take_u64(rest)?, take_u64(rest)?];
        let (peer, subprotocol) = (text(rest)?, text(rest)?);
        let [session, decoder, received, unsent, cork, state] = [
            take(rest)?.to_vec(),
            take(rest)?.to_vec(),
            take(rest)?.to_vec(),
            take(rest)?.to_vec(),
            take(rest)?.to_vec(),
            take(rest)?.to_vec(),
        ];
        let kind = |text: bool| if text { Kind::Text } else { Kind::Binary };
        Some(Self {
            peer,
            session: Secret(session),
            decoder,
            encoder,
            received,
            unsent,
            cork,
            queue: list(rest, Waiting::read)?,
            streaming: flag(3).then(|| kind(flag(4))),
            paused: flag(0),
            drain_owed: flag(1),
            ping_sent: flag(2),
            silent,
            subprotocol: flag(5).then_some(subprotocol),
            topics: list(rest, text)?,
            prefixes: list(rest, text)?,
            timers: list(rest, |rest| Some((take_u64(rest)?, take_u64(rest)?)))?,
            state,
            deflate: if flag(6) { Some(take_array::<1>(rest)?[0]) } else { None },
            access: since(3, version, || Some(take(rest)?.to_vec()))?,
            plain: if flag(7) { take(rest)?.to_vec() } else { Vec::new() },
            via: since(4, version, || match take_array(rest)? {
                [0] => Some(None),
                [1] => Some(Some((text(rest)?, take(rest)?.to_vec()))),
                _ => None,
            })?,
            life: since(COUNTED, version, || Life::read(rest))?,
            outgoing: since(COUNTED, version, || match take_array(rest)? {
                [0] => Some(None),
                [1] => Some(Some(Outgoing::read(rest)?)),
                _ => None,
            })?,
        })
    }
}

impl Life {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open => out.push(0),
            Self::Idle(left) => {
                out.push(1);
                left.iter().for_each(|left| out.extend(left.to_be_bytes()));
            }
            Self::Raw(SavedRaw { ours, peer_finished, late, status, is_http }) => {
                let ours = match ours {
                    Finish::AfterPeer => 0,
                    Finish::Wanted => 1,
                    Finish::Abandoned => 2,
                    Finish::Done => 3,
                };
                let flags = bits(&[*peer_finished, late.is_some(), *late == Some(true), *is_http]);
                out.extend([2, ours, flags]);
                out.extend(status.map_or(0, |status| status.as_u16()).to_be_bytes());
            }
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        Some(match take_array(rest)? {
            [0] => Self::Open,
            [1] => Self::Idle([take_u64(rest)?, take_u64(rest)?]),
            [2] => {
                let [ours @ 0..4, flags @ 0..16, status @ ..] = *take_array::<4>(rest)? else { return None };
                let status = match u16::from_be_bytes(status) {
                    0 => None,
                    status => Some(StatusCode::from_u16(status).ok()?),
                };
                let late = match flags >> 1 & 3 {
                    0 => None,
                    1 => Some(false),
                    3 => Some(true),
                    _ => return None,
                };
                Self::Raw(SavedRaw {
                    ours: [Finish::AfterPeer, Finish::Wanted, Finish::Abandoned, Finish::Done][usize::from(ours)],
                    peer_finished: flags & 1 == 1,
                    late,
                    status,
                    is_http: flags & 8 == 8,
                })
            }
            _ => return None,
        })
    }
}

impl Outgoing {
    fn write(&self, out: &mut Vec<u8>) {
        put(self.uri.as_bytes(), out);
        out.push(bits(&[self.silence.is_some(), self.reconnects]));
        out.extend(self.silence.unwrap_or_default().to_be_bytes());
        out.extend(self.opened.to_be_bytes());
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let uri = text(rest)?;
        let [flags @ 0..4] = *take_array(rest)? else { return None };
        let (silence, opened) = (take_u64(rest)?, take_u64(rest)?);
        Some(Self { uri, silence: (flags & 1 == 1).then_some(silence), reconnects: flags & 2 == 2, opened })
    }
}

impl Waiting {
    pub(crate) fn new(item: &Item, drops: Drops) -> Self {
        let (kind, payload, part) = match item {
            Item::Message { kind, payload, .. } => (*kind, &**payload, Part::Whole),
            Item::Shared(message) => (message.message.kind(), message.message.payload(), Part::Whole),
            Item::Fragment { kind, payload, last } => {
                (*kind, &**payload, if *last { Part::LastPiece } else { Part::Piece })
            }
        };
        let (compress, key) = match item {
            Item::Message { compress, key, .. } => (*compress, *key),
            Item::Shared(message) => (message.compress, message.key),
            Item::Fragment { .. } => (false, None),
        };
        Self { kind, payload: payload.to_vec(), part, drops, compress, key }
    }

    pub(crate) fn item(&self) -> Item {
        let (kind, payload) = (self.kind, self.payload.as_slice().into());
        match self.part {
            Part::Whole => Item::Message { kind, payload, compress: self.compress, key: self.key },
            Part::Piece | Part::LastPiece => Item::Fragment { kind, payload, last: self.part == Part::LastPiece },
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let [flags @ 0..8, part, drops] = *take_array(rest)? else { return None };
        let key = take_u64(rest)?;
        Some(Self {
            kind: if flags & 1 == 1 { Kind::Text } else { Kind::Binary },
            compress: flags & 2 == 2,
            key: (flags & 4 == 4).then_some(key),
            part: match part {
                0 => Part::Whole,
                1 => Part::Piece,
                2 => Part::LastPiece,
                _ => return None,
            },
            drops: match drops {
                0 => Drops::Never,
                1 => Drops::Oldest,
                2 => Drops::Key,
                _ => return None,
            },
            payload: take(rest)?.to_vec(),
        })
    }
}

/// Reads a field that formats have from version `first` on. An older connection has its default.
fn since<T: Default>(first: u8, version: u8, read: impl FnOnce() -> Option<T>) -> Option<T> {
    if version >= first { read() } else { Some(T::default()) }
}

fn bits(flags: &[bool]) -> u8 {
    flags.iter().enumerate().fold(0, |all, (bit, &set)| all | u8::from(set) << bit)
}

fn text(rest: &mut &[u8]) -> Option<String> {
    str::from_utf8(take(rest)?).ok().map(str::to_owned)
}

/// Reads a list. Each entry takes at least a byte, so a false number allocates nothing.
fn list<T>(rest: &mut &[u8], mut read: impl FnMut(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = take_len(rest).filter(|&count| count <= MOST)?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(read(rest)?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::{Life, Outgoing, Part, SAVED_FORMAT, Saved, SavedRaw, Secret, Waiting};
    use super::{decode, decode_from, encode_into, sockets_of};
    use http::StatusCode;
    use tautline_conn::phase::Finish;
    use tautline_conn::queue::Drops;
    use tautline_ws::Kind;
    use zeroize::Zeroizing;

    /// A connection as each version from `OLDEST` on wrote it. Later builds must read all of them.
    const VERSION_3: &[u8] = include_bytes!("../../tests/data/saved_connection_3.bin");
    const VERSION_4: &[u8] = include_bytes!("../../tests/data/saved_connection_4.bin");
    /// From version 5 on, it is a pair.
    const VERSION_5: &[u8] = include_bytes!("../../tests/data/saved_connection_5.bin");

    fn encode(all: &[Saved]) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::default();
        encode_into(all, &mut out);
        out
    }

    /// A connection without what version 5 has added.
    fn before_5() -> Saved {
        Saved { life: Life::Open, outgoing: None, ..full() }
    }

    fn pair() -> [Saved; 2] {
        let client = Saved { life: Life::Raw(raw(Finish::AfterPeer, None)), outgoing: None, ..full() };
        [client, Saved { queue: Vec::new(), topics: Vec::new(), ..full() }]
    }

    fn raw(ours: Finish, late: Option<bool>) -> SavedRaw {
        SavedRaw { ours, peer_finished: true, late, status: Some(StatusCode::SWITCHING_PROTOCOLS), is_http: true }
    }

    fn full() -> Saved {
        let waiting = |part, drops, key| Waiting {
            kind: Kind::Text,
            payload: b"later".to_vec(),
            part,
            drops,
            compress: true,
            key,
        };
        Saved {
            peer: "192.0.2.7:50000".into(),
            session: Secret(vec![7; 40]),
            decoder: vec![1, 0, 0, 0],
            encoder: 6,
            received: b"half a record".to_vec(),
            unsent: b"sealed".to_vec(),
            cork: b"frames".to_vec(),
            queue: vec![
                waiting(Part::Whole, Drops::Key, Some(9)),
                waiting(Part::Whole, Drops::Oldest, None),
                waiting(Part::Piece, Drops::Never, None),
                waiting(Part::LastPiece, Drops::Never, None),
            ],
            streaming: Some(Kind::Text),
            paused: true,
            drain_owed: true,
            ping_sent: true,
            silent: [1_000, 60_000],
            subprotocol: Some("chat".into()),
            topics: vec!["room".into(), "\u{fc}".into()],
            prefixes: vec!["prices.".into()],
            timers: vec![(3, 250), (u64::MAX, 0)],
            state: b"of the application".to_vec(),
            deflate: Some(0xe5),
            access: b"an entry".to_vec(),
            plain: b"the rest of a record".to_vec(),
            via: Some(("10.0.0.1:4711".into(), b"header".to_vec())),
            life: Life::Raw(raw(Finish::Wanted, Some(true))),
            outgoing: Some(Outgoing {
                uri: "wss://app.example:8443/".into(),
                silence: Some(20_000),
                reconnects: true,
                opened: 3_600_000,
            }),
        }
    }

    #[test]
    fn decode_reverses_encode() {
        let small = Saved {
            streaming: None,
            subprotocol: None,
            queue: Vec::new(),
            deflate: None,
            plain: Vec::new(),
            via: None,
            ..full()
        };
        for saved in [full(), small, before_5(), Saved { peer: "unix:".into(), ..Saved::default() }] {
            let bytes = encode(std::slice::from_ref(&saved));
            assert!(bytes.len() <= bytes.capacity());
            assert_eq!((decode(&bytes).unwrap(), sockets_of(&bytes)), (vec![saved], 1));
        }
        let bytes = encode(&pair());
        assert_eq!((decode(&bytes).unwrap(), sockets_of(&bytes)), (pair().to_vec(), 2));
        assert!(decode(&encode(&[])).is_err() && decode(&encode(&[full(), full(), full()])).is_err());
    }

    #[test]
    fn each_part_of_its_life_is_read_as_it_was_written() {
        let finishes = [Finish::AfterPeer, Finish::Wanted, Finish::Abandoned, Finish::Done];
        let lates = [None, Some(false), Some(true)];
        let raws = finishes.into_iter().flat_map(|ours| lates.map(|late| Life::Raw(raw(ours, late))));
        let bare = SavedRaw { ours: Finish::Done, peer_finished: false, late: None, status: None, is_http: false };
        for life in raws.chain([Life::Open, Life::Idle([60_000, 7]), Life::Raw(bare)]) {
            let saved = Saved { life, ..full() };
            assert_eq!(decode(&encode(std::slice::from_ref(&saved))).unwrap(), [saved]);
        }
    }

    #[test]
    fn no_byte_is_copied_by_growing() {
        let saved = pair();
        let bytes = encode(&saved);
        let room = bytes.capacity();
        assert!(room >= bytes.len() && room < bytes.len() + 1024, "{room} for {}", bytes.len());
        let mut again = bytes.clone();
        again.reserve(room);
        let (at, room) = (again.as_ptr(), again.capacity());
        encode_into(&saved, &mut again);
        assert!(again == bytes && again.as_ptr() == at && again.capacity() == room);
    }

    #[test]
    fn this_build_reads_all_versions_and_writes_the_latest() {
        assert_eq!(decode(VERSION_3).unwrap(), [Saved { via: None, ..before_5() }]);
        assert_eq!(decode(VERSION_4).unwrap(), [before_5()]);
        assert_eq!([VERSION_3, VERSION_4, VERSION_5].map(sockets_of), [1, 1, 2]);
        assert_eq!(decode(VERSION_5).unwrap(), pair());
        assert!(
            *encode(&pair()) == VERSION_5,
            "the format has changed: raise its version, and keep what it wrote here"
        );
    }

    /// No build has written version 2 as it is here: it stands for any older one.
    #[test]
    fn fields_that_an_older_version_lacks_have_their_defaults() {
        let saved = Saved { access: Vec::new(), plain: Vec::new(), via: None, ..before_5() };
        let mut old = encode(std::slice::from_ref(&saved)).to_vec();
        // Without the length of `access`, and without the bytes of `via`, `life` and `outgoing` behind it.
        old.truncate(old.len() - 7);
        old[0] = 2;
        old.remove(1);
        assert_eq!(decode_from(2, &old).unwrap(), [saved]);
        assert!(decode(&old).unwrap_err().to_string().contains("this build reads 3 to 5"));
    }

    #[test]
    fn other_bytes_are_errors() {
        let bytes = encode(&pair());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        let later = [&[SAVED_FORMAT + 1], &bytes[1..]].concat();
        assert!(decode(&later).unwrap_err().to_string().contains("this build reads"));
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        let mut seed = 7_u64;
        let mut random = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % bound
        };
        for _ in 0..20_000 {
            let mut changed = bytes.to_vec();
            for _ in 0..=random(3) {
                let at = random(changed.len());
                changed[at] = random(256).to_le_bytes()[0];
            }
            // It is refused, or read as what it says now.
            if let Ok(saved) = decode(&changed) {
                assert!(decode(&encode(&saved)).is_ok_and(|again| again == saved));
            }
        }
    }
}
