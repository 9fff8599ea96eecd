//! Test servers, with certificates that the test clients trust.

use super::{App, Events, Peer, eventually, logs};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;
use tautline::{
    Address, Certificate, ClientConfig, CloseCode, Config, Counters, DriverConfig, Incoming, Roots, Server,
    ServerConfig, ServerHandle, Socket, Target, Tls, TlsEngine,
};
use tautline_testkit::certificate::{Authority, Leaf};

/// One authority for all tests of a binary.
pub(crate) static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("Test CA").unwrap());

static CERTIFICATE: LazyLock<Certificate> =
    LazyLock::new(|| AUTHORITY.issue(&Leaf::new(&["localhost", "127.0.0.1"])).unwrap());

/// The configuration of a client that trusts the test servers.
pub(crate) fn client_config() -> ClientConfig {
    ClientConfig::default().with_roots(Roots::Pem(AUTHORITY.certificate().into()))
}

/// The configuration of a server that the test clients trust.
pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::new([CERTIFICATE.clone()])
}

/// TLS engine and driver of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Plain,
    Fused,
    Rustls,
    /// Fused, over io_uring if the kernel has it.
    Uring,
}

impl Over {
    pub(crate) fn is_secure(self) -> bool {
        self != Self::Plain
    }
}

/// A running server.
pub(crate) struct Started {
    pub(crate) handle: ServerHandle,
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

/// Starts a server over this driver.
pub(crate) fn serve_driver(driver: DriverConfig, config: Config, app: App) -> Started {
    serve_engine(TlsEngine::Fused, driver, config, app)
}

/// Starts a server over this driver, with another TLS engine.
pub(crate) fn serve_engine(engine: TlsEngine, driver: DriverConfig, config: Config, app: App) -> Started {
    let tls = Tls { engine, config: server_config() };
    start("127.0.0.1:0", Over::Fused, driver, Server::new(tls).config(config), app)
}

/// Starts a server with `shards` loops.
pub(crate) fn serve_at(address: &str, over: Over, shards: usize, config: Config, app: App) -> Started {
    let driver = if over == Over::Uring { "uring".parse().unwrap() } else { driver_under_test() };
    start(address, over, driver, Server::new(tls(over)).shards(shards).config(config), app)
}

fn tls(over: Over) -> Tls<ServerConfig, TlsEngine> {
    let engine = match over {
        Over::Plain => TlsEngine::Plain,
        Over::Fused | Over::Uring => TlsEngine::Fused,
        Over::Rustls => TlsEngine::Rustls,
    };
    Tls { engine, config: server_config() }
}

fn start(address: &str, over: Over, driver: DriverConfig, server: Server<TlsEngine>, app: App) -> Started {
    logs::keep();
    let events = app.events.clone();
    let handle = server.driver(driver).listen(address.parse().unwrap()).start(move |_| app.clone()).unwrap();
    let address = handle.addresses()[0].clone();
    Started { handle, events, address, over }
}

/// The driver that the whole suite runs over.
pub(crate) fn driver_under_test() -> DriverConfig {
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

    /// A connection after the TLS handshake, if there is TLS.
    pub(crate) fn secured(&self) -> Peer {
        let peer = self.attack();
        if self.over.is_secure() { peer.secure() } else { peer }
    }

    /// An open WebSocket, controlled byte by byte.
    pub(crate) fn peer(&self) -> Peer {
        self.secured().upgrade()
    }

    /// The target of the library's own clients.
    pub(crate) fn target(&self) -> Target {
        let scheme = if self.over.is_secure() { "wss" } else { "ws" };
        let mut target = Target::new(&format!("{scheme}://localhost/")).unwrap();
        target.address = Some(self.address.clone());
        target
    }

    /// The library's own blocking client.
    pub(crate) fn socket(&self) -> Socket {
        self.socket_to(self.target())
    }

    pub(crate) fn socket_to(&self, target: Target) -> Socket {
        Socket::connect(target, client_config(), Config::low_latency()).unwrap()
    }

    /// The counters of all loops together.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in self.handle.shards() {
            sum.merge(&shard.counters());
        }
        sum
    }

    /// Asserts that a well-behaved client is served.
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
        eventually("the account of memory is empty but for the pool", || {
            let counters = self.counters();
            counters.memory() == counters.memory_pooled + counters.memory_commands + counters.memory_published
        });
    }

    /// Asserts what must hold after any attack on a server.
    ///
    /// It serves other clients, and no connection is left. The application got each end once. The server drains cleanly.
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
        self.handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        self.handle.join().unwrap();
    }
}
