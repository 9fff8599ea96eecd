//! Outgoing connections: the order of addresses, and the waits between attempts.

use crate::dial::resolver::Resolver;
use crate::dial::times::Steps;
use crate::turn::timer::Tick;
use http::HeaderMap;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_conn::closed::ConnectError;
use tautline_conn::proxy::{Proxy, Tunnel};
use tautline_io::{Address, Source, TcpOptions, Token};
use tautline_tls::Engine;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::{self, HeadLimits, Opening, Options, ascii_name, split_zone};

/// Milliseconds between the attempts of happy eyeballs (RFC 8305, section 5).
pub(crate) const ATTEMPT_DELAY: Tick = 250;

/// The destination of an outgoing connection, and the way to it.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Reconnect, Target}; }
/// use tautline::{Reconnect, Target};
///
/// let mut target = Target::new("wss://example.com/feed")?;
/// target.subprotocols = vec!["v2.feed".into()];
/// target.reconnect = Some(Reconnect::default());
/// assert_eq!((target.host(), target.port(), target.is_secure()), ("example.com", 443, true));
/// # Ok::<(), tautline_engine::ConnectError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Target {
    /// `ws://` or `wss://`, host, optional port, path and query.
    pub uri: http::Uri,
    /// Address to connect to instead of resolving the host, for example a Unix socket.
    pub address: Option<Address>,
    /// Addresses to connect to instead of resolving the host, the preferred first, as the program has found them. They are tried
    /// as those of a name are, the first 64 of them. None is used if there is an [`address`](Self::address).
    pub addresses: Vec<SocketAddr>,
    /// Address and interface of this machine to connect from, and options of the socket. By default the kernel or the driver
    /// chooses them.
    pub source: Option<Source>,
    /// Name of the server in TLS (SNI), which its certificate must have, instead of the URI's host.
    pub server_name: Option<String>,
    /// The resolver of the host's name, or of the proxy's. By default the system's, on threads of the shard.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// The `Host` of the request, if it is not that of the URI. TLS goes by [`server_name`](Self::server_name).
    pub host_header: Option<String>,
    /// The `Origin` of the request, for servers that compare it.
    pub origin: Option<String>,
    /// Further headers of the request.
    pub headers: HeaderMap,
    /// Subprotocols to offer, the preferred first.
    pub subprotocols: Vec<String>,
    /// permessage-deflate to offer.
    pub deflate: Option<DeflateConfig>,
    /// Proxy to tunnel through.
    pub proxy: Option<Proxy>,
    /// Bytes that the server gets before all others, TLS included: a [header of the PROXY protocol](crate::ProxyHeader). Each
    /// attempt sends them. They do not go with a [`proxy`](Self::proxy).
    pub preface: Vec<u8>,
    /// Waits before further attempts and reconnections; `None` connects once.
    pub reconnect: Option<Reconnect>,
    /// Time without a message after which this connection is closed, instead of [`silence`](crate::Deadlines::silence) of all.
    /// Feeds of one loop differ in how long they may say nothing.
    pub silence: Option<Duration>,
    /// Time to resolve the name, again to connect to one of its addresses, and again for the handshake, instead of
    /// [`connect`](crate::Deadlines::connect) and [`handshake`](crate::Deadlines::handshake) of all.
    pub connect: Option<Duration>,
    /// Whether the connection is raw: set by [`Target::raw`].
    pub(crate) raw: bool,
}

/// Waits between attempts to connect.
///
/// The wait doubles from `first` to `longest`, minus a random part of up to half. The clients of a restarted server thus do not
/// return all at once. After a connection that was open for at least `longest`, the wait begins with `first` again. The
/// [silence](crate::Deadlines::silence) that ended a connection does not count.
///
/// A server may say when to come back, in [its close frame](tautline_ws::RetryAfter) or in the `Retry-After` of a refusal. This takes
/// the place of the first wait, and makes no later wait shorter. It counts as `longest` at most. A random part of up to a quarter is
/// added, since a server may tell all its clients the same time.
///
/// ```
/// # mod tautline { pub use tautline_engine::Reconnect; }
/// use std::time::Duration;
/// use tautline::Reconnect;
///
/// let quick = Reconnect::new(Duration::from_millis(50), Duration::from_secs(2)).with_attempts(10);
/// assert_eq!(quick.attempts, Some(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reconnect {
    /// The first wait.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
    /// Consecutive further attempts before giving up; `None` never gives up.
    pub attempts: Option<u32>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), longest: Duration::from_secs(30), attempts: None }
    }
}

impl Reconnect {
    /// Waits from `first` to `longest`, without end.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, attempts: None }
    }

    /// Gives up after this number of consecutive further attempts.
    #[must_use]
    pub const fn with_attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// The wait after `failures` failures (from 1). `random` returns a number from 0 to its argument.
    pub fn wait(&self, failures: u32, random: impl FnOnce(u64) -> u64) -> Duration {
        let longest = u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX);
        let first = u64::try_from(self.first.as_millis()).unwrap_or(u64::MAX);
        let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(32)).min(longest);
        Duration::from_millis(doubled - random(doubled / 2))
    }

    /// The [wait](Self::wait) if the server said when to come back ([`Closed::retry_after`], [`ConnectError::retry_after`]).
    ///
    /// It is never earlier than told, unless that is later than [`longest`](Self::longest), and at most a quarter later.
    ///
    /// [`Closed::retry_after`]: crate::Closed::retry_after
    pub fn wait_as_told(&self, told: Option<Duration>, failures: u32, mut random: impl FnMut(u64) -> u64) -> Duration {
        let Some(told) = told else { return self.wait(failures, random) };
        let told = u64::try_from(told.min(self.longest).as_millis()).unwrap_or(u64::MAX);
        // A server that refuses many tells them the same time. They must not come back together.
        let spread = Duration::from_millis(told.saturating_add(random(told / 4)));
        if failures <= 1 { spread } else { self.wait(failures, random).max(spread) }
    }
}

impl Target {
    /// A target by its URI, without options.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if it is no `ws://` or `wss://` URI.
    pub fn new(uri: &str) -> Result<Self, ConnectError> {
        let parsed = handshake::parse_uri(uri).map_err(|error| ConnectError::Target(format!("{uri:?}: {error}")))?;
        if !matches!(parsed.scheme_str().map(str::to_ascii_lowercase).as_deref(), Some("ws" | "wss")) {
            return Err(ConnectError::Target(format!("{uri:?} is no WebSocket URI; write wss://HOST[:PORT]/PATH")));
        }
        Ok(Self {
            uri: parsed,
            address: None,
            addresses: Vec::new(),
            source: None,
            server_name: None,
            resolver: None,
            host_header: None,
            origin: None,
            headers: HeaderMap::new(),
            subprotocols: Vec::new(),
            deflate: None,
            proxy: None,
            preface: Vec::new(),
            reconnect: None,
            silence: None,
            connect: None,
            raw: false,
        })
    }

    /// A target by its `http://` or `https://` URI, of which only scheme, host and port count. Its connection is
    /// [raw](crate::Raw): the application speaks its protocol. It is made once.
    ///
    /// # Errors
    /// [`ConnectError::Target`] if it is no `http://` or `https://` URI.
    pub fn raw(uri: &str) -> Result<Self, ConnectError> {
        let scheme = uri.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
        let uri = match scheme.as_deref() {
            Some("http") => format!("ws://{rest}"),
            Some("https") => format!("wss://{rest}"),
            _ => return Err(ConnectError::Target(format!("{uri:?} is no HTTP URI; write http://HOST[:PORT]"))),
        };
        Ok(Self { raw: true, ..Self::new(&uri)? })
    }

    /// Sets the waits before further attempts and reconnections.
    #[must_use]
    pub const fn with_reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = Some(reconnect);
        self
    }

    /// Sets the end of this machine to connect from: an address, or an interface.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the resolver of names.
    #[must_use]
    pub fn with_resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    /// Sets options of the TCP connection. [`with_source`](Self::with_source) comes before it.
    #[must_use]
    pub fn with_tcp(mut self, options: TcpOptions) -> Self {
        self.source.get_or_insert_default().tcp = options;
        self
    }

    /// Sets the time without a message after which the connection is closed.
    #[must_use]
    pub const fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// Sets the time for each step of connecting.
    #[must_use]
    pub const fn with_connect(mut self, connect: Duration) -> Self {
        self.connect = Some(connect);
        self
    }

    /// Checks all that needs no network: the URI, the headers, the subprotocols and the proxy.
    ///
    /// Each attempt begins with it.
    ///
    /// # Errors
    /// An error that is [permanent](ConnectError::is_permanent).
    pub fn check(&self) -> Result<(), ConnectError> {
        let options = self.options(HeadLimits::default());
        Opening::new(&self.uri, [0; 16], &options).map_err(|error| ConnectError::Handshake(Arc::new(error)))?;
        if let Some(proxy) = &self.proxy {
            if self.bare_host().contains('%') {
                let error =
                    "the zone of the URI's address is this machine's: a proxy cannot use it; leave out one of them";
                return Err(ConnectError::Target(error.into()));
            }
            if !self.preface.is_empty() {
                let error = "bytes before TLS are for the server itself: leave out the preface or the proxy";
                return Err(ConnectError::Target(error.into()));
            }
            self.tunnel(proxy.clone(), &mut Buf::new())?;
        }
        Ok(())
    }

    /// The options of the opening handshake.
    pub(crate) fn options(&self, limits: HeadLimits) -> Options {
        let mut options = Options::default();
        options.host.clone_from(&self.host_header);
        options.origin.clone_from(&self.origin);
        options.headers = self.headers.clone();
        options.subprotocols = self.subprotocols.clone();
        options.deflate = self.deflate;
        options.limits = limits;
        options
    }

    /// Begins the negotiation of a tunnel through `proxy`.
    pub(crate) fn tunnel(&self, proxy: Proxy, out: &mut Buf) -> Result<Tunnel, ConnectError> {
        Tunnel::new(proxy, self.host(), self.port(), out).map_err(ConnectError::Target)
    }

    /// The address that the URI has for its host, or the proxy's, with its zone. It needs no resolver.
    #[must_use]
    pub fn literal(&self) -> Option<SocketAddr> {
        let (host, zone) = match &self.proxy {
            Some(proxy) => split_zone(&proxy.host).ok()?,
            None => split_zone(self.bare_host()).ok()?,
        };
        let (_, port) = self.first_hop();
        match host.parse().ok()? {
            IpAddr::V4(ip) => Some(SocketAddr::from((ip, port))),
            IpAddr::V6(ip) => Some(SocketAddrV6::new(ip, port, 0, zone.unwrap_or(0)).into()),
        }
    }

    /// The host without brackets, and with its zone.
    fn bare_host(&self) -> &str {
        self.uri.host().unwrap_or("").trim_matches(['[', ']'])
    }

    /// Bytes of its parts of any length, about.
    pub(crate) fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let rest = self.uri.path().len() + self.uri.query().map_or(0, str::len) + self.host().len();
        let rest = rest + self.server_name.as_ref().map_or(0, String::len);
        let rest = rest + self.addresses.len() * size_of::<SocketAddr>() + self.preface.len();
        rest + headers.sum::<usize>() + self.subprotocols.iter().map(String::len).sum::<usize>()
    }

    /// Whether the scheme is `wss`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("wss"))
    }

    /// The host, without the brackets and the zone of an IPv6 address. International names are in ASCII.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.bare_host();
        host.split_once('%').map_or(host, |(address, _)| address)
    }

    /// A new session: without TLS if that is what the engine has for its scheme.
    pub(crate) fn session<E: Engine>(&self, engine: &E) -> Result<E::Session, tautline_tls::Error> {
        let plain = if self.is_secure() { None } else { engine.connect_plain() };
        plain.map_or_else(|| engine.connect(&self.tls_name()), Ok)
    }

    /// The name that the server's certificate must have: [`server_name`](field@Self::server_name), or the host.
    #[must_use]
    pub fn tls_name(&self) -> Cow<'_, str> {
        let name = self.server_name.as_deref().unwrap_or_else(|| self.host());
        ascii_name(name).unwrap_or(Cow::Borrowed(name))
    }

    /// The port; by default that of the scheme.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or_else(|| if self.is_secure() { 443 } else { 80 })
    }

    /// Host and port of the socket: the proxy's, or the target's.
    pub(crate) fn first_hop(&self) -> (&str, u16) {
        self.proxy.as_ref().map_or_else(|| (self.host(), self.port()), |proxy| (proxy.host.as_str(), proxy.port))
    }
}

/// An outgoing connection, across its attempts.
pub(crate) struct Dial {
    pub(crate) target: Arc<Target>,
    pub(crate) state: State,
    pub(crate) failures: u32,
    /// When a connection of it was opened last.
    pub(crate) opened: Tick,
    /// Whether the application has given it up.
    pub(crate) ends: bool,
    /// The address of its connection.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) steps: Steps,
}

/// The state of a [`Dial`].
pub(crate) enum State {
    /// The host's name is being resolved, until this tick at most.
    Resolving(Tick),
    /// Attempts at its addresses are under way.
    Racing(Race),
    /// A connection exists.
    Linked(Token),
    /// The next attempt begins at this tick.
    Waiting(Tick),
    /// The attempt failed; the next turn reports it to the handler.
    Failed(ConnectError),
}

/// Attempts at the addresses of one host.
pub(crate) struct Race {
    rest: VecDeque<Address>,
    pub(crate) attempts: Vec<(Token, Address)>,
    pub(crate) next_at: Tick,
    pub(crate) end: Tick,
    failed: Vec<(Address, Arc<io::Error>)>,
}

impl Race {
    /// A race between addresses in this order.
    pub(crate) fn new(addresses: Vec<Address>, now: Tick, end: Tick) -> Self {
        Self { rest: addresses.into(), attempts: Vec::new(), next_at: now, end, failed: Vec::new() }
    }

    /// An attempt at `address` failed. Returns its own error.
    pub(crate) fn lose(&mut self, address: Address, error: io::Error) -> ConnectError {
        let error = Arc::new(error);
        self.failed.push((address.clone(), error.clone()));
        ConnectError::Io { address, error, others: Arc::default() }
    }

    /// The error of a race that is lost.
    pub(crate) fn error(&mut self) -> ConnectError {
        let none = || ConnectError::Resolve("cannot connect to a host without an address".into());
        ConnectError::of_attempts(self.failed.drain(..)).unwrap_or_else(none)
    }

    /// Takes out all attempts, for the caller to close.
    pub(crate) fn end_attempts(&mut self) -> Vec<Token> {
        self.attempts.drain(..).map(|(token, _)| token).collect()
    }

    pub(crate) fn next_address(&mut self) -> Option<Address> {
        self.rest.pop_front()
    }

    /// When the race needs attention: the next attempt or the deadline.
    pub(crate) fn due(&self) -> Tick {
        if self.rest.is_empty() { self.end } else { self.next_at.min(self.end) }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.attempts.is_empty() && self.rest.is_empty()
    }
}

/// Resolves `host`. It blocks, so it runs on a thread of its own.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let found = (host, port).to_socket_addrs();
    let addresses: Vec<_> =
        found.map_err(|error| ConnectError::Resolve(format!("cannot resolve {host}: {error}")))?.collect();
    if addresses.is_empty() {
        return Err(ConnectError::Resolve(format!("{host} has no address")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::{Race, Reconnect, Target};
    use std::io;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tautline_conn::keys::Keys;
    use tautline_io::Address;

    #[test]
    fn targets_have_host_and_port() {
        let target = Target::new("wss://[::1]/feed?x=1").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("::1", 443, true));
        let mut target = Target::new("ws://example.org:8080").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("example.org", 8080, false));
        assert_eq!(target.tls_name(), "example.org");
        target.server_name = Some("other.example".to_owned());
        assert_eq!((target.host(), &*target.tls_name()), ("example.org", "other.example"));
        target.server_name = Some("b\u{fc}cher.example".to_owned());
        assert_eq!(target.tls_name(), "xn--bcher-kva.example");
        let target = Target::new("wss://b\u{fc}cher.example/").unwrap();
        assert_eq!((target.host(), &*target.tls_name()), ("xn--bcher-kva.example", "xn--bcher-kva.example"));
        let target = Target::new("WSS://Example.org/").unwrap();
        assert_eq!((target.port(), target.is_secure()), (443, true));
        for bad in [
            "example.org",
            "http://example.org/",
            "wss:///x",
            "wss://",
            "",
            "ws://a:0/",
            "wss://a:65536/",
            "wss://a/#b",
        ] {
            let error = Target::new(bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{bad:?}")), "{error}");
        }
    }

    #[test]
    fn a_race_is_lost_for_ever_only_if_no_address_can_be_used() {
        let address = || Address::from(SocketAddr::from(([10, 0, 0, 1], 1)));
        let unsupported = || io::Error::new(io::ErrorKind::Unsupported, "the driver cannot choose the source");
        let refused = || io::Error::from_raw_os_error(111);
        for (errors, permanent) in [
            (vec![unsupported(), unsupported()], true),
            (vec![refused(), unsupported()], false),
            (vec![unsupported(), refused()], false),
            // The system's own errors may pass, such as that for a family that is switched off.
            (vec![io::Error::from_raw_os_error(95)], false),
        ] {
            let mut race = Race::new(Vec::new(), 0, 1);
            for error in errors {
                race.lose(address(), error);
            }
            assert_eq!(race.error().is_permanent(), permanent);
        }
    }

    #[test]
    fn addresses_are_read_with_their_zones() {
        let literal = |uri: &str| Target::new(uri).unwrap().literal().map(|address| address.to_string());
        assert_eq!(literal("wss://[fe80::1%2]/").as_deref(), Some("[fe80::1%2]:443"));
        assert_eq!(literal("ws://[fe80::1%2512]:81/").as_deref(), Some("[fe80::1%12]:81"));
        assert_eq!(literal("ws://10.0.0.1/").as_deref(), Some("10.0.0.1:80"));
        assert_eq!(literal("ws://a.example/"), None);
        let mut target = Target::new("wss://[fe80::1%2]/").unwrap();
        assert_eq!((target.host(), &*target.tls_name()), ("fe80::1", "fe80::1"));
        target.proxy = Some("http://[fe80::9%253]:3128".parse().unwrap());
        assert_eq!(target.literal().unwrap().to_string(), "[fe80::9%3]:3128");
        let error = target.check().unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("a proxy cannot use it"), "{error}");
        target.uri = "wss://a.example/".parse().unwrap();
        target.check().unwrap();
        target.preface = b"PROXY UNKNOWN\r\n".to_vec();
        let error = target.check().unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("leave out the preface"), "{error}");
        target.proxy = None;
        target.check().unwrap();
    }

    #[test]
    fn waits_double_and_jitter() {
        let reconnect =
            Reconnect { first: Duration::from_millis(100), longest: Duration::from_secs(1), attempts: None };
        let longest = |failures| reconnect.wait(failures, |_| 0).as_millis();
        let shortest = |failures| reconnect.wait(failures, |bound| bound).as_millis();
        assert_eq!([1, 2, 3, 4, 5, 60].map(longest), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!([1, 2, 60].map(shortest), [50, 100, 500]);
    }

    #[test]
    fn clients_that_are_told_one_time_do_not_come_back_together() {
        let mut keys = Keys::new([7; 32]);
        for failures in [1, 5] {
            let reconnect = Reconnect::new(Duration::from_millis(1), Duration::from_secs(30));
            for seconds in [10, 30, 3600] {
                let told = Duration::from_secs(seconds);
                let mut wait = || reconnect.wait_as_told(Some(told), failures, |bound| keys.up_to(bound));
                let waits: Vec<_> = (0..1_000).map(|_| wait()).collect();
                let (least, range) = (told.min(reconnect.longest), told.min(reconnect.longest) / 4);
                for quarter in 0..4 {
                    let from = least + range * quarter / 4;
                    let some = waits.iter().filter(|wait| (from..=from + range / 4).contains(*wait)).count();
                    assert!((150..=350).contains(&some), "{some} of 1,000 in part {quarter} after {seconds} s");
                }
                assert!(waits.iter().all(|wait| (least..=least + range).contains(wait)));
            }
        }
    }

    #[test]
    fn the_server_says_when_to_come_back_within_bounds() {
        let reconnect = Reconnect::new(Duration::from_millis(100), Duration::from_secs(1));
        let told = |millis, failures, random: fn(u64) -> u64| {
            reconnect.wait_as_told(Some(Duration::from_millis(millis)), failures, random).as_millis()
        };
        assert_eq!([0, 5, 700, 1000].map(|millis| told(millis, 1, |_| 0)), [0, 5, 700, 1000], "never earlier");
        assert_eq!([0, 5, 700, 1000].map(|millis| told(millis, 1, |bound| bound)), [0, 6, 875, 1250]);
        // A server cannot have its clients return at once again and again, nor keep them away.
        assert_eq!([0, 300].map(|millis| told(millis, 3, |_| 0)), [400, 400]);
        assert_eq!([|_| 0, |bound| bound].map(|random| told(900, 3, random)), [900, 1125]);
        assert_eq!([1001, u64::MAX].map(|millis| told(millis, 1, |_| 0)), [1000, 1000]);
        assert_eq!([1001, u64::MAX].map(|millis| told(millis, 1, |bound| bound)), [1250, 1250]);
        let endless = Reconnect::new(Duration::ZERO, Duration::MAX);
        endless.wait_as_told(Some(Duration::MAX), 1, |bound| bound);
        assert_eq!(reconnect.wait_as_told(None, 2, |_| 0).as_millis(), 200);
    }
}
