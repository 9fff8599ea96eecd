//! Server and client over loopback.

use tautline::{
    ClientConfig, ClientTls, CloseCode, Config, Conn, Handler, Incoming, Message, Outgoing, Roots, Running, Server,
    Socket, Target, Tls,
};
use tautline_testkit::certificate::{Authority, Leaf};

struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

struct Setup {
    server: Running,
    scheme: &'static str,
    roots: Vec<u8>,
}

fn start(secure: bool) -> Setup {
    let authority = Authority::new("Test CA").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let tls = if secure { Tls::with_certificate(certificate) } else { Tls::Plain };
    let server = Server::new(tls).listen("127.0.0.1:0".parse().unwrap()).shards(2).start(|_| Echo).unwrap();
    Setup { server, scheme: if secure { "wss" } else { "ws" }, roots: authority.certificate().into() }
}

impl Setup {
    fn connect(&self) -> Socket {
        let address = self.server.addresses()[0].clone();
        let mut target = Target::new(&format!("{}://localhost/", self.scheme)).unwrap();
        target.address = Some(address);
        let tls = ClientConfig { roots: Roots::Pem(self.roots.clone()), ..ClientConfig::default() };
        Socket::connect(target, ClientTls::from(tls), Config { ..Config::low_latency() }).unwrap()
    }
}

fn echoes(secure: bool) {
    let setup = start(secure);
    let mut socket = setup.connect();
    assert_eq!(socket.tls().version, if secure { "TLSv1.3" } else { "" });
    socket.text("häl\u{1F980}").unwrap();
    assert_eq!(socket.receive().unwrap(), Incoming::Text("häl\u{1F980}".into()));
    for size in [0, 1, 125, 126, 127, 1000, 16_000, 16_384, 65_535, 65_536, 100_000, 1 << 20] {
        let payload: Vec<u8> = (0..size).map(|i: usize| (i * 7 + i / 256).to_le_bytes()[0]).collect();
        socket.binary(&payload).unwrap();
        assert!(socket.receive().unwrap() == Incoming::Binary(payload), "{size}");
    }
    for i in 0..1000 {
        socket.text(&i.to_string()).unwrap();
    }
    for i in 0..1000 {
        assert_eq!(socket.receive().unwrap(), Incoming::Text(i.to_string()));
    }
    socket.close(CloseCode::NORMAL, "done").unwrap();
    setup.server.drain(CloseCode::GOING_AWAY, "", std::time::Duration::from_secs(5));
    setup.server.join().unwrap();
}

#[test]
fn ws_echoes() {
    echoes(false);
}

#[test]
fn wss_echoes() {
    echoes(true);
}
