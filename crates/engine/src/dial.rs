//! Outgoing connections: the order of addresses, and the waits between attempts.

use crate::closed::ConnectError;
use crate::dial_times::Steps;
use crate::proxy::Proxy;
use crate::resolver::Resolver;
use crate::timer::Tick;
use http::HeaderMap;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tautline_io::{Address, Source, Token};
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake;

/// Milliseconds between the attempts of happy eyeballs (RFC 8305, section 5).
pub(crate) const ATTEMPT_DELAY: Tick = 250;

/// The destination of an outgoing connection, and the way to it.
///
/// ```
/// use tautline_engine::{Reconnect, Target};
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
    /// Address and interface of this machine to connect from. By default the kernel or the driver chooses them.
    pub source: Option<Source>,
    /// Name of the server in TLS (SNI), which its certificate must have, instead of the URI's host.
    pub server_name: Option<String>,
    /// The resolver of the host's name, or of the proxy's. By default the system's, on threads of the shard.
    pub resolver: Option<Arc<dyn Resolver>>,
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
    /// Waits before further attempts and reconnections; `None` connects once.
    pub reconnect: Option<Reconnect>,
}

/// Waits between attempts to connect.
///
/// The wait doubles from `first` to `longest`, minus a random part of up to half. The clients of a restarted server thus do not
/// return all at once. After a connection that was open for at least `longest`, the wait begins with `first` again. The
/// [silence](crate::Deadlines::silence) that ended a connection does not count.
///
/// A server that restarts may [say when to come back](tautline_ws::RetryAfter), which takes the place of the first wait. It does not
/// make later waits shorter, and no wait longer than `longest`.
///
/// ```
/// use std::time::Duration;
/// use tautline_engine::Reconnect;
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

    /// The [wait](Self::wait) after a connection whose server said when to come back ([`Closed::retry_after`]).
    ///
    /// [`Closed::retry_after`]: crate::Closed::retry_after
    pub fn wait_as_told(&self, told: Option<Duration>, failures: u32, random: impl FnOnce(u64) -> u64) -> Duration {
        match told {
            // Clients that are told more than they accept must not come back together.
            Some(told) if told > self.longest => Self::new(self.longest, self.longest).wait(1, random),
            Some(told) if failures <= 1 => told,
            Some(told) => self.wait(failures, random).max(told),
            None => self.wait(failures, random),
        }
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
            source: None,
            server_name: None,
            resolver: None,
            origin: None,
            headers: HeaderMap::new(),
            subprotocols: Vec::new(),
            deflate: None,
            proxy: None,
            reconnect: None,
        })
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

    /// Bytes of its parts of any length, about.
    pub(crate) fn size(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        let rest = self.uri.path().len() + self.uri.query().map_or(0, str::len) + self.host().len();
        let rest = rest + self.server_name.as_ref().map_or(0, String::len);
        rest + headers.sum::<usize>() + self.subprotocols.iter().map(String::len).sum::<usize>()
    }

    /// Whether the scheme is `wss`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("wss"))
    }

    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or("").trim_matches(['[', ']'])
    }

    /// The name that the server's certificate must have: [`server_name`](field@Self::server_name), or the host.
    #[must_use]
    pub fn tls_name(&self) -> &str {
        self.server_name.as_deref().unwrap_or_else(|| self.host())
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
    pub(crate) last_error: Option<(Address, io::Error)>,
}

impl Race {
    /// Orders addresses for happy eyeballs: families alternate, beginning with the one that the resolver put first.
    pub(crate) fn new(addresses: Vec<Address>, now: Tick, end: Tick) -> Self {
        let first_is_v4 = addresses.first().is_some_and(is_v4);
        let (mut a, mut b): (VecDeque<_>, VecDeque<_>) = addresses.into_iter().partition(|x| is_v4(x) == first_is_v4);
        let mut rest = VecDeque::with_capacity(a.len() + b.len());
        while !a.is_empty() || !b.is_empty() {
            rest.extend(a.pop_front());
            rest.extend(b.pop_front());
        }
        Self { rest, attempts: Vec::new(), next_at: now, end, last_error: None }
    }

    /// An attempt at `address` failed.
    pub(crate) fn lose(&mut self, address: Address, error: io::Error) {
        self.last_error = Some((address, error));
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

fn is_v4(address: &Address) -> bool {
    matches!(address, Address::Tcp(SocketAddr::V4(_)))
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

/// The address if `host` is an IP address, which needs no resolver.
pub(crate) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::{Race, Reconnect, Target};
    use std::time::Duration;

    #[test]
    fn targets_have_host_and_port() {
        let target = Target::new("wss://[::1]/feed?x=1").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("::1", 443, true));
        let mut target = Target::new("ws://example.org:8080").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("example.org", 8080, false));
        assert_eq!(target.tls_name(), "example.org");
        target.server_name = Some("other.example".to_owned());
        assert_eq!((target.host(), target.tls_name()), ("example.org", "other.example"));
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
    fn address_families_alternate() {
        let addresses = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1", "2.2.2.2:1"];
        let mut race = Race::new(addresses.iter().map(|a| a.parse().unwrap()).collect(), 0, 1);
        let order: Vec<_> = std::iter::from_fn(|| race.next_address()).map(|a| a.to_string()).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
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
    fn the_server_says_when_to_come_back_within_bounds() {
        let reconnect = Reconnect::new(Duration::from_millis(100), Duration::from_secs(1));
        let told = |millis, failures, random: fn(u64) -> u64| {
            reconnect.wait_as_told(Some(Duration::from_millis(millis)), failures, random).as_millis()
        };
        // Each client has a time of its own, so there is nothing random about the first wait.
        assert_eq!([0, 5, 700, 1000].map(|millis| told(millis, 1, |bound| bound)), [0, 5, 700, 1000]);
        // A server cannot have its clients return at once again and again, nor keep them away.
        assert_eq!([0, 300].map(|millis| told(millis, 3, |_| 0)), [400, 400]);
        assert_eq!(told(900, 3, |_| 0), 900);
        assert_eq!([1001, u64::MAX].map(|millis| told(millis, 1, |_| 0)), [1000, 1000]);
        assert_eq!([1001, u64::MAX].map(|millis| told(millis, 1, |bound| bound)), [500, 500]);
        assert_eq!(reconnect.wait_as_told(None, 2, |_| 0).as_millis(), 200);
    }
}
