//! Sockets to a host by its name: its addresses, and the race between them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tautline_engine::ConnectError;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Time between attempts (RFC 8305, section 5).
const DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers. Further attempts begin while earlier ones wait.
pub(crate) async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let failed = |error: io::Error| ConnectError::Resolve(format!("cannot resolve {host}: {error}"));
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    let mut rest = alternating(found).into_iter();
    let mut attempts = JoinSet::new();
    let mut last = ConnectError::Resolve(format!("{host} has no address"));
    loop {
        if let Some(address) = rest.next() {
            attempts.spawn(async move { (address, TcpStream::connect(address).await) });
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
    use super::alternating;

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
        let stream = super::connect("localhost", port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().port(), port);
        drop(listener);
        assert!(super::connect("127.0.0.1", port).await.is_err());
    }
}
