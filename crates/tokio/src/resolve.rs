//! Sockets to a host by its name: its addresses, and the race between them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_engine::{ConnectError, Lookup, Resolver, Target};
use tautline_io::Source;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Time between attempts (RFC 8305, section 5).
const DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers. Further attempts begin while earlier ones wait.
pub(crate) async fn connect(host: &str, port: u16, target: &Target) -> Result<TcpStream, ConnectError> {
    let found = addresses(host, port, target.resolver.as_deref()).await?;
    let mut rest = alternating(found).into_iter();
    let mut attempts = JoinSet::new();
    let mut last = ConnectError::Resolve(format!("{host} has no address"));
    loop {
        if let Some(address) = rest.next() {
            let source = target.source.clone();
            attempts.spawn(async move { (address, connect_to(address, source.as_ref()).await) });
        }
        let ended = if rest.len() > 0 {
            match tokio::time::timeout(DELAY, attempts.join_next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        } else {
            attempts.join_next().await
        };
        match ended {
            Some(Ok((_, Ok(stream)))) => return Ok(stream),
            Some(Ok((address, Err(error)))) => {
                last = ConnectError::Io { address: address.into(), error: error.into() };
            }
            Some(Err(_)) => {}
            None if rest.len() == 0 => return Err(last),
            None => {}
        }
    }
}

/// Connects to one address, from the end of this machine that the target names.
pub(crate) async fn connect_to(address: SocketAddr, source: Option<&Source>) -> io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(interface) = &source.interface {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot connect from the interface {interface:?}: {error}"))
        };
        socket.bind_device(Some(interface.as_bytes())).map_err(named)?;
    }
    if let Some(own) = source.address {
        socket.bind(SocketAddr::new(own, 0))?;
    }
    socket.connect(address).await
}

/// The addresses of a host, by the target's resolver or the system's.
async fn addresses(host: &str, port: u16, own: Option<&dyn Resolver>) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Some(own) = own
        && host.parse::<IpAddr>().is_err()
    {
        let (answer, answered) = oneshot::channel();
        own.resolve(Lookup::new(host, port, None, move |result| drop(answer.send(result))));
        // A lookup that is dropped answers too.
        return answered.await.unwrap_or_else(|_| Err(ConnectError::Resolve(format!("cannot resolve {host}"))));
    }
    let failed = |error: io::Error| ConnectError::Resolve(format!("cannot resolve {host}: {error}"));
    Ok(tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect())
}

/// Orders addresses so that families alternate, beginning with the one that the resolver put first.
fn alternating(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = found.first().is_some_and(SocketAddr::is_ipv4);
    let (a, b): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.is_ipv4() == first);
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let mut order = Vec::new();
    loop {
        let (one, other) = (a.next(), b.next());
        if one.is_none() && other.is_none() {
            return order;
        }
        order.extend(one);
        order.extend(other);
    }
}

#[cfg(test)]
mod tests {
    use super::{Lookup, Resolver, alternating};
    use tautline_engine::Target;
    use tautline_io::Source;

    fn target(port: u16) -> Target {
        Target::new(&format!("ws://localhost:{port}/")).unwrap()
    }

    /// Knows one host.
    #[derive(Debug)]
    struct Own;

    impl Resolver for Own {
        fn resolve(&self, lookup: Lookup) {
            std::thread::spawn(move || {
                let known = lookup.host() == "prices.internal";
                let found = vec![([127, 0, 0, 1], lookup.port()).into()];
                lookup.answer(if known { Ok(found) } else { Err("it is not registered") });
            });
        }
    }

    #[tokio::test]
    async fn source_and_resolver_of_the_target_are_used() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = target(port).with_source(Source::from([127, 0, 0, 9]).on_interface("lo")).with_resolver(Own);
        let stream = super::connect("prices.internal", port, &target).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip().to_string(), "127.0.0.9");
        let error = super::connect("other.internal", port, &target).await.unwrap_err().to_string();
        assert_eq!(error, "cannot resolve other.internal: it is not registered");
        let nowhere = target.with_source(Source::default().on_interface("no-such-if"));
        let error = super::connect("prices.internal", port, &nowhere).await.unwrap_err();
        assert!(format!("{error:#}").contains("no-such-if"), "{error:#}");
    }

    #[test]
    fn address_families_alternate() {
        let found = ["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1"].map(|address| address.parse().unwrap());
        let order: Vec<_> = alternating(found.to_vec()).iter().map(ToString::to_string).collect();
        assert_eq!(order, ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]);
        assert!(alternating(Vec::new()).is_empty());
    }

    #[tokio::test]
    async fn the_address_that_listens_wins() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = super::connect("localhost", port, &target(port)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().port(), port);
        drop(listener);
        assert!(super::connect("127.0.0.1", port, &target(port)).await.is_err());
    }
}
