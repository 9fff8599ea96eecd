//! Every engine of this build over real sockets: a server with each engine, and a client with each engine.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;
use tautline::{
    Address, ClientConfig, CloseCode, Config, Conn, Handler, Incoming, Message, Outgoing, ProtocolVersion, Roots,
    Server, ServerConfig, Socket, Target, Tls, TlsEngine,
};
use tautline_testkit::certificate::{Authority, Leaf};

/// Sends each message back.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn echoes(socket: &mut Socket, len: usize, pair: &str) {
    let sent: Vec<u8> = (0..=250).cycle().take(len).collect();
    socket.binary(&sent).unwrap_or_else(|error| panic!("{pair}, {len} B: {error}"));
    let received = socket.receive().unwrap_or_else(|error| panic!("{pair}, {len} B: {error}"));
    assert!(received == Incoming::Binary(sent), "{pair}, {len} B: another reply");
}

#[test]
fn every_engine_serves_every_engine() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server_config = ServerConfig::new([certificate]);
    let client_config = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
    for server in TlsEngine::all() {
        let address: Address = "127.0.0.1:0".parse().unwrap();
        let listening = Server::new(Tls { engine: server, config: server_config.clone() })
            .config(Config::low_latency())
            .listen(address);
        let handle = listening.start(|_| Echo).unwrap_or_else(|error| panic!("{server}: {error}"));
        for client in TlsEngine::all() {
            let pair = format!("{server} serves {client}");
            let mut target = Target::new("wss://localhost/").unwrap();
            target.address = Some(handle.addresses()[0].clone());
            let tls = Tls { engine: client, config: client_config.clone() };
            let socket = Socket::connect(target, tls, Config::low_latency());
            let mut socket = socket.unwrap_or_else(|error| panic!("{pair}: {error}"));
            // Large messages only if both ends have the same engine: they depend on the library, and not on the pair.
            let largest = if server == client { 1 << 20 } else { 20_000 };
            for len in [0, 1, 125, 16_384, largest] {
                echoes(&mut socket, len, &pair);
            }
            assert_eq!(socket.tls().version, Some(ProtocolVersion::Tls13), "{pair}");
            socket.close(CloseCode::NORMAL, "").unwrap_or_else(|error| panic!("{pair}: {error}"));
        }
        handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        handle.join().unwrap();
    }
}
