use super::access::{Access, Clients, Form, Refusal, Use};
use super::event::{End, Fault, Mark, Out, Payload, Planted};
use crate::book::Book;
use crate::pace::Pace;
use crate::request::{self, Channel, Stream};
use crate::setup::Setup;
use crate::window::Window;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use tautline_measure::SplitMix;

/// A venue in its own time, which the caller tells it.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use std::time::Duration;
/// use tautline_venue::{Access, Kind, Out, Payload, Setup, Venue};
///
/// let mut venue = Venue::new(Setup::new(Kind::Binance, vec!["BTCUSDT".to_owned()]));
/// let access = Access { address: IpAddr::V4(Ipv4Addr::LOCALHOST), path: "/ws", query: "", has_key: false };
/// venue.admit(&access, Duration::ZERO).unwrap();
/// venue.open(1, &access, Duration::ZERO);
/// venue.receive(1, br#"{"method":"SUBSCRIBE","params":["btcusdt@trade"],"id":7}"#, Duration::ZERO);
/// let Some(Out::Message { payload: Payload::Text(text), .. }) = venue.poll_out() else { panic!("it confirms") };
/// assert_eq!(text, r#"{"result":null,"id":7}"#);
/// venue.advance(Duration::from_millis(500));
/// let Some(Out::Message { payload: Payload::Text(text), .. }) = venue.poll_out() else { panic!("it has trades") };
/// assert!(text.starts_with(r#"{"e":"trade""#));
/// ```
#[derive(Debug)]
pub struct Venue {
    pub(super) setup: Setup,
    pub(super) books: Vec<Book>,
    /// The last number of a trade, by symbols.
    pub(super) trades: Vec<u64>,
    pub(super) places: HashMap<String, usize>,
    pub(super) links: BTreeMap<u32, Link>,
    /// Connections of each stream, with their names of it.
    pub(super) followers: BTreeMap<(Channel, usize), BTreeMap<u32, String>>,
    pub(super) clients: Clients,
    pub(super) planted: Vec<Planted>,
    out: VecDeque<Out>,
    bans: u64,
    pub(super) random: SplitMix,
    pub(super) pace: Pace,
    /// When the next message of the market is due.
    pub(super) market_at: Duration,
    pub(super) tick_at: Duration,
    pub(super) is_resting: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: IpAddr,
    pub(super) form: Form,
    pub(super) opened_at: Duration,
    /// Nothing arrives any more in either direction, and nobody is told.
    pub(super) is_dead: bool,
    pub(super) subs: BTreeSet<(Channel, usize)>,
    /// The number of the next message (Coinbase).
    pub(super) number: u64,
    /// A message that goes out behind the next one.
    pub(super) held: Option<(Payload, Mark)>,
    sends: Window,
}

impl Venue {
    /// A venue whose time begins at 0.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let mut random = SplitMix(setup.seed);
        let shape = setup.shape();
        let books = setup.symbols.iter().map(|_| Book::new(&mut random, shape)).collect();
        let trades = setup.symbols.iter().map(|_| random.next() % (1 << 40) + 10).collect();
        let places = setup.symbols.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
        let pace = Pace::new(random.next());
        Self {
            setup,
            books,
            trades,
            places,
            links: BTreeMap::new(),
            followers: BTreeMap::new(),
            clients: Clients::default(),
            planted: Vec::new(),
            out: VecDeque::new(),
            bans: 0,
            random,
            pace,
            market_at: Duration::ZERO,
            tick_at: Duration::from_secs(1),
            is_resting: false,
        }
    }

    /// The settings.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Begins or ends planting faults.
    pub const fn set_faults(&mut self, has_faults: bool) {
        self.setup.has_faults = has_faults;
    }

    /// Stops the market of [`advance`](Self::advance), so that clients can be compared, or lets it go on.
    pub const fn set_resting(&mut self, is_resting: bool) {
        self.is_resting = is_resting;
    }

    /// The book of the symbol at this place of [`Setup::symbols`].
    #[must_use]
    pub fn book(&self, symbol: usize) -> Option<&Book> {
        self.books.get(symbol)
    }

    /// Whether a connection is unknown, or stalled by a planted fault.
    #[must_use]
    pub fn is_dead(&self, link: u32) -> bool {
        self.links.get(&link).is_none_or(|link| link.is_dead)
    }

    /// Connections that are open.
    #[must_use]
    pub fn open_links(&self) -> usize {
        self.links.len()
    }

    /// Bans so far.
    #[must_use]
    pub const fn bans(&self) -> u64 {
        self.bans
    }

    /// The faults that were planted since the last call.
    pub fn take_planted(&mut self) -> Vec<Planted> {
        std::mem::take(&mut self.planted)
    }

    /// The next event.
    pub fn poll_out(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    /// A connection is requested.
    ///
    /// # Errors
    /// If the venue does not take it.
    pub fn admit(&mut self, access: &Access<'_>, now: Duration) -> Result<(), Refusal> {
        if self.clients.is_banned(access.address, now) {
            return Err(Refusal::Banned);
        }
        if !self.allows(access.address, Use::Connect, now) {
            self.ban(access.address, "too many connections", now);
            return Err(Refusal::Banned);
        }
        access.form(self.setup.kind)?;
        if self.fails_once_in(6) { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// A connection that was [admitted](Self::admit) is open. `link` is its number from now on.
    pub fn open(&mut self, link: u32, access: &Access<'_>, now: Duration) {
        let Ok((form, streams)) = access.form(self.setup.kind) else { return };
        let sends = Window::new(self.setup.kind.sends(), Duration::from_secs(1));
        let (is_dead, subs, address) = (false, BTreeSet::new(), access.address);
        self.links.insert(link, Link { address, form, opened_at: now, is_dead, subs, number: 0, held: None, sends });
        self.follow(link, &streams);
    }

    /// The client has ended a connection.
    pub fn closed(&mut self, link: u32) {
        let Some(ended) = self.links.remove(&link) else { return };
        for key in ended.subs {
            self.unfollow_key(link, key);
        }
    }

    /// A message of the client has arrived.
    pub fn receive(&mut self, link: u32, message: &[u8], now: Duration) {
        let kind = self.setup.kind;
        let Some(from) = self.links.get_mut(&link).filter(|from| !from.is_dead) else { return };
        let (address, has_room) = (from.address, from.sends.take(1, now));
        if self.setup.has_limits && !has_room || !self.allows(address, Use::Send, now) {
            return self.ban(address, "too many messages", now);
        }
        match request::read(kind, message) {
            Ok(request) => self.answer(link, &request, now),
            Err(reason) => self.complain(link, message, reason, now),
        }
    }

    /// Notes a use. False if the address exceeds a limit.
    pub(super) fn allows(&mut self, address: IpAddr, used: Use, now: Duration) -> bool {
        !self.setup.has_limits || self.clients.take(self.setup.kind, address, used, now)
    }

    /// Ends all connections of an address, and takes no further ones for a while.
    pub(super) fn ban(&mut self, address: IpAddr, reason: &'static str, now: Duration) {
        self.bans += 1;
        self.clients.ban(self.setup.kind, address, now + self.setup.ban, now);
        let of_address = self.links.iter().filter(|(_, link)| link.address == address).map(|(link, _)| *link);
        for link in of_address.collect::<Vec<_>>() {
            self.end(link, End::Banned(reason));
        }
    }

    pub(super) fn end(&mut self, link: u32, end: End) {
        self.closed(link);
        self.out.push_back(Out::Close { link, end });
    }

    /// Subscribes to the streams of known symbols, and returns their places.
    pub(super) fn follow(&mut self, link: u32, streams: &[Stream]) -> Vec<usize> {
        let Some(to) = self.links.get_mut(&link) else { return Vec::new() };
        let mut places = Vec::new();
        for stream in streams {
            let Some(symbol) = self.places.get(&stream.symbol).copied() else { continue };
            let key = (stream.channel, symbol);
            to.subs.insert(key);
            self.followers.entry(key).or_default().insert(link, stream.name.clone());
            places.push(symbol);
        }
        places
    }

    pub(super) fn unfollow(&mut self, link: u32, streams: &[Stream]) {
        let keys = streams.iter().filter_map(|stream| Some((stream.channel, *self.places.get(&stream.symbol)?)));
        for key in keys.collect::<Vec<_>>() {
            if self.links.get_mut(&link).is_some_and(|from| from.subs.remove(&key)) {
                self.unfollow_key(link, key);
            }
        }
    }

    fn unfollow_key(&mut self, link: u32, key: (Channel, usize)) {
        if let Some(followers) = self.followers.get_mut(&key) {
            followers.remove(&link);
        }
    }

    /// True once in `n` times, if faults are planted.
    pub(super) fn fails_once_in(&mut self, n: usize) -> bool {
        self.setup.has_faults && self.random.below(n) == 0
    }

    pub(super) fn plant(&mut self, fault: Fault, link: u32, (channel, symbol): (Channel, usize), at: Duration) {
        let last = self.books[symbol].last();
        let is_book = channel == Channel::Book;
        // A driver that does not take them has no use for more.
        if self.planted.len() < 4096 {
            self.planted.push(Planted { fault, link, symbol, is_book, at, last });
        }
    }

    /// Sends a message, behind those before it.
    pub(super) fn push(&mut self, link: u32, payload: Payload, mark: Mark) {
        let Some(to) = self.links.get_mut(&link) else { return };
        let held = to.held.take();
        if to.is_dead {
            return;
        }
        self.out.push_back(Out::Message { link, payload, mark });
        if let Some((payload, mark)) = held {
            self.out.push_back(Out::Message { link, payload, mark });
        }
    }

    /// The number of the next message of a connection (Coinbase).
    pub(super) fn number(&mut self, link: u32) -> u64 {
        self.links.get_mut(&link).map_or(0, |link| {
            link.number += 1;
            link.number - 1
        })
    }

    /// Time since 1970.
    pub(super) fn stamp(&self, now: Duration) -> Duration {
        self.setup.begin + now
    }
}
