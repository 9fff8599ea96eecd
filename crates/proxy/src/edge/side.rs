use super::meter::Meter;
use crate::balance::{Lease, Passive, Place};
use crate::forward::head::{RequestHead, keeps_alive};
use crate::forward::{Body, Framing};
use crate::messages::{End, Messages, Offer, Rules, Settings};
use crate::plan::{Backend, Edits, Endpoint, HostSent, Plan};
use crate::resolved::Resolved;
use crate::tally::{EndMeter, Flow, Present};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tautline::http::header::{HOST, HeaderMap, HeaderValue};
use tautline::http::{Method, Response, Version};
use tautline::layers::ws::handshake::{HandshakeError, HeadReader};
use tautline::{Address, ConnId, DialId, HeadLimits};

/// The part of a connection in what the proxy does.
#[derive(Debug, Default)]
pub enum Side {
    /// None: it reads requests, or ends.
    #[default]
    Nothing,
    /// A client that is to read the responses that wait for it before its next request is read.
    Full,
    /// A client with a request.
    Client(Box<Exchange>),
    /// A connection to a server.
    Server(Box<ServerSide>),
    /// One end of a tunnel.
    Tunnel {
        /// The other end.
        partner: ConnId,
        /// The loop's time of the last bytes, in milliseconds.
        heard: u64,
        /// The server's place, kept by the client's end.
        lease: Option<Lease>,
        /// The backend, whose deadline counts.
        backend: Arc<Backend>,
        /// Counts its bytes.
        meter: EndMeter,
    },
    /// One end of a tunnel or pair that comes from another process.
    Arriving(Box<Arriving>),
    /// One end of a pair whose messages pass.
    Pair(Box<End>),
}

/// One end of a tunnel or of a pair whose messages pass that has arrived, before it knows the other.
#[derive(Debug)]
pub struct Arriving {
    /// The plan that it has arrived in.
    pub(super) plan: Arc<Plan>,
    pub(super) lease: Option<Lease>,
    pub(super) backend: Arc<Backend>,
    /// The names of its route and its server, by which it counts.
    pub(super) route: Box<str>,
    pub(super) server: Box<str>,
    pub(super) is_client: bool,
    pub(super) messages: Option<ArrivingMessages>,
}

/// The part that only the end of a pair has.
#[derive(Debug)]
pub struct ArrivingMessages {
    /// Longest message.
    pub(super) max_size: usize,
    /// The client's address, at its end.
    pub(super) source: Option<IpAddr>,
}

impl Arriving {
    pub(super) fn with(self, partner: ConnId) -> Side {
        let Self { plan, lease, backend, route, server, is_client, messages } = self;
        let shard = partner.shard();
        let flow = Flow { route: plan.tally_of(&route, shard), server: backend.group.tally_of(&server, shard) };
        let meter = EndMeter::new(flow, is_client);
        let Some(ArrivingMessages { max_size, source }) = messages else {
            // Its silence counts from the begin of this loop.
            return Side::Tunnel { partner, heard: 0, lease, backend, meter };
        };
        let messages = plan.messages_of(&route).unwrap_or_else(|| Arc::new(Messages::new(Settings::default())));
        let rules = Rules { messages, max_size, backend };
        Side::Pair(if is_client {
            End::of_client(rules, partner, source, lease, meter)
        } else {
            End::of_server(rules, partner, meter)
        })
    }
}

/// A request that is passed on.
#[derive(Debug)]
pub struct Exchange {
    pub(super) plan: Arc<Plan>,
    pub(super) backend: Arc<Backend>,
    pub(super) lease: Option<Lease>,
    /// Its place among those that wait for a server with room.
    pub(super) place: Option<Place>,
    /// The end of all its waits for one, once it has waited.
    pub(super) wait_end: Option<Instant>,
    /// Servers that could not be reached.
    pub(super) tried: Vec<usize>,
    pub(super) source: Option<IpAddr>,
    pub(super) is_secure: bool,
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) version: Version,
    /// The fields for the server.
    pub(super) headers: HeaderMap,
    pub(super) host: HostSent,
    /// The header of the PROXY protocol with which the connection to its server begins, if that begins with one.
    pub(super) preface: Vec<u8>,
    pub(super) framing: Framing,
    pub(super) upgrade: Option<HeaderValue>,
    /// The client's opening handshake, if messages pass instead of bytes.
    pub(super) offer: Option<Box<Offer>>,
    /// Whether the client waits for `100 Continue`.
    pub(super) expects: bool,
    pub(super) edits: Edits,
    /// The body on its way to the server.
    pub(super) body: Body,
    /// The connection to the server, once the head was sent to it.
    pub(super) server: Option<ConnId>,
    /// The attempt to reach a server.
    pub(super) dial: Option<DialId>,
    /// Attempts that were repeats after something had been sent.
    pub(super) repeats: u32,
    /// Whether the client may send another request.
    pub(super) keep_alive: bool,
    /// Whether the head of the response was passed on.
    pub(super) is_answered: bool,
    /// Whether the process ends soon, so that no tunnel may begin.
    pub(super) drains: bool,
    pub(super) due: Instant,
    pub(super) meter: Meter,
}

impl Exchange {
    /// The server's endpoint.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        self.backend.endpoints.get(self.lease.as_ref()?.server().number)
    }

    /// The addresses of the server's name, if they are looked up again and again.
    pub(super) fn resolved(&self) -> Option<&Resolved> {
        self.backend.resolve_every?;
        self.backend.resolved.get(self.lease.as_ref()?.server().number)
    }

    /// Whether it waits for a server, and its turn has come.
    pub(super) fn may_try(&self) -> bool {
        self.place.as_ref().is_some_and(Place::may_try)
    }

    /// Bytes of a body pass again, after one side was slow.
    pub(super) fn goes_on(&mut self, now: Instant) {
        if self.is_answered || !self.body.is_whole() {
            self.due = now + self.backend.times.body;
        }
    }

    /// No connection was made, or no response came in time.
    pub(super) fn server_failed(&self, now: Instant) {
        self.meter.failed();
        if let Some(lease) = self.lease.as_ref().filter(|lease| lease.failed(now)) {
            let Passive { failures, time } = lease.server().passive;
            let (backend, server) = (&self.backend.name, &lease.server().name);
            log::warn!(
                "backend {backend:?}: {server} gets no requests for {time:?} after {failures} failures in a row"
            );
        }
    }

    /// The head for the server.
    pub(super) fn head(&mut self) -> Vec<u8> {
        let host = match &self.host {
            HostSent::Client => None,
            HostSent::Server => self.endpoint().and_then(|endpoint| HeaderValue::try_from(endpoint.authority()).ok()),
            HostSent::Name(name) => Some(name.clone()),
        };
        if let Some(host) = host {
            self.headers.insert(HOST, host);
        }
        let mut out = Vec::with_capacity(1024);
        let is_last = !self.may_share();
        let Self { method, target, headers, framing, upgrade, .. } = self;
        RequestHead { method, target, headers, framing: *framing, upgrade: upgrade.as_ref(), is_last }.write(&mut out);
        out
    }

    /// Whether its connection to the server may serve other requests too. One that names its client may not.
    pub(super) const fn may_share(&self) -> bool {
        self.preface.is_empty()
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct ServerSide {
    pub(super) endpoint: Endpoint,
    /// The address that was connected to.
    pub(super) address: Address,
    /// The client whose request it has.
    pub(super) client: Option<ConnId>,
    /// Whether it served another request before.
    pub(super) is_reused: bool,
    /// Whether it may serve another request.
    pub(super) keeps: bool,
    reader: HeadReader,
    partial: Vec<u8>,
    /// The body of the response, once its head was read.
    pub(super) body: Option<Body>,
    /// Counts the connection.
    pub(super) open: Option<Present>,
}

impl ServerSide {
    pub(super) fn new(endpoint: Endpoint, address: Address, client: ConnId, open: Option<Present>) -> Self {
        Self {
            endpoint,
            address,
            client: Some(client),
            is_reused: false,
            keeps: false,
            reader: HeadReader::new(HeadLimits::default()),
            partial: Vec::new(),
            body: None,
            open,
        }
    }

    /// Gets another request.
    pub(super) fn reuse(&mut self, client: ConnId) {
        self.client = Some(client);
        (self.is_reused, self.keeps, self.body) = (true, false, None);
    }

    /// Whether a part of a response has come.
    pub(super) const fn has_answer(&self) -> bool {
        !self.partial.is_empty() || self.body.is_some()
    }

    /// Reads a head. Returns it with the bytes that belonged to it, once it is whole.
    pub(super) fn head(&mut self, bytes: &[u8]) -> Result<Option<(Response<()>, usize)>, HandshakeError> {
        let before = self.partial.len();
        let whole = if before == 0 {
            self.reader.response(bytes)?
        } else {
            self.partial.extend_from_slice(bytes);
            self.reader.response(&self.partial)?
        };
        match whole {
            Some((response, used)) => {
                self.partial = Vec::new();
                self.keeps = keeps_alive(&response);
                Ok(Some((response, used.saturating_sub(before))))
            }
            None => {
                if before == 0 {
                    self.partial.extend_from_slice(bytes);
                }
                Ok(None)
            }
        }
    }
}
