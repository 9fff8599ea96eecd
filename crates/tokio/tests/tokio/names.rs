//! International host names and zones of IPv6 addresses.

use std::net::SocketAddr;
use tautline_dev_cert::{Authority, Leaf};
use tautline_tokio::{Acceptor, ClientConfig, Connector, Lookup, Resolver, Roots, ServerConfig, Target};
use tokio::net::TcpListener;

/// Knows one host.
#[derive(Debug)]
struct Known(&'static str, SocketAddr);

impl Resolver for Known {
    fn resolve(&self, lookup: Lookup) {
        let known = lookup.host() == self.0;
        lookup.answer(if known { Ok(vec![self.1]) } else { Err("it is not registered") });
    }
}

#[tokio::test]
async fn an_international_name_is_ascii_for_resolver_tls_and_http() {
    const ASCII: &str = "xn--bcher-kva.example";
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&[ASCII])).unwrap();
    let roots = Roots::Pem(authority.certificate().into());
    let connector = Connector::new(&ClientConfig::default().with_roots(roots)).unwrap();
    let acceptor = Acceptor::new(&ServerConfig::new([certificate])).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let known = || Known(ASCII, listener.local_addr().unwrap());
    let mut by_name = Target::new("wss://localhost/").unwrap().with_resolver(Known("localhost", known().1));
    by_name.server_name = Some("Bücher.example".to_owned());
    for (target, host) in
        [(Target::new("wss://Bücher.example/ü").unwrap().with_resolver(known()), ASCII), (by_name, "localhost")]
    {
        // The path is the user's to encode.
        let mut target = target;
        target.uri = target.uri.to_string().replace("/ü", "/").parse().unwrap();
        let accept = async {
            let asking = acceptor.ask(listener.accept().await.unwrap().0).await.unwrap();
            let seen = asking.request().headers()["host"].to_str().unwrap().to_owned();
            (seen, asking.upgrade(http::HeaderMap::new()).await.unwrap())
        };
        let ((seen, server), client) = tokio::join!(accept, connector.connect(target));
        client.unwrap();
        assert_eq!((&*seen, server.tls().server_name.as_deref()), (host, Some(ASCII)));
    }
}

#[tokio::test]
async fn a_zone_is_used_for_the_address_and_sent_to_nobody() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The loopback interface has number 1.
    let accept = async {
        let asking = Acceptor::plain().ask(listener.accept().await.unwrap().0).await.unwrap();
        let host = asking.request().headers()["host"].to_str().unwrap().to_owned();
        (host, asking.upgrade(http::HeaderMap::new()).await.unwrap())
    };
    let uri = format!("ws://[::1%251]:{port}/");
    let ((host, _), client) = tokio::join!(accept, tautline_tokio::connect(&uri));
    client.unwrap();
    assert_eq!(host, format!("[::1]:{port}"));
}
