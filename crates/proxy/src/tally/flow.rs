use super::{Gauge, Present, RouteTally, Rule, ServerTally};
use std::sync::Arc;

/// Counts the bytes of one client on their way to a server and back.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) route: Arc<RouteTally>,
    pub(crate) server: Arc<ServerTally>,
}

impl Flow {
    /// Bytes of the client for the server.
    pub(crate) fn up(&self, len: usize) {
        self.route.received.add(len as u64);
        self.server.sent.add(len as u64);
    }

    /// Bytes of the server for the client.
    pub(crate) fn down(&self, len: usize) {
        self.server.received.add(len as u64);
        self.route.sent.add(len as u64);
    }
}

/// Counts one end of a tunnel, or of a pair whose messages pass.
#[derive(Debug)]
pub struct EndMeter {
    flow: Flow,
    is_client: bool,
    /// The tunnel at the client's end, and the connection at the server's.
    _present: Option<Present>,
}

impl EndMeter {
    /// Those of a client's end, and of its server's, whose connection is counted already.
    pub(crate) fn pair(flow: Flow, connection: Option<Present>) -> (Self, Self) {
        let client = Self::new(flow.clone(), true);
        (client, Self { flow, is_client: false, _present: connection })
    }

    /// That of one end, which counts as present from now on.
    pub(crate) fn new(flow: Flow, is_client: bool) -> Self {
        let gauge = if is_client { Gauge::Tunnels } else { Gauge::Connections };
        let present = Present::new(&flow.server, gauge);
        Self { flow, is_client, _present: Some(present) }
    }

    /// Whether it is the client's end.
    pub(crate) const fn is_client(&self) -> bool {
        self.is_client
    }

    /// The names of its route and its server.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.flow.route.name, &self.flow.server.name)
    }

    /// Bytes of this end for the other one.
    pub(crate) fn passed(&self, len: usize) {
        if self.is_client { self.flow.up(len) } else { self.flow.down(len) }
    }

    /// A message of this end for the other one.
    pub(crate) fn message(&self, len: usize) {
        self.passed(len);
        let Flow { route, server } = &self.flow;
        let counts = if self.is_client {
            [&route.messages_received, &server.messages_sent]
        } else {
            [&server.messages_received, &route.messages_sent]
        };
        counts.into_iter().for_each(|count| count.add(1));
    }

    /// Messages for this end were dropped.
    pub(crate) fn dropped(&self, count: u32) {
        self.flow.route.dropped.add(count.into());
    }

    /// The WebSocket is closed by a rule.
    pub(crate) fn closed(&self, rule: Rule) {
        self.flow.route.closed[rule as usize].add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::count::Count;

    #[test]
    fn bytes_count_for_the_route_and_for_the_server() {
        let flow = Flow { route: Arc::default(), server: Arc::default() };
        flow.up(3);
        flow.down(5);
        let Flow { route, server } = flow;
        assert_eq!([route.received.get(), route.sent.get(), server.sent.get(), server.received.get()], [3, 5, 3, 5]);
    }

    #[test]
    fn messages_count_each_way() {
        let flow = Flow { route: Arc::default(), server: Arc::default() };
        let (client, server) = EndMeter::pair(flow.clone(), None);
        client.message(3);
        client.message(4);
        server.message(50);
        client.dropped(2);
        client.closed(Rule::Slow);
        let Flow { route, server } = &flow;
        assert_eq!((route.messages_received.get(), route.messages_sent.get()), (2, 1));
        assert_eq!((server.messages_sent.get(), server.messages_received.get()), (2, 1));
        assert_eq!((route.received.get(), route.sent.get(), route.dropped.get()), (7, 50, 2));
        assert_eq!(route.closed.each_ref().map(Count::get), [0, 0, 0, 0, 1]);
        assert_eq!(server.tunnels.get(), 1);
        drop(client);
        assert_eq!(server.tunnels.get(), 0);
    }
}
