//! The proxies before a server, and the way of a client through them.

use crate::forwarded::ForwardedHeader;
use crate::prefixes::Prefixes;
use crate::proxy_header::ProxyHeader;
use http::HeaderMap;
use tautline_io::Address;

/// The proxies before a server that tell where a client comes from.
///
/// Without any, a connection's peer is the client.
///
/// ```
/// # mod tautline { pub use tautline_conn::{front::Front, prefixes::Prefixes}; }
/// use tautline::{Front, Prefixes};
///
/// fn behind_haproxy(front: &mut Front) -> Result<(), String> {
///     front.proxy_protocol_from = Prefixes::list(&["10.0.0.0/24", "unix"])?;
///     Ok(())
/// }
/// # let mut front = Front::default();
/// # behind_haproxy(&mut front).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Front {
    /// Peers whose connections begin with a header of the PROXY protocol, version 1 or 2, before TLS.
    ///
    /// A connection of theirs without one is reset, and so is one with a wrong header. The header has the time of
    /// [`Deadlines::handshake`](crate::config::Deadlines).
    pub proxy_protocol_from: Prefixes,
    /// Whether other peers are served without a header. Otherwise their connections are reset, if there are
    /// [some](Self::proxy_protocol_from) that send one.
    pub others_without_header: bool,
    /// Peers whose requests name the client in [`forwarded_header`](Self::forwarded_header).
    ///
    /// A proxy that sends a header of the PROXY protocol is not one of them: the client that it names may be.
    pub forwarded_from: Prefixes,
    /// The header in which they do. It is one that all of them write: they pass others on as clients send them.
    pub forwarded_header: ForwardedHeader,
}

/// The beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// TLS or HTTP, at once.
    Plainly,
    /// A header of the PROXY protocol.
    WithHeader,
    /// Nothing: the peer is not among those who may connect.
    Refused,
}

/// The text of a log line about a peer that is [refused](Begins::Refused).
pub const REFUSED: &str = "refused: it is not among the proxies whose connections begin with a header of the PROXY \
                           protocol (front.proxy_protocol_from, --proxy-protocol-from)";

impl Front {
    /// The beginning of a connection from `peer`.
    #[must_use]
    pub fn begins(&self, peer: &Address) -> Begins {
        match () {
            () if self.proxy_protocol_from.is_empty() => Begins::Plainly,
            () if self.proxy_protocol_from.contain(peer) => Begins::WithHeader,
            () if self.others_without_header => Begins::Plainly,
            () => Begins::Refused,
        }
    }

    /// The client of a request with these headers, on a connection whose peer is `base` before any request.
    #[must_use]
    pub fn client(&self, headers: &HeaderMap, base: &Address) -> Address {
        let named = self.forwarded_header.client(headers, base, &self.forwarded_from);
        named.unwrap_or_else(|| base.clone())
    }

    /// The client that a request with these headers names, if it is another than that before, `client` with its way.
    #[must_use]
    pub fn other_client(&self, headers: &HeaderMap, client: &Address, via: Option<&Via>) -> Option<Address> {
        if self.forwarded_from.is_empty() {
            return None;
        }
        let named = self.client(headers, via.map_or(client, Via::base));
        (named != *client).then_some(named)
    }
}

/// The way of a client through the proxies before a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Via {
    /// The peer of the socket: the proxy next to the server.
    pub direct: Address,
    /// The header of the PROXY protocol with which the connection began, if it named a client.
    pub header: Option<Box<ProxyHeader>>,
}

impl Via {
    /// The way of a connection from `direct` that began with this header, if it began with one.
    #[must_use]
    pub fn new(direct: Address, header: Option<ProxyHeader>) -> Self {
        Self { direct, header: header.map(Box::new) }
    }

    /// The peer before any request: the client in the header, or the peer of the socket.
    #[must_use]
    pub fn base(&self) -> &Address {
        self.header.as_ref().and_then(|header| header.client()).unwrap_or(&self.direct)
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.header.as_ref().map_or(0, |header| header.memory())
    }
}

/// The client of a server's connection, as the proxies before the server name it.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address: that of the socket's peer, if no proxy names another.
    pub peer: Address,
    /// Its way, if it is not the socket's peer.
    pub via: Option<Via>,
}

impl Client {
    /// The peer of a socket.
    #[must_use]
    pub const fn new(peer: Address) -> Self {
        Self { peer, via: None }
    }

    /// The connection began with this header.
    pub fn note_header(&mut self, header: ProxyHeader) {
        if let Some(named) = header.client().cloned() {
            let direct = std::mem::replace(&mut self.peer, named);
            self.via = Some(Via::new(direct, Some(header)));
        }
    }

    /// The head of a request is whole, whose peer may name the client.
    pub fn note_forwarded(&mut self, front: &Front, headers: &HeaderMap) {
        if let Some(client) = front.other_client(headers, &self.peer, self.via.as_ref()) {
            let direct = std::mem::replace(&mut self.peer, client);
            self.via.get_or_insert_with(|| Via::new(direct, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Begins, Front, Via};
    use crate::prefixes::Prefixes;
    use crate::proxy_header::ProxyHeader;
    use http::header::{HeaderMap, HeaderValue};
    use tautline_io::Address;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    #[test]
    fn a_header_is_expected_of_listed_peers_alone() {
        let mut front = Front::default();
        let (listed, other) = (address("10.0.0.1:1"), address("192.0.2.1:1"));
        assert_eq!((front.begins(&listed), front.begins(&other)), (Begins::Plainly, Begins::Plainly));
        front.proxy_protocol_from = Prefixes::list(&["10.0.0.0/8"]).unwrap();
        assert_eq!((front.begins(&listed), front.begins(&other)), (Begins::WithHeader, Begins::Refused));
        assert_eq!(front.begins(&Address::UnixUnnamed), Begins::Refused);
        front.others_without_header = true;
        assert_eq!((front.begins(&listed), front.begins(&other)), (Begins::WithHeader, Begins::Plainly));
    }

    #[test]
    fn the_client_in_a_header_may_be_a_proxy_that_names_another() {
        let front = Front { forwarded_from: Prefixes::list(&["10.0.0.0/8"]).unwrap(), ..Front::default() };
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.7, 10.0.0.9"));
        let client = |peer: &str| {
            let header = ProxyHeader::new(address(peer), address("192.0.2.1:443"));
            let via = Via::new(address("203.0.113.1:1"), Some(header));
            front.client(&headers, via.base()).to_string()
        };
        assert_eq!(client("10.0.0.1:5"), "198.51.100.7:0");
        assert_eq!(client("11.0.0.1:5"), "11.0.0.1:5");
        let via = Via::new(address("10.0.0.1:5"), None);
        assert_eq!(front.client(&headers, via.base()), address("198.51.100.7:0"));
        assert_eq!(front.client(&HeaderMap::new(), via.base()), address("10.0.0.1:5"));
    }
}
