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

use crate::accept::counting::memory_of;
use crate::handler::Handler;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::core::Core;
use crate::turn::shared::Shared;
use http::HeaderMap;
use log::Level;
use tautline_conn::closed::Cause;
use tautline_conn::front::{Begins, REFUSED, Via};
use tautline_conn::proxy_header::ProxyHeader;
use tautline_io::{Address, Driver, Token};
use tautline_tls::Engine;

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
}

impl<E: Engine, H: Handler> Core<E, H> {
    /// A connection began with this header of the PROXY protocol.
    pub(crate) fn note_header(&mut self, link: &mut Link<E::Session, H::State>, header: ProxyHeader) {
        if let Some(client) = header.client().cloned() {
            let direct = link.info.peer.clone();
            self.set_via(link, Via::new(direct, Some(header)));
            self.set_client(link, client.clone());
            if !self.admission.enter(&mut self.shared, link.token, &client) {
                self.end(link, Phase::Gone { reset: true }, Cause::Overloaded);
            }
        }
    }

    /// The head of a request is whole, whose peer may name the client.
    pub(crate) fn note_forwarded(&mut self, link: &mut Link<E::Session, H::State>, headers: &HeaderMap) {
        let via = link.cold.as_ref().and_then(|cold| cold.via());
        let Some(client) = self.shared.config.front.other_client(headers, &link.info.peer, via) else { return };
        if via.is_none() {
            let direct = link.info.peer.clone();
            self.set_via(link, Via::new(direct, None));
        }
        self.set_client(link, client);
    }

    /// The client is known. A connection that waits for it does so as one of its own.
    fn set_client(&mut self, link: &mut Link<E::Session, H::State>, client: Address) {
        let before = std::mem::replace(&mut link.info.peer, client);
        self.admission.change_source(&before, link, self.shared.now);
    }

    pub(crate) fn set_via(&mut self, link: &mut Link<E::Session, H::State>, via: Via) {
        self.shared.account.remove_connection(memory_of(link, &self.engine));
        link.cold.get_or_insert_default().more().via = Some(Box::new(via));
        self.shared.account.add_connection(memory_of(link, &self.engine));
    }
}

#[cfg(test)]
mod tests;
