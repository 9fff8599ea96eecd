use crate::balance::Server;
use crate::identity::Identity;
use crate::tally::{EndMeter, Flow, Gauge, Present, RouteTally, ServerTally};
use std::sync::Arc;
use std::time::Instant;
use tautline::http::StatusCode;
use tautline::{Note, Notes};

/// Counts and times one request, and tells the access log of it.
#[derive(Debug)]
pub(super) struct Meter {
    route: Arc<RouteTally>,
    /// The server that has the request, with what counts it.
    server: Option<Flow>,
    connecting: Option<Present>,
    /// When the present step began: to connect, or to wait for the head.
    since: Instant,
    shard: u32,
}

impl Meter {
    pub(super) fn new(route: Arc<RouteTally>, shard: u32, now: Instant) -> Self {
        Self { route, server: None, connecting: None, since: now, shard }
    }

    /// A server is chosen. One that had the request before has not answered it.
    pub(super) fn chose(&mut self, server: &Server) {
        self.connecting = None;
        self.tally().into_iter().for_each(|server| server.answered(None));
        self.server = Some(Flow { route: self.route.clone(), server: server.tally(self.shard) });
    }

    /// Begins to connect.
    pub(super) fn connects(&mut self, now: Instant) {
        self.since = now;
        self.connecting = self.server.as_ref().map(|flow| Present::new(&flow.server, Gauge::Connecting));
    }

    /// The connection is made, and the head is sent. Returns the time that it took, and what counts the connection.
    pub(super) fn connected(&mut self, now: Instant) -> (Note, Option<Present>) {
        self.connecting = None;
        let took = now.saturating_duration_since(self.since);
        self.since = now;
        let server = self.tally();
        server.into_iter().for_each(|server| server.connected(took));
        (Note::Time(took), server.map(|server| Present::new(server, Gauge::Connections)))
    }

    /// The head is sent on a connection that was kept.
    pub(super) const fn sent(&mut self, now: Instant) {
        self.since = now;
    }

    /// The head of the response has come.
    pub(super) fn head(&self, status: StatusCode, now: Instant) -> Note {
        let took = now.saturating_duration_since(self.since);
        if let Some(server) = self.tally() {
            server.head_came(took);
            server.answered(Some(status));
        }
        self.route.answered(Some(status));
        Note::Time(took)
    }

    /// The server did not answer: the proxy does, or the client has gone.
    pub(super) fn unanswered(&self, status: Option<StatusCode>) {
        self.tally().into_iter().for_each(|server| server.answered(None));
        self.route.answered(status);
    }

    /// The request is sent once more.
    pub(super) fn retried(&self) {
        self.tally().into_iter().for_each(|server| server.retried());
    }

    /// No connection was made, or no response came in time.
    pub(super) fn failed(&self) {
        self.tally().into_iter().for_each(|server| server.failed());
    }

    pub(super) fn up(&self, len: usize) {
        self.server.iter().for_each(|flow| flow.up(len));
    }

    pub(super) fn down(&self, len: usize) {
        self.server.iter().for_each(|flow| flow.down(len));
    }

    /// The meters of the two ends of a tunnel: the client's, and the server's.
    pub(super) fn tunnel(&self, connection: Option<Present>) -> (EndMeter, EndMeter) {
        let unknown = || Flow { route: self.route.clone(), server: Arc::default() };
        EndMeter::pair(self.server.clone().unwrap_or_else(unknown), connection)
    }

    fn tally(&self) -> Option<&Arc<ServerTally>> {
        self.server.as_ref().map(|flow| &flow.server)
    }
}

/// Notes where a request goes.
pub(super) fn note_place(notes: &mut Notes, backend: &str, server: Option<&Server>) {
    notes.set("backend", Note::from(backend));
    notes.set("server", Note::from(server.map_or("-", |server| server.name.as_str())));
}

/// Notes the route of a request and its identifiers.
pub(super) fn note_request(notes: &mut Notes, route: &str, identity: &Identity) {
    notes.set("route", Note::from(route));
    for (name, id) in [("request_id", &identity.request), ("trace", &identity.trace)] {
        if let Some(id) = id {
            notes.set(name, Note::from(id.as_str()));
        }
    }
}
