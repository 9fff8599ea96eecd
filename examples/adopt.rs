//! A server whose connections something else accepts: a helper process, systemd's socket activation, another loop.
//!
//! ```text
//! cargo run -p tautline --example adopt -- [ADDRESS]
//! ```
//! Here a thread accepts them, so that it can refuse clients before any work for TLS is done.
//! `ServerHandle::adopt` then gives them to the loops, one after another.

use std::net::{SocketAddr, TcpListener};
use tautline::{Conn, DriverConfig, Handler, Message, Outgoing, Server, ServerHandle};

struct Echo;

impl Handler for Echo {
    type State = ();
    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Accepts connections, and gives those of allowed clients to the server until it ends.
fn accept(listener: &TcpListener, server: &ServerHandle, is_allowed: fn(SocketAddr) -> bool) -> std::io::Result<()> {
    loop {
        let (stream, peer) = listener.accept()?;
        if is_allowed(peer)
            && let Err(error) = server.adopt(stream.into(), None)
        {
            println!("the server takes no more connections: {error}");
            return Ok(());
        }
    }
}

/// A server that listens nowhere by itself.
fn start(driver: DriverConfig) -> Result<ServerHandle, tautline::Error> {
    Server::plain().driver(driver).shards(2).adopts().start(|_shard| Echo)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into()))?;
    println!("listening on ws://{}", listener.local_addr()?);
    Ok(accept(&listener, &start(DriverConfig::default())?, |peer| peer.ip().is_loopback())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tautline::CloseCode;

    #[test]
    fn connections_of_others_are_served() {
        for driver in ["epoll", "select", "uring"] {
            let server = start(driver.parse().unwrap()).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let uri = format!("ws://{}/", listener.local_addr().unwrap());
            let handle = server.clone();
            std::thread::spawn(move || accept(&listener, &handle, |_| true));
            for _ in 0..4 {
                let mut client = tautline::connect(&uri).unwrap();
                client.text("hello").unwrap();
                assert_eq!(client.receive().unwrap().data(), b"hello", "{driver}");
            }
            let opened: Vec<_> = server.shards().iter().map(|shard| shard.counters().opened).collect();
            assert_eq!(opened, [2, 2]);
            server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
            server.join().unwrap();
        }
    }

    #[test]
    fn sockets_without_a_client_are_refused() {
        use std::sync::Arc;
        use tautline::{Config, Plain, Shard};
        let driver = DriverConfig::default().open().unwrap();
        let mut shard = Shard::new(0, Arc::new(Config::default()), Plain, driver, Echo).unwrap();
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let why = shard.adopt(listening.into(), None).unwrap_err().to_string();
        assert!(why.contains("listening"), "{why}");
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let why = shard.adopt(datagrams.into(), None).unwrap_err().to_string();
        assert!(why.contains("no stream socket"), "{why}");
    }
}
