//! The connections of each source, as the application's [`Gate`](tautline_conn::gate::Gate) bounds them.

use crate::accept::admission::Admission;
use crate::link::state::Link;
use crate::turn::shared::Shared;
use log::Level;
use tautline_conn::front::Via;
use tautline_conn::gate::Place;
use tautline_io::{Address, Token};

/// The text of a log line about a client that the gate refuses.
const REFUSED: &str = "refused: its source has too many connections, or opens too many (gate)";

impl Admission {
    /// Asks the gate for a new connection of a client, if there is one. False if the connection is refused.
    pub(crate) fn enter(&mut self, shared: &mut Shared, token: Token, client: &Address) -> bool {
        let Some(gate) = shared.config.gate.clone() else { return true };
        if shared.config.front.forwarded_from.contain(client) {
            return true;
        }
        let place = gate.enter(client);
        self.take_place(shared, token, client, place)
    }

    /// Asks the limits of connections for a stream that `by` carries. The gate is asked if it was for `by`. False if the stream is
    /// refused: it cannot wait in a backlog, as a connection can.
    pub(crate) fn enter_stream(&mut self, shared: &mut Shared, token: Token, by: Token, client: &Address) -> bool {
        let limit = shared.config.limits.max_connections;
        if self.is_full(&shared.config.limits) {
            shared.counters.accept_pauses.add(1);
            shared.log_peer(Level::Info, client, format_args!("stream refused: limits.max_connections ({limit})"));
            // Connections that wait for their peer may give way.
            self.check();
            return false;
        }
        let Some(gate) = shared.config.gate.clone().filter(|_| self.has_place(by)) else { return true };
        let place = gate.enter_stream(client);
        self.take_place(shared, token, client, place)
    }

    /// Keeps the place that the gate gives. False if it refuses.
    fn take_place(&mut self, shared: &mut Shared, token: Token, client: &Address, place: Option<Place>) -> bool {
        let is_refused = place.is_none();
        if is_refused {
            shared.counters.connections_refused.add(1);
            shared.log_peer(Level::Info, client, format_args!("{REFUSED}"));
        }
        self.keep_place(token, place);
        !is_refused
    }

    /// Counts a connection that has come from another process.
    pub(crate) fn enter_again<S, T>(&mut self, shared: &Shared, link: &Link<S, T>) {
        let Some(gate) = &shared.config.gate else { return };
        let client = link.cold.as_ref().and_then(|cold| cold.via()).map_or(&link.info.peer, Via::base);
        if !shared.config.front.forwarded_from.contain(client) {
            self.keep_place(link.token, Some(gate.enter_again(client)));
        }
    }
}
