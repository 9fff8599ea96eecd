//! Where a client comes from: what the proxies before a server say of it.
//!
//! A connection counts at the limits per source for the client, as soon as it is known. Until a header of the PROXY protocol is
//! whole, it counts for the peer of the socket: all connections of a proxy are one source then, which their number and the
//! deadline of the handshake bound.
//!
//! A client that a request names is known once the head is whole. From then on the connection counts for it, while it sends a
//! body and after the answer, until the next request names another. So a client that fills a proxy's connections with slow
//! bodies, or leaves many of them idle, pushes out its own first. The beginning of the next request counts for the client before,
//! since nobody else is known: proxies send heads in one piece.

use crate::accept::admission::Admission;
use crate::accept::counting::memory_of_via;
use crate::link::state::Link;
use crate::turn::shared::Shared;
use http::HeaderMap;
use log::Level;
use tautline_conn::front::{Begins, REFUSED, Via};
use tautline_conn::proxy_header::ProxyHeader;
use tautline_io::{Address, Driver, Token};

impl Shared {
    /// Resets a new connection of a peer that is none of the proxies.
    #[cold]
    pub(crate) fn refuse_peer(&mut self, driver: &mut dyn Driver, token: Token, peer: &Address) {
        self.counters.handshakes_failed.add(1);
        self.counters.proxy_headers_refused.add(1);
        self.log_peer(Level::Warn, peer, format_args!("{REFUSED}"));
        driver.close(token, true);
    }

    /// The bytes of a connection that failed look like a header of the PROXY protocol in this version.
    #[cold]
    pub(crate) fn hint_at_header<S, T>(&mut self, link: &Link<S, T>, version: Option<u8>) {
        let Some(version) = version else { return };
        let direct = link.cold.as_ref().and_then(|cold| cold.via()).map_or(&link.info.peer, |via| &via.direct);
        let remedy = if self.config.front.begins(direct) == Begins::WithHeader {
            "the second one: let one proxy alone send it"
        } else {
            "if this peer is a proxy, name it with --proxy-protocol-from (front.proxy_protocol_from)"
        };
        let line =
            format_args!("the first bytes look like a header of the PROXY protocol, version {version}; {remedy}");
        self.log_peer(Level::Info, &link.info.peer, line);
    }

    /// Notes the way of a connection's client.
    pub(crate) fn set_via<S, T>(&mut self, link: &mut Link<S, T>, via: Via) {
        self.account.remove_connection(memory_of_via(link));
        link.cold.get_or_insert_default().more().via = Some(Box::new(via));
        self.account.add_connection(memory_of_via(link));
    }
}

impl Admission {
    /// A connection began with this header of the PROXY protocol. Whether it may stay.
    pub(crate) fn note_header<S, T>(
        &mut self,
        link: &mut Link<S, T>,
        header: ProxyHeader,
        shared: &mut Shared,
    ) -> bool {
        let Some(client) = header.client().cloned() else { return true };
        shared.set_via(link, Via::new(link.info.peer.clone(), Some(header)));
        self.set_client(link, client.clone(), shared.now);
        self.enter(shared, link.token, &client)
    }

    /// The head of a request is whole, whose peer may name the client.
    pub(crate) fn note_forwarded<S, T>(&mut self, link: &mut Link<S, T>, headers: &HeaderMap, shared: &mut Shared) {
        let via = link.cold.as_ref().and_then(|cold| cold.via());
        let Some(client) = shared.config.front.other_client(headers, &link.info.peer, via) else { return };
        if via.is_none() {
            shared.set_via(link, Via::new(link.info.peer.clone(), None));
        }
        self.set_client(link, client, shared.now);
    }
}

#[cfg(test)]
mod tests;
