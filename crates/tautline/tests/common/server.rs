//! Servers of tests, with certificates that their clients trust.

use super::{App, Events, Peer, eventually, logs};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;
use tautline::{
    Address, Certificate, ClientConfig, ClientTls, CloseCode, Config, Counters, Incoming, Io, Roots, Running, Server,
    ServerConfig, Socket, Spin, Target, Tls, TlsEngine, Way,
};
use tautline_testkit::certificate::{Authority, Leaf};

/// One authority for all tests of a binary.
pub(crate) static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test CA").unwrap());

static CERTIFICATE: LazyLock<Certificate> =
    LazyLock::new(|| AUTHORITY.issue(&Leaf { names: &["localhost", "127.0.0.1"], ..Leaf::default() }).unwrap());

/// What a client needs that trusts the tests' servers.
pub(crate) fn client_config() -> ClientConfig {
    ClientConfig { roots: Roots::Pem(AUTHORITY.certificate().into()), ..ClientConfig::default() }
}

/// What a server needs that the tests' clients trust.
pub(crate) fn server_config() -> ServerConfig {
    ServerConfig { certificates: vec![CERTIFICATE.clone()], ..ServerConfig::default() }
}

/// What a server's connections run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Plain,
    Fused,
    Rustls,
    /// Fused, over io_uring where the kernel has it.
    Uring,
}

impl Over {
    pub(crate) fn is_secure(self) -> bool {
        self != Self::Plain
    }
}

/// A running server.
pub(crate) struct Started {
    pub(crate) running: Running,
    pub(crate) events: Events,
    pub(crate) address: Address,
    pub(crate) over: Over,
}

/// Limits of the default preset, with deadlines that no test waits for by accident.
pub(crate) fn config() -> Config {
    let mut config = Config::untrusted_internet();
    config.deadlines.close = Duration::from_secs(10);
    config
}

/// Starts a server on a free port.
pub(crate) fn serve(over: Over, config: Config, app: App) -> Started {
    serve_at("127.0.0.1:0", over, 1, config, app)
}

/// Starts a server whose loops reach the wire this way.
pub(crate) fn serve_way(way: Way, config: Config, app: App) -> Started {
    start("127.0.0.1:0", Over::Fused, way, Server::new(tls(Over::Fused)).config(config), app)
}

/// Starts a server whose loops reach the wire this way, with another TLS engine.
pub(crate) fn serve_engine(engine: TlsEngine, way: Way, config: Config, app: App) -> Started {
    start("127.0.0.1:0", Over::Fused, way, Server::new(engine.server(server_config())).config(config), app)
}

/// Starts a server with so many loops.
pub(crate) fn serve_at(address: &str, over: Over, shards: usize, config: Config, app: App) -> Started {
    let io = if over == Over::Uring { Io::Uring } else { io_under_test() };
    let way = Way::new(io, Spin::default());
    start(address, over, way, Server::new(tls(over)).shards(shards).config(config), app)
}

fn tls(over: Over) -> Tls {
    match over {
        Over::Plain => Tls::Plain,
        Over::Fused | Over::Uring => Tls::Fused(Box::new(server_config())),
        Over::Rustls => Tls::Rustls(Box::new(server_config())),
    }
}

fn start(address: &str, over: Over, way: Way, server: Server, app: App) -> Started {
    logs::keep();
    let events = app.events.clone();
    let running = server.way(way).listen(address.parse().unwrap()).start(move |_| app.clone()).unwrap();
    let address = running.addresses()[0].clone();
    Started { running, events, address, over }
}

/// What the whole suite runs over.
pub(crate) fn io_under_test() -> Io {
    let name = std::env::var("TAUTLINE_TEST_IO").unwrap_or_else(|_| "epoll".into());
    name.parse().unwrap()
}

impl Started {
    pub(crate) fn tcp(&self) -> SocketAddr {
        let Address::Tcp(address) = self.address else { panic!("{}", self.address) };
        address
    }

    /// A connection without a handshake.
    pub(crate) fn attack(&self) -> Peer {
        Peer::connect(self.tcp())
    }

    /// A connection with its TLS handshake, where there is one.
    pub(crate) fn secured(&self) -> Peer {
        let peer = self.attack();
        if self.over.is_secure() { peer.secure() } else { peer }
    }

    /// A WebSocket by hand.
    pub(crate) fn peer(&self) -> Peer {
        self.secured().upgrade()
    }

    /// Where a client of the library connects.
    pub(crate) fn target(&self) -> Target {
        let scheme = if self.over.is_secure() { "wss" } else { "ws" };
        let mut target = Target::new(&format!("{scheme}://localhost/")).unwrap();
        target.address = Some(self.address.clone());
        target
    }

    /// A client of the library.
    pub(crate) fn socket(&self) -> Socket {
        self.socket_to(self.target())
    }

    pub(crate) fn socket_to(&self, target: Target) -> Socket {
        Socket::connect(target, ClientTls::from(client_config()), Config::low_latency()).unwrap()
    }

    /// Of all loops.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for remote in self.running.remotes() {
            sum.merge(&remote.counters().unwrap());
        }
        sum
    }

    /// A well-behaved client is served, which waits for nothing.
    pub(crate) fn serves(&self) {
        let mut socket = self.socket();
        socket.text("well").unwrap();
        assert_eq!(socket.receive().unwrap(), Incoming::Text("well".into()));
        socket.close(CloseCode::NORMAL, "").unwrap();
    }

    /// Waits until all connections are gone.
    pub(crate) fn forgets(&self) {
        eventually("no connection left", || self.counters().connections == 0);
        let counters = self.counters();
        assert_eq!((counters.open, counters.handshaking), (0, 0));
    }

    /// What must hold after whatever was done to a server: it serves others, forgets everybody, told the application of
    /// each end once, and ends in good order.
    pub(crate) fn survives(self) {
        self.serves();
        self.forgets();
        let opened = self.counters().opened;
        let all = self.events.all();
        let opens = all.iter().filter_map(|event| match event {
            super::Event::Open(conn, _) => Some(*conn),
            _ => None,
        });
        let mut count = 0;
        for conn in opens {
            count += 1;
            assert_eq!(self.events.closes(conn), 1, "ends of {conn}");
        }
        assert_eq!(opened, count);
        self.stop();
    }

    pub(crate) fn stop(self) {
        self.running.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        self.running.join().unwrap();
    }
}
