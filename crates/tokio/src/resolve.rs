//! Sockets to a host by its name: its addresses, and the race between them.

use crate::addresses::Addresses;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::{ConnectError, Lookup, Resolver, Target};
use tautline_io::{Address, Source};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Time between attempts (RFC 8305, section 5).
const DELAY: Duration = Duration::from_millis(250);

/// Most addresses of a target that are tried.
const MOST_ADDRESSES: usize = 64;

/// Connects to the first address of `host` that answers. Further attempts begin while earlier ones wait.
pub(crate) async fn connect(
    host: &str,
    port: u16,
    target: &Target,
    memory: &Addresses,
) -> Result<(SocketAddr, TcpStream), ConnectError> {
    let found = if target.addresses.is_empty() {
        addresses(host, port, target.resolver.as_deref()).await?
    } else {
        target.addresses.iter().take(MOST_ADDRESSES).copied().collect()
    };
    let mut rest = memory.order(found).into_iter();
    let mut attempts = JoinSet::new();
    let mut failed = Vec::new();
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
            Some(Ok((address, Ok(stream)))) => return Ok((address, stream)),
            Some(Ok((address, Err(error)))) => {
                let (own, error) = (Address::from(address), Arc::new(error));
                failed.push((own.clone(), error.clone()));
                memory.failed(address, &ConnectError::Io { address: own, error, others: Arc::default() });
            }
            Some(Err(_)) => {}
            None if rest.len() == 0 => {
                let none = || ConnectError::Resolve(format!("{host} has no address"));
                return Err(ConnectError::of_attempts(failed).unwrap_or_else(none));
            }
            None => {}
        }
    }
}

/// Connects to one address, from the end of this machine that the target names.
pub(crate) async fn connect_to(address: SocketAddr, source: Option<&Source>) -> io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    source.tcp.apply(&socket, address.is_ipv6())?;
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

#[cfg(test)]
mod tests {
    use super::{Addresses, Lookup, Resolver};
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
        let (_, stream) = super::connect("prices.internal", port, &target, &Addresses::default()).await.unwrap();
        assert_eq!(stream.local_addr().unwrap().ip().to_string(), "127.0.0.9");
        let error =
            super::connect("other.internal", port, &target, &Addresses::default()).await.unwrap_err().to_string();
        assert_eq!(error, "cannot resolve other.internal: it is not registered");
        let nowhere = target.with_source(Source::default().on_interface("no-such-if"));
        let error = super::connect("prices.internal", port, &nowhere, &Addresses::default()).await.unwrap_err();
        assert!(format!("{error:#}").contains("no-such-if"), "{error:#}");
    }

    #[tokio::test]
    async fn the_address_that_listens_wins() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_, stream) = super::connect("localhost", port, &target(port), &Addresses::default()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().port(), port);
        drop(listener);
        assert!(super::connect("127.0.0.1", port, &target(port), &Addresses::default()).await.is_err());
    }
}
