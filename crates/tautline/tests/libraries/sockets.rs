//! Every engine that is built in over real sockets: a server by each, and a client of each to it.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;
use tautline::{
    Address, ClientConfig, ClientTls, CloseCode, Config, Conn, Handler, Incoming, Message, Outgoing, Roots, Server,
    ServerConfig, Socket, Target, TlsEngine,
};
use tautline_testkit::certificate::{Authority, Leaf};

/// Gives back what comes.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn echoes(socket: &mut Socket, len: usize, who: &str) {
    let sent: Vec<u8> = (0..=250).cycle().take(len).collect();
    socket.binary(&sent).unwrap_or_else(|error| panic!("{who}, {len} B: {error}"));
    let received = socket.receive().unwrap_or_else(|error| panic!("{who}, {len} B: {error}"));
    assert!(received == Incoming::Binary(sent), "{who}, {len} B: another reply");
}

#[test]
fn every_engine_serves_every_engine() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server_config = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
    let client_config = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
    for server in TlsEngine::all() {
        let address: Address = "127.0.0.1:0".parse().unwrap();
        let listening = Server::new(server.server(server_config.clone())).config(Config::low_latency()).listen(address);
        let running = listening.start(|_| Echo).unwrap_or_else(|error| panic!("{server}: {error}"));
        for client in TlsEngine::all() {
            let who = format!("{server} serves {client}");
            let mut target = Target::new("wss://localhost/").unwrap();
            target.address = Some(running.addresses()[0].clone());
            let tls: ClientTls = client.client(client_config.clone());
            let socket = Socket::connect(target, tls, Config::low_latency());
            let mut socket = socket.unwrap_or_else(|error| panic!("{who}: {error}"));
            // More than a record and than a socket's buffer only once each way: what differs there is the library's, not the pair's.
            let largest = if server == client { 1 << 20 } else { 20_000 };
            for len in [0, 1, 125, 16_384, largest] {
                echoes(&mut socket, len, &who);
            }
            assert_eq!(socket.tls().version, "TLSv1.3", "{who}");
            socket.close(CloseCode::NORMAL, "").unwrap_or_else(|error| panic!("{who}: {error}"));
        }
        running.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        running.join().unwrap();
    }
}
