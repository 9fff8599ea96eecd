//! A feed on the loop of a [`tautline::Client`].

use crate::Time;
use crate::action::Action;
use crate::feed::Feed;
use crate::fetch::{Fetch, Fetcher};
use crate::ids::{FetchId, LinkId};
use crate::journal::Journal;
use crate::notice::Listener;
use crate::record::Recorder;
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use tautline::{
    CloseCode, Closed, Conn, ConnId, ConnectError, DialId, Handler, Message, Opening, Outgoing, SendTimes,
    ShardContext, ShardHandle, ShardHandleError, Target,
};

/// The loop's timer for the feed, and the number by which the thread that fetches wakes it.
const TIMER: u64 = 0;
const FETCHED: u64 = 1;

/// The application's part after each message.
type Act<L> = Box<dyn FnMut(&mut L, &mut Feed, Time) + Send>;

/// The result of a fetch.
type Fetched = (FetchId, Result<Vec<u8>, String>);

/// The [`Handler`] of a client that runs a [`Feed`]: it opens, reads and closes the connections that the feed asks for.
///
/// Start it with a client that [stays](tautline::Client::stay) and has no targets. Other threads reach it by
/// [`ShardHandle::with_handler`], for example to subscribe.
///
/// ```no_run
/// use tautline::{Client, ClientConfig, Config};
/// use tautline_feed::{Binance, Book, Channel, Connector, Feed, FeedConfig, Listener, Side, SymbolId, Time};
///
/// struct Print;
///
/// impl Listener for Print {
///     fn on_book(&mut self, _: SymbolId, book: &Book, _: Time) {
///         println!("{:?} {:?}", book.best(Side::Bid), book.best(Side::Ask));
///     }
/// }
///
/// let mut feed = Feed::new(Binance::new(), FeedConfig::default());
/// let symbol = feed.declare("BTCUSDT", None);
/// feed.subscribe(symbol, Channel::Book, Time::ZERO);
/// let get = |_url: &str| Err("use an HTTP client here".to_owned());
/// let client = Client::new(ClientConfig::default()).config(Config::low_latency()).stay();
/// client.run(Connector::new(feed, Print).with_fetch(get))?;
/// # Ok::<(), tautline::Error>(())
/// ```
pub struct Connector<L: Listener> {
    feed: Feed,
    listener: L,
    start: Instant,
    prepare: Box<dyn FnMut(&mut Target) + Send>,
    act: Option<Act<L>>,
    fetch: Option<Box<dyn Fetch>>,
    fetcher: Option<Fetcher>,
    fetched: (Sender<Fetched>, Receiver<Fetched>),
    journal: Journal,
    shard: Option<ShardHandle>,
    dials: HashMap<DialId, LinkId>,
    /// The open connections, which are few.
    open: Vec<(ConnId, LinkId)>,
    /// When the timer is due.
    timer: Time,
}

impl<L: Listener + 'static> Connector<L> {
    /// Runs `feed`. Times that `listener` gets count from now on.
    #[must_use]
    pub fn new(feed: Feed, listener: L) -> Self {
        Self {
            feed,
            listener,
            start: Instant::now(),
            prepare: Box::new(|_| {}),
            act: None,
            fetch: None,
            fetcher: None,
            fetched: channel(),
            journal: Journal::none(),
            shard: None,
            dials: HashMap::new(),
            open: Vec::new(),
            timer: Time::MAX,
        }
    }

    /// Sets how snapshots are fetched, on a thread of their own. Without it, books that need them are never up to date.
    #[must_use]
    pub fn with_fetch(mut self, fetch: impl Fetch) -> Self {
        self.fetch = Some(Box::new(fetch));
        self
    }

    /// Sets what else a connection's target has: headers such as an API key, a source address, deflate, a proxy.
    #[must_use]
    pub fn with_target(mut self, prepare: impl FnMut(&mut Target) + Send + 'static) -> Self {
        self.prepare = Box::new(prepare);
        self
    }

    /// Has `act` called after each message that was handled, to send what the listener has decided on, or to subscribe to more.
    #[must_use]
    pub fn with_act(mut self, act: impl FnMut(&mut L, &mut Feed, Time) + Send + 'static) -> Self {
        self.act = Some(Box::new(act));
        self
    }

    /// Records all that comes and goes, for a [`Player`](crate::Player). Changes by [`with_feed`](Self::with_feed) are not
    /// recorded. The listener gets [`Notice::Unrecorded`](crate::Notice::Unrecorded) if events cannot be written.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.journal = Journal::begin(recorder, self.start);
        self
    }

    /// The feed.
    #[must_use]
    pub const fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Changes the feed, for example its subscriptions, and does what follows from that.
    pub fn with_feed<R>(&mut self, shard: &mut ShardContext<'_>, act: impl FnOnce(&mut Feed, &mut L, Time) -> R) -> R {
        let now = self.start.elapsed();
        let result = act(&mut self.feed, &mut self.listener, now);
        self.feed.handle_timeout(now, &mut self.listener);
        self.act(shard);
        result
    }

    /// The application's part.
    pub const fn listener(&mut self) -> &mut L {
        &mut self.listener
    }

    /// Does what the feed asks for.
    fn act(&mut self, shard: &mut ShardContext<'_>) {
        while let Some(action) = self.feed.poll_action() {
            match action {
                Action::Send { link, text, timed, .. } => {
                    if let Some((conn, _)) = self.open.iter().find(|(_, one)| *one == link) {
                        match timed {
                            Some(id) => shard.send_timed(*conn, Outgoing::text(&text), id),
                            None => shard.send_to(&[*conn], Outgoing::text(&text)),
                        }
                        self.journal.sent(link, text.as_bytes(), self.start.elapsed());
                    }
                }
                Action::Connect { link, url } => self.connect(link, &url),
                Action::Close { link, reason } => self.close(link, reason),
                Action::FetchSnapshot { fetch, url, .. } => {
                    let started = self.fetcher.as_ref().is_some_and(|fetcher| fetcher.begin(fetch, url));
                    if !started {
                        self.take_fetched(fetch, &Err("no thread fetches snapshots, or too many wait".to_owned()));
                    }
                }
            }
        }
        let now = self.start.elapsed();
        let due = self.feed.next_due(now).max(now);
        // A timer that is due before looks again by itself.
        if due < self.timer {
            self.timer = due;
            shard.set_timer(due - now, TIMER);
        }
    }

    fn connect(&mut self, link: LinkId, url: &str) {
        let prepare = &mut self.prepare;
        let dial = Target::new(url).ok().and_then(|mut target| {
            prepare(&mut target);
            // The feed itself decides when it connects again.
            target.reconnect = None;
            self.shard.as_ref()?.connect(target).ok()
        });
        match dial {
            Some(dial) => {
                self.dials.insert(dial, link);
            }
            None => self.closed(link),
        }
    }

    fn closed(&mut self, link: LinkId) {
        let now = self.start.elapsed();
        self.journal.closed(link, now);
        self.feed.closed(link, now, &mut self.listener);
    }

    /// The feed's number of a connection.
    fn link_of(&self, conn: ConnId) -> Option<LinkId> {
        self.open.iter().find(|(one, _)| *one == conn).map(|(_, link)| *link)
    }

    fn close(&mut self, link: LinkId, reason: &'static str) {
        self.open.retain(|(_, one)| *one != link);
        let dial = self.dials.iter().find(|(_, one)| **one == link).map(|(dial, _)| *dial);
        if let (Some(dial), Some(shard)) = (dial, &self.shard) {
            // If it has ended already, that is what was wanted.
            let _ = shard.disconnect(dial, CloseCode::NORMAL, reason);
        }
    }

    fn take_fetched(&mut self, fetch: FetchId, result: &Result<Vec<u8>, String>) {
        let (now, result) = (self.start.elapsed(), result.as_deref().map_err(|reason| &**reason));
        self.journal.fetched(fetch, result, now);
        self.feed.fetched(fetch, result, now, &mut self.listener);
    }

    fn handle_timeout(&mut self) {
        let now = self.start.elapsed();
        self.journal.timeout(now);
        if let Some(loss) = self.journal.first_loss() {
            self.listener.on_notice(loss, now);
        }
        self.feed.handle_timeout(now, &mut self.listener);
    }
}

/// Has a loop take the results of fetches. Its handler is a connector, or boxed.
fn poke<L: Listener + 'static>(shard: &ShardHandle) -> Result<(), ShardHandleError> {
    type Boxed = Box<dyn Handler<State = ()>>;
    match shard.with_handler::<Connector<L>>(|connector, shard| connector.on_shard_timer(shard, FETCHED)) {
        Err(ShardHandleError::OtherHandler) => {
            shard.with_handler::<Boxed>(|connector, shard| connector.on_shard_timer(shard, FETCHED))
        }
        other => other,
    }
}

impl<L: Listener + 'static> Handler for Connector<L> {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        let handle = shard.handle();
        if let Some(fetch) = self.fetch.take() {
            let (answers, results) = (handle.clone(), self.fetched.0.clone());
            self.fetcher = Fetcher::start(fetch, move |fetch, result| {
                results.send((fetch, result)).is_ok() && poke::<L>(&answers).is_ok()
            });
        }
        self.shard = Some(handle);
        self.handle_timeout();
        self.act(shard);
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        let link = conn.dial().and_then(|dial| self.dials.get(&dial).copied());
        let Some(link) = link else { return };
        self.open.push((conn.id(), link));
        let now = self.start.elapsed();
        self.journal.opened(link, now);
        self.feed.opened(link, now, &mut self.listener);
        self.act(&mut conn.shard());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let Some(link) = self.link_of(conn.id()) else { return };
        let now = self.start.elapsed();
        self.feed.received(link, message.data(), now, &mut self.listener);
        self.listener.on_handled(conn.times());
        if let Some(act) = &mut self.act {
            act(&mut self.listener, &mut self.feed, now);
        }
        self.journal.received(link, &message, now);
        self.act(&mut conn.shard());
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        if id == FETCHED {
            while let Ok((fetch, result)) = self.fetched.1.try_recv() {
                self.take_fetched(fetch, &result);
            }
        } else {
            self.timer = Time::MAX;
            self.handle_timeout();
        }
        self.act(shard);
    }

    fn on_sent(&mut self, _: &mut ShardContext<'_>, times: &SendTimes) {
        self.listener.on_sent(times);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, _: &Closed) {
        let Some(link) = self.link_of(conn.id()) else { return };
        self.open.retain(|(_, one)| *one != link);
        if conn.shard().handle().is_draining() {
            // The application has ended it, and nothing follows.
            return;
        }
        self.closed(link);
        self.act(&mut conn.shard());
    }

    fn on_connect_failed(&mut self, dial: DialId, error: &ConnectError, _: Option<Time>) {
        if let Some(link) = self.dials.get(&dial).copied() {
            self.listener.on_connect_failed(link, error);
            // The next timer does the rest.
            self.closed(link);
        }
    }

    fn on_dial_end(&mut self, dial: DialId) {
        self.dials.remove(&dial);
    }
}

impl<L: Listener> Drop for Connector<L> {
    /// Ends the recording.
    fn drop(&mut self) {
        if let Some(loss) = self.journal.end() {
            self.listener.on_notice(loss, self.start.elapsed());
        }
    }
}

impl<L: Listener> fmt::Debug for Connector<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("feed", &self.feed).field("open", &self.open).finish_non_exhaustive()
    }
}
