//! A simulated venue on a server's loop.

use super::answer;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::{
    Address, CloseCode, Closed, Conn, ConnId, Handler, Message, Opening, Outgoing, Reply, Request, ShardContext, http,
};
use tautline_venue::{Access, End, Kind, Out, Payload, Setup, Venue};

/// The shard's timer for the market, and a connection's timer for pings.
const MARKET: u64 = 0;
const PING: u64 = 1;

/// Binance sends a ping frame this often, and ends connections that have not answered for `PATIENCE`.
const PINGS: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// The header with an API key, which binary streams need.
const KEY: &str = "x-mbx-apikey";

/// `taut serve --app venue`: one [`Venue`], whose time is that of the loop. A second loop would have another market.
#[derive(Debug)]
pub struct VenueApp {
    venue: Venue,
    start: Instant,
    last_link: u32,
    conns: HashMap<u32, ConnId>,
    links: HashMap<ConnId, Linked>,
}

#[derive(Debug)]
struct Linked {
    link: u32,
    /// The last pong.
    heard: Instant,
}

impl VenueApp {
    /// Runs a venue from now on.
    #[must_use]
    pub fn new(mut setup: Setup) -> Self {
        setup.begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (conns, links) = (HashMap::new(), HashMap::new());
        Self { venue: Venue::new(setup), start: Instant::now(), last_link: 0, conns, links }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does what is due, and what the venue wants done.
    fn act(&mut self, shard: &mut ShardContext<'_>) {
        for planted in self.venue.take_planted() {
            log::info!("a planted fault: {planted:?}");
        }
        while let Some(out) = self.venue.poll_out() {
            match out {
                Out::Message { link, payload, .. } => {
                    let Some(conn) = self.conns.get(&link) else { continue };
                    let message = match &payload {
                        Payload::Text(text) => Outgoing::text(text),
                        Payload::Binary(bytes) => Outgoing::binary(bytes),
                    };
                    shard.send_to(&[*conn], message);
                }
                Out::Close { link, end } => {
                    let Some(conn) = self.conns.remove(&link) else { continue };
                    self.links.remove(&conn);
                    let (code, reason) = match end {
                        End::Aged => (CloseCode::GOING_AWAY, "the connection is too old"),
                        End::Lost => (CloseCode::INTERNAL_ERROR, "a planted fault"),
                        End::Banned(reason) => (CloseCode::POLICY, reason),
                    };
                    // A loop that does not take it is ending.
                    let _ = shard.handle().close(conn, code, reason);
                }
            }
        }
    }
}

/// The address by which limits count. All clients of a Unix socket have one.
fn address(peer: &Address) -> IpAddr {
    match peer {
        Address::Tcp(address) => address.ip(),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

fn access<'a>(request: &'a http::Request<()>, peer: &Address) -> Access<'a> {
    let (uri, has_key) = (request.uri(), request.headers().contains_key(KEY));
    Access { address: address(peer), path: uri.path(), query: uri.query().unwrap_or_default(), has_key }
}

impl Handler for VenueApp {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        shard.set_timer(Duration::ZERO, MARKET);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        let (access, now) = (access(request.http, request.peer), self.now());
        if request.is_upgrade {
            let admitted = self.venue.admit(&access, now);
            let refused = |status| http::StatusCode::from_u16(status).map_or_else(|_| Reply::upgrade(), Reply::status);
            return admitted.map_or_else(|refusal| refused(refusal.status()), |()| Reply::upgrade());
        }
        match access.path {
            "/market/rest" => self.venue.set_resting(true),
            "/market/go" => self.venue.set_resting(false),
            _ => {}
        }
        let Some(answered) = self.venue.get(access.address, access.path, access.query, now) else {
            let is_order = access.path.starts_with("/market/");
            return if is_order { Reply::status(http::StatusCode::OK) } else { answer(request, "imitates a venue") };
        };
        let mut response = http::Response::new(answered.body.into_bytes());
        if let Ok(status) = http::StatusCode::from_u16(answered.status) {
            *response.status_mut() = status;
        }
        let json = http::HeaderValue::from_static("application/json;charset=UTF-8");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        Reply::Respond(response)
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let Some(request) = opening.request else { return };
        self.last_link += 1;
        let link = self.last_link;
        self.venue.open(link, &access(request, &conn.peer().clone()), self.now());
        self.conns.insert(link, conn.id());
        self.links.insert(conn.id(), Linked { link, heard: Instant::now() });
        if self.venue.setup().kind == Kind::Binance {
            conn.set_timer(PINGS, PING);
        }
        // The market may have rested.
        conn.shard().set_timer(Duration::ZERO, MARKET);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let Some(linked) = self.links.get(&conn.id()) else { return };
        self.venue.receive(linked.link, message.data(), self.start.elapsed());
        self.act(&mut conn.shard());
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, _: u64) {
        let Some(linked) = self.links.get(&conn.id()) else { return };
        if linked.heard.elapsed() > PATIENCE {
            return conn.close(CloseCode::POLICY, "no pong");
        }
        // A stalled connection sends nothing at all.
        if !self.venue.is_dead(linked.link) {
            // The payload is the time in ms, so it has a few digits.
            let _ = conn.ping(self.now().as_millis().to_string().as_bytes());
        }
        conn.set_timer(PINGS, PING);
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, ()>, _: &[u8]) {
        if let Some(linked) = self.links.get_mut(&conn.id()) {
            linked.heard = Instant::now();
        }
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, _: u64) {
        // Messages that have not left yet are enough for this turn.
        if !shard.is_full() {
            self.venue.advance(self.now());
            self.act(shard);
        }
        let now = self.now();
        shard.set_timer(self.venue.next_due().saturating_sub(now), MARKET);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, _: &Closed) {
        if let Some(linked) = self.links.remove(&conn.id()) {
            self.conns.remove(&linked.link);
            self.venue.closed(linked.link);
        }
    }
}
