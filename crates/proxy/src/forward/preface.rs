//! Headers of the PROXY protocol for servers: each connection to a server begins with one, and so names its client.

use serde::Deserialize;
use tautline::layers::buf::Buf;
use tautline::layers::engine::proxy_header::Addresses;
use tautline::layers::tls::fields::Fields;
use tautline::layers::tls::names::common_name;
use tautline::{Address, ProxyHeader, ProxyTls, Request};

/// Most bytes of a common name. X.520 allows 64 characters.
const MOST_COMMON_NAME: usize = 256;

/// The header with which connections to the servers of a backend begin.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyProtocol {
    /// Version 1: addresses, as text.
    V1,
    /// Version 2: addresses.
    V2,
    /// Version 2, with the facts of the client's TLS, an id of the request and a checksum.
    V2Tls,
}

impl ProxyProtocol {
    /// The header for the client of a request. `local` is the address that the client connected to, `id` that of the request.
    #[must_use]
    pub fn of_client(self, request: &Request<'_>, local: Option<Address>, id: Option<&str>) -> Vec<u8> {
        let told = request.via.and_then(|via| via.header.as_deref());
        let server = told.and_then(|told| told.addresses.as_ref()).map(|addresses| addresses.server.clone());
        let addresses = addresses(request.peer, server.or(local));
        let mut header = ProxyHeader::new(addresses.client, addresses.server);
        if self == Self::V2Tls {
            set_values(&mut header, request, told, id);
        }
        self.bytes(&header)
    }

    /// The header of a connection that is the proxy's own.
    #[must_use]
    pub fn of_check(self) -> Vec<u8> {
        self.bytes(&ProxyHeader::default())
    }

    fn bytes(self, header: &ProxyHeader) -> Vec<u8> {
        let mut out = Buf::new();
        match self {
            Self::V1 => header.write_v1(&mut out),
            Self::V2 | Self::V2Tls => {
                let written = header.write_v2(self == Self::V2Tls, &mut out);
                // Values that do not fit are left out. A server without the client's address would take the proxy for it.
                if written.is_err()
                    && let Some(Addresses { client, server }) = header.addresses.clone()
                {
                    let _ = ProxyHeader::new(client, server).write_v2(false, &mut out);
                }
            }
        }
        out.filled().to_vec()
    }
}

/// Both ends of the client's connection, in one family. An end that is not known is unspecified.
fn addresses(client: &Address, server: Option<Address>) -> Addresses {
    let (client, server) = (canonical(client), server.map(|server| canonical(&server)));
    let server = match (&client, server) {
        (Address::Tcp(_), Some(server @ Address::Tcp(_))) => server,
        (Address::Tcp(client), _) if client.is_ipv4() => Address::Tcp(([0; 4], 0).into()),
        (Address::Tcp(_), _) => Address::Tcp(([0_u16; 8], 0).into()),
        (_, Some(server)) if !matches!(server, Address::Tcp(_)) => server,
        _ => Address::UnixUnnamed,
    };
    Addresses { client, server }
}

/// The address, without the form in which IPv6 sockets name clients of IPv4.
fn canonical(address: &Address) -> Address {
    match address {
        Address::Tcp(address) => Address::Tcp((address.ip().to_canonical(), address.port()).into()),
        other => other.clone(),
    }
}

/// Sets what is known beside the addresses. A proxy in front that has had the client's TLS knows it.
fn set_values(header: &mut ProxyHeader, request: &Request<'_>, told: Option<&ProxyHeader>, id: Option<&str>) {
    let told_id = told.and_then(|told| told.unique_id.clone());
    header.unique_id = told_id.or_else(|| id.map(|id| id.as_bytes().into()));
    let Some(version) = request.tls.version else {
        if let Some(told) = told {
            (header.alpn, header.authority, header.tls) = (told.alpn.clone(), told.authority.clone(), told.tls.clone());
        }
        return;
    };
    header.alpn = request.tls.alpn.as_deref().map(Into::into);
    header.authority = request.tls.server_name.as_deref().map(Into::into);
    let certificate = request.tls.peer_certificates.first();
    let mut tls = ProxyTls::default();
    tls.is_tls = true;
    // The loop has verified it, or has refused the client.
    (tls.has_certificate, tls.is_verified) = (certificate.is_some(), certificate.is_some());
    tls.version = Some(version.to_string().into());
    tls.cipher = request.tls.suite.map(|suite| suite.to_string().into());
    let fields = certificate.and_then(|certificate| Fields::of(certificate));
    let name = fields.as_ref().and_then(|fields| common_name(fields.subject()));
    tls.common_name = name.filter(|name| name.len() <= MOST_COMMON_NAME).map(Into::into);
    header.tls = Some(Box::new(tls));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::{TlsInfo, Via, http};

    fn read(bytes: &[u8]) -> ProxyHeader {
        let (header, len) = ProxyHeader::read(bytes).unwrap().unwrap();
        assert_eq!(len, bytes.len());
        header
    }

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    /// The addresses in the header for a client, in version 1 and 2.
    fn told(client: &str, local: Option<&str>) -> [Option<Addresses>; 2] {
        let (head, peer, tls) = (http::Request::new(()), address(client), TlsInfo::default());
        let request = Request::new(&head, &peer, &tls);
        [ProxyProtocol::V1, ProxyProtocol::V2]
            .map(|version| read(&version.of_client(&request, local.map(address), None)).addresses)
    }

    #[test]
    fn both_versions_have_both_ends() {
        for (client, local, server) in [
            ("192.0.2.7:4711", Some("198.51.100.1:443"), "198.51.100.1:443"),
            ("[2001:db8::7]:4711", Some("[2001:db8::1]:443"), "[2001:db8::1]:443"),
            ("192.0.2.7:4711", Some("unix:/run/a.sock"), "0.0.0.0:0"),
            ("192.0.2.7:4711", None, "0.0.0.0:0"),
            ("[2001:db8::7]:4711", None, "[::]:0"),
        ] {
            let expected = Addresses { client: address(client), server: address(server) };
            assert_eq!(told(client, local), [Some(expected.clone()), Some(expected)], "{client} {local:?}");
        }
        let mapped = told("[::ffff:192.0.2.7]:4711", Some("[::ffff:198.51.100.1]:443"));
        assert_eq!(mapped, told("192.0.2.7:4711", Some("198.51.100.1:443")));
        // Version 1 has no addresses of Unix sockets.
        let [one, two] = told("unix:/run/b.sock", Some("unix:/run/a.sock"));
        assert_eq!((one, two.unwrap().server), (None, address("unix:/run/a.sock")));
    }

    #[test]
    fn the_address_and_the_tls_that_a_proxy_in_front_names_are_passed_on() {
        let (head, peer) = (http::Request::new(()), address("192.0.2.7:4711"));
        let mut header = ProxyHeader::new(peer.clone(), address("203.0.113.1:443"));
        header.authority = Some("app.example".into());
        header.unique_id = Some(b"first"[..].into());
        let via = Via::new(address("10.0.0.1:1"), Some(header.clone()));
        let tls = TlsInfo::default();
        let mut request = Request::new(&head, &peer, &tls);
        request.via = Some(&via);
        let told = read(&ProxyProtocol::V2Tls.of_client(&request, Some(address("10.0.0.2:80")), Some("second")));
        assert_eq!(told, header);
        let plain = read(&ProxyProtocol::V2.of_client(&request, None, Some("second")));
        assert_eq!((plain.addresses, plain.authority, plain.unique_id), (header.addresses, None, None));
    }

    #[test]
    fn values_that_do_not_fit_cost_no_address() {
        let (head, peer) = (http::Request::new(()), address("192.0.2.7:4711"));
        let mut tls = TlsInfo::default();
        tls.version = Some(tautline::ProtocolVersion::Tls13);
        tls.server_name = Some("a".repeat(5_000));
        let request = Request::new(&head, &peer, &tls);
        let told = read(&ProxyProtocol::V2Tls.of_client(&request, None, Some("id")));
        assert!(told.client() == Some(&peer) && told.authority.is_none(), "{told:?}");
    }

    #[test]
    fn a_check_is_the_proxys_own() {
        assert_eq!(ProxyProtocol::V1.of_check(), b"PROXY UNKNOWN\r\n");
        for version in [ProxyProtocol::V2, ProxyProtocol::V2Tls] {
            assert_eq!(read(&version.of_check()), ProxyHeader::default());
        }
    }
}
