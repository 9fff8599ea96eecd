//! Looks at an endpoint step by step. Each step needs the one before it.

use super::client::{Client, Offer, Prepared, Seen, Sessions, negotiated};
use super::dialer::Dialer;
use super::facts::{
    Address, Dns, Facts, Http, Idle, OtherAddress, Resumption, Sent, Session, Sizes, Trouble, TroubleKind,
};
use super::request::{self, Request, Upgraded};
use super::scan;
use super::stream::Stream;
use super::websocket::WebSocket;
use crate::Unusable;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::{ClientConfig, Proxy};

/// The extent of a look at an endpoint.
#[derive(Clone)]
pub struct Look {
    /// The endpoint without credentials, as reports name it.
    pub url: String,
    /// The host of the URL, without brackets.
    pub host: String,
    /// The port of the URL, or the usual one of its scheme.
    pub port: u16,
    /// Whether the scheme has TLS.
    pub secure: bool,
    /// The request to send.
    pub request: Request,
    /// Trust, and the certificate of the client.
    pub tls: ClientConfig,
    /// The proxy to connect through.
    pub proxy: Option<Proxy>,
    /// Addresses instead of those of the name.
    pub addresses: Vec<SocketAddr>,
    /// Longest wait for each step.
    pub timeout: Duration,
    /// Pings to send.
    pub pings: usize,
    /// Full and resumed handshakes that are timed, of each.
    pub handshakes: usize,
    /// Whether to ask which versions, suites and groups the server takes.
    pub scans: bool,
    /// Longest wait for a first message; `None` does not wait.
    pub first_message: Option<Duration>,
    /// Time of silence on a connection of its own; `None` tries none.
    pub idle: Option<Duration>,
    /// Sizes of messages to announce, ascending; empty announces none.
    pub sizes: Vec<u64>,
}

/// Longest wait for the first ticket of a server, beside two round trips.
const FIRST_TICKET: Duration = Duration::from_millis(400);

/// Longest wait for a ticket behind a resumed handshake: servers need not give one.
const NEXT_TICKET: Duration = Duration::from_millis(40);

/// Most addresses of a name that are looked at.
const MOST_ADDRESSES: usize = 8;

impl Look {
    /// Resolves the name, or the proxy's.
    pub fn resolve(&self) -> (Option<Dns>, Vec<SocketAddr>) {
        if !self.addresses.is_empty() {
            return (None, self.addresses.iter().copied().take(MOST_ADDRESSES).collect());
        }
        let (host, port) = self.proxy.as_ref().map_or((&*self.host, self.port), |proxy| (&*proxy.host, proxy.port));
        let start = Instant::now();
        let found = (host, port).to_socket_addrs().map(|found| {
            let mut addresses: Vec<SocketAddr> = Vec::new();
            for address in found {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
            // The proxy chooses the endpoint's address.
            addresses.truncate(if self.proxy.is_some() { 1 } else { MOST_ADDRESSES });
            addresses
        });
        let mut dns = Dns { ms: start.elapsed().as_secs_f64() * 1e3, error: None };
        let addresses = found.unwrap_or_else(|error| {
            dns.error = Some(error.to_string());
            Vec::new()
        });
        // An address in the URL is no question to name servers.
        let is_name = host.parse::<std::net::IpAddr>().is_err();
        (is_name.then_some(dns), addresses)
    }

    /// The most that will be sent to this number of addresses.
    pub fn plan(&self, addresses: usize) -> Sent {
        let mut plan = Sent { connections: addresses, requests: 1, ..Sent::default() };
        if self.secure {
            // One more may have to fetch tickets first, and one more goes to another address.
            let resumption = 2 * self.handshakes + 1 + usize::from(addresses > 1);
            plan.connections += if self.handshakes > 0 { resumption } else { 0 };
            plan.connections += if self.scans { scan::connections() } else { 0 };
        }
        // HTTP/2: a connection, and on it a WebSocket with a ping.
        let over_http2 = usize::from(self.secure && cfg!(feature = "http2"));
        plan.connections += over_http2;
        if self.request.websocket {
            plan.requests += over_http2;
            plan.pings = self.pings + usize::from(self.secure && self.pings > 0) + over_http2;
            // The largest size, and then bisection: a step for each bit of the number of sizes.
            let steps = (usize::BITS - self.sizes.len().leading_zeros()) as usize + 1;
            plan.message_headers = if self.sizes.is_empty() { 0 } else { steps };
            let more = plan.message_headers + usize::from(self.idle.is_some());
            plan.connections += more;
            plan.requests += more;
        }
        plan
    }
}

/// A connection to one address, and what it showed.
struct Met {
    stream: Stream,
    seen: Option<Arc<Seen>>,
}

/// Looks at the endpoint, and sends at most what the plan has.
///
/// # Errors
/// If the configuration of TLS cannot work.
pub fn gather(look: &Look, (dns, addresses): (Option<Dns>, Vec<SocketAddr>), plan: Sent) -> Result<Facts, Unusable> {
    let dialer = Dialer::new(&look.host, look.port, look.proxy.clone(), look.timeout, plan);
    let client = Client::new(&look.host, &look.tls)?;
    let mut facts = Facts {
        url: look.url.clone(),
        host: look.host.clone(),
        port: look.port,
        secure: look.secure,
        websocket: look.request.websocket,
        proxy: look.proxy.as_ref().map(|proxy| format!("{}:{}", proxy.host, proxy.port)),
        dns,
        ..Facts::default()
    };
    let sessions = Sessions::new();
    let offer = Offer { sessions: Some(Arc::clone(&sessions)), ..client.offer() };
    let unusable = |error: rustls::Error| Unusable(format!("TLS of a client: {error}"));
    let usual = client.prepare(&client.offer()).map_err(unusable)?;
    let resuming = client.prepare(&offer).map_err(unusable)?;
    let probe = Probe { look, client: &client, dialer: &dialer, sessions: &sessions, usual, resuming };
    probe.run(&addresses, &mut facts);
    facts.sent = dialer.sent();
    Ok(facts)
}

/// A look that is under way.
struct Probe<'a> {
    look: &'a Look,
    client: &'a Client,
    dialer: &'a Dialer,
    /// Sessions of the connection that is looked at in full.
    sessions: &'a Sessions,
    /// The usual offer, without sessions and with these.
    usual: Prepared,
    resuming: Prepared,
}

impl Probe<'_> {
    fn run(&self, addresses: &[SocketAddr], facts: &mut Facts) {
        let Some((main, met)) = self.meet_all(addresses, facts) else { return };
        let Met { mut stream, seen } = met;
        let mut may_send = true;
        let leaf = seen.as_ref().and_then(|seen| seen.shown().chain.into_iter().next());
        if let (Some(seen), Some(tls)) = (&seen, stream.tls()) {
            facts.tls = Some(negotiated(tls, seen));
            let chain = self.client.examine(seen);
            may_send = self.client.may_send(&chain, seen);
            facts.chain = Some(chain);
        }
        #[cfg(feature = "http2")]
        if self.look.secure && may_send {
            facts.http2 = self.http2(main);
        }
        let socket = if may_send {
            self.request(stream, facts)
        } else {
            stream.leave();
            None
        };
        std::thread::scope(|scope| {
            // The silence lasts longest, so it begins first.
            let asked = self.look.idle.filter(|_| socket.is_some());
            let idle = asked.map(|asked| scope.spawn(move || self.idle(main, asked)));
            if let Some(socket) = socket {
                let session = self.session(socket);
                // A server that ends every connection refuses no size.
                facts.sizes = if session.lost.is_none() { self.sizes(main, facts) } else { None };
                facts.session = Some(session);
            }
            if let Some(leaf) = &leaf {
                self.handshakes(main, addresses, facts, leaf);
            }
            facts.idle = idle.and_then(|idle| idle.join().ok());
        });
    }

    /// Connects to all addresses at once. The first that works, in the resolver's order, is looked at in full.
    fn meet_all(&self, addresses: &[SocketAddr], facts: &mut Facts) -> Option<(SocketAddr, Met)> {
        let met: Vec<(Address, Option<Met>)> = std::thread::scope(|scope| {
            let threads: Vec<_> = addresses
                .iter()
                .enumerate()
                .map(|(index, &address)| {
                    // Only the first leaves sessions, so that resumption elsewhere is one.
                    scope.spawn(move || self.meet(address, if index == 0 { &self.resuming } else { &self.usual }))
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let mut main = None;
        for ((mut address, met), &at) in met.into_iter().zip(addresses) {
            match (met, &main) {
                (Some(met), None) => {
                    address.main = true;
                    main = Some((at, met));
                }
                (Some(met), Some((_, first))) => {
                    let leaf = |met: &Met| met.seen.as_ref().and_then(|seen| seen.shown().chain.into_iter().next());
                    address.certificate_matches = self.look.secure.then(|| leaf(&met) == leaf(first));
                }
                (None, _) => {}
            }
            facts.addresses.push(address);
        }
        main
    }

    fn meet(&self, at: SocketAddr, offer: &Prepared) -> (Address, Option<Met>) {
        let mut address = Address { address: at.to_string(), ..Address::default() };
        let met = self.dialer.connect(at).and_then(|(stream, tcp_ms)| {
            address.tcp_ms = Some(tcp_ms);
            if !self.look.secure {
                return Ok(Met { stream, seen: None });
            }
            let (stream, ms) = self.secure(stream, offer)?;
            address.tls_ms = Some(ms);
            Ok(Met { stream, seen: Some(Arc::clone(&offer.seen)) })
        });
        let met = met.map_err(|trouble| address.trouble = Some(trouble)).ok();
        (address, met)
    }

    /// Handshakes, and returns the time that it took in milliseconds.
    fn secure(&self, mut stream: Stream, offer: &Prepared) -> Result<(Stream, f64), Trouble> {
        let failed = |error: rustls::Error| Trouble { kind: TroubleKind::Other, text: error.to_string() };
        let tls = offer.connection().map_err(failed)?;
        let start = Instant::now();
        stream.handshake(tls, self.dialer.until())?;
        Ok((stream, start.elapsed().as_secs_f64() * 1e3))
    }

    /// Sends the request on the main connection. Returns the WebSocket, if the server upgrades it.
    fn request(&self, mut stream: Stream, facts: &mut Facts) -> Option<WebSocket<'_>> {
        let (http, upgraded) = request::send(&mut stream, self.dialer, &self.look.request, self.nonce());
        facts.http = Some(http);
        Some(WebSocket::new(stream, upgraded?, self.client.provider.secure_random))
    }

    /// Looks at HTTP/2, if the server shows a certificate there that is trusted.
    #[cfg(feature = "http2")]
    fn http2(&self, address: SocketAddr) -> Option<super::facts::Http2> {
        use super::facts::Http2;
        use super::http2::{ALPN, look};
        let failed = |error: String| Some(Http2 { error: Some(error), ..Http2::default() });
        let offer = match self.client.prepare(&Offer { alpn: ALPN, ..self.client.offer() }) {
            Ok(offer) => offer,
            Err(error) => return failed(error.to_string()),
        };
        let connected = self.dialer.connect(address).and_then(|(stream, _)| self.secure(stream, &offer));
        let mut stream = match connected {
            Ok((stream, _)) => stream,
            Err(trouble) => return failed(trouble.text),
        };
        if !self.client.may_send(&self.client.examine(&offer.seen), &offer.seen) {
            return failed("the server shows a certificate that is not trusted".to_owned());
        }
        let found = look(&mut stream, self.dialer, &self.look.request, self.client.provider.secure_random);
        stream.leave();
        Some(found)
    }

    /// Looks at an open WebSocket until its end.
    fn session(&self, mut socket: WebSocket<'_>) -> Session {
        if let Some(wait) = self.look.first_message {
            socket.wait_for_message(wait);
        }
        socket.ping(self.dialer, self.look.pings);
        socket.update_keys(self.dialer);
        socket.close()
    }

    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        // The key proves that an answer belongs to a request (RFC 6455, section 1.3); it is no secret.
        let _ = self.client.provider.secure_random.fill(&mut nonce);
        nonce
    }

    /// One more WebSocket to the address, if its server may be sent requests.
    fn open(&self, address: SocketAddr) -> Result<WebSocket<'_>, String> {
        let (mut stream, _) = self.dialer.connect(address).map_err(|trouble| trouble.text)?;
        if self.look.secure {
            // An offer of its own, since other handshakes would overwrite what a shared one has seen.
            let offer = self.client.prepare(&self.client.offer()).map_err(|error| error.to_string())?;
            stream = self.secure(stream, &offer).map_err(|trouble| trouble.text)?.0;
            if !self.client.may_send(&self.client.examine(&offer.seen), &offer.seen) {
                return Err("the server shows a certificate that is not trusted".to_owned());
            }
        }
        let (http, upgraded): (Http, Option<Upgraded>) =
            request::send(&mut stream, self.dialer, &self.look.request, self.nonce());
        let status = http.status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
        let refused = || format!("the server answers {status}");
        let upgraded = upgraded.ok_or_else(refused)?;
        Ok(WebSocket::new(stream, upgraded, self.client.provider.secure_random))
    }

    fn idle(&self, address: SocketAddr, asked: Duration) -> Idle {
        match self.open(address) {
            Ok(socket) => socket.idle(asked),
            Err(error) => Idle { asked_s: asked.as_secs_f64(), error: Some(error), ..Idle::default() },
        }
    }

    /// Finds the largest size whose header is not refused, by bisection. Each step takes a connection.
    fn sizes(&self, address: SocketAddr, facts: &Facts) -> Option<Sizes> {
        let rtt = facts.addresses.iter().find(|one| one.main).and_then(|one| one.tcp_ms).unwrap_or(0.0);
        // A server that refuses a header does so at once: in a round trip.
        let wait = Duration::from_millis(100) + Duration::from_secs_f64(4.0 * rtt / 1e3);
        let candidates = &self.look.sizes;
        let mut sizes = Sizes::default();
        let (mut low, mut high) = (0, candidates.len());
        // The largest first: most servers take it, and then one step is enough.
        let mut middle = high.checked_sub(1)?;
        while low < high {
            let size = *candidates.get(middle)?;
            match self.open(address).ok()?.announce(self.dialer, size, wait) {
                Some(code) => {
                    (sizes.refused, sizes.code) = (Some(size), (code != 1006).then_some(code));
                    high = middle;
                }
                None => {
                    sizes.accepted = size;
                    low = middle + 1;
                }
            }
            middle = low.midpoint(high);
        }
        Some(sizes)
    }

    /// Looks at resumption, times handshakes, and scans what the server takes. `leaf` is its certificate.
    fn handshakes(&self, main: SocketAddr, all: &[SocketAddr], facts: &mut Facts, leaf: &[u8]) {
        if self.look.handshakes > 0 {
            facts.resumption = Some(self.resumption(main, all, facts));
        }
        if self.look.scans {
            facts.scan = Some(scan::scan(self.client, self.dialer, main, leaf));
        }
    }

    fn resumption(&self, main: SocketAddr, all: &[SocketAddr], facts: &Facts) -> Resumption {
        let mut found = Resumption::default();
        let works = |text: &SocketAddr| {
            facts.addresses.iter().any(|one| one.address == text.to_string() && one.trouble.is_none())
        };
        for _ in 0..self.look.handshakes {
            let Ok((stream, _)) = self.dialer.connect(main) else { break };
            let Ok((stream, ms)) = self.secure(stream, &self.usual) else { break };
            found.full_ms.push(ms);
            stream.leave();
        }
        // The main connection may have ended before its tickets were read, or may keep none.
        if self.sessions.offered() == 0 {
            self.resume(main, facts, FIRST_TICKET);
        }
        found.tickets = self.sessions.offered();
        for _ in 0..if found.tickets > 0 { self.look.handshakes } else { 0 } {
            let Some((Some(resumed), ms)) = self.resume(main, facts, NEXT_TICKET) else { break };
            found.resumes = Some(found.resumes.unwrap_or(true) && resumed);
            if !resumed {
                break;
            }
            found.resumed_ms.push(ms);
        }
        let other = all.iter().find(|&&address| address != main && works(&address));
        if let Some(&other) = other.filter(|_| found.resumes == Some(true))
            && let Some((Some(resumes), _)) = self.resume(other, facts, Duration::ZERO)
        {
            found.other_address = Some(OtherAddress { address: other.to_string(), resumes });
        }
        found
    }

    /// A handshake with the sessions so far, which then waits this long for further tickets.
    ///
    /// Returns whether it resumed, or `None` if there was no session to present, and its time.
    fn resume(&self, address: SocketAddr, facts: &Facts, wait: Duration) -> Option<(Option<bool>, f64)> {
        let (stream, _) = self.dialer.connect(address).ok()?;
        let (before, presented) = (self.sessions.offered(), self.sessions.presented());
        let (mut stream, ms) = self.secure(stream, &self.resuming).ok()?;
        let resumed = negotiated(stream.tls()?, &self.resuming.seen).resumed;
        let resumed = (self.sessions.presented() > presented).then_some(resumed);
        // Tickets come behind the handshake, half a round trip later.
        let rtt = facts.addresses.iter().find(|one| one.main).and_then(|one| one.tcp_ms).unwrap_or(0.0);
        let until = Instant::now() + wait + Duration::from_secs_f64(2.0 * rtt / 1e3);
        let mut none = [0; 1];
        while self.sessions.offered() == before && Instant::now() < until {
            if !matches!(stream.read(&mut none, until), Ok(1..)) {
                break;
            }
        }
        stream.leave();
        Some((resumed, ms))
    }
}
