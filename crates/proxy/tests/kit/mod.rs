//! Proxies, servers that follow a script, and clients, all between real sockets.
#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tautline::layers::tls::{Capabilities, EngineKind, Error, mixed};
use tautline::{
    ClientConfig, Config, EngineChoice, Fused, Incoming, Plain, Roots, Server, ServerConfig, ServerHandle, Socket,
    Target, Tls,
};
use tautline_proxy::edge::Edge;
use tautline_proxy::{Live, config};

pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn live(servers: &[String]) -> Live {
    Live::new(config::of_servers(servers, None, Instant::now()).unwrap())
}

pub(crate) fn raw_config() -> Config {
    let mut config = Config::default();
    config.raw = true;
    config
}

pub(crate) fn proxy(servers: &[String]) -> ServerHandle {
    start(live(servers))
}

/// A proxy with one backend, and with these lines in its part of the configuration.
pub(crate) fn proxy_with(server: &str, lines: &str) -> ServerHandle {
    of_text(&text(server, lines))
}

/// The configuration with one backend, and with these lines in its part.
pub(crate) fn text(server: &str, lines: &str) -> String {
    format!("[[route]]\nto = \"app\"\n[backend.app]\nservers = [{server:?}]\n{lines}\n")
}

/// A proxy with this configuration.
pub(crate) fn of_text(text: &str) -> ServerHandle {
    start(parsed(text))
}

/// A proxy with this configuration, and with TLS of this kind.
pub(crate) fn proxy_of<E: EngineChoice>(tls: Tls<ServerConfig, E>, text: &str) -> ServerHandle {
    let live = parsed(text);
    let server = Server::new(tls).config(raw_config()).listen("127.0.0.1:0".parse().unwrap());
    server.start(move |_| Edge::new(live.clone())).unwrap()
}

pub(crate) fn parsed(text: &str) -> Live {
    Live::new(config::parse(Path::new("taut.toml"), text, None, Instant::now()).unwrap())
}

/// A proxy with a plan that the test sees.
pub(crate) fn start(live: Live) -> ServerHandle {
    start_with(raw_config(), live)
}

/// A proxy with a configuration of the loop.
pub(crate) fn start_with(config: Config, live: Live) -> ServerHandle {
    let server = Server::plain().config(config).listen("127.0.0.1:0".parse().unwrap());
    server.start(move |_| Edge::new(live.clone())).unwrap()
}

/// TLS towards servers alone, which trusts the authority with this certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trusting(pub(crate) &'static str);

impl EngineKind for Trusting {
    type Engine = mixed::Engine<<Plain as EngineKind>::Engine, <Fused as EngineKind>::Engine>;

    fn capabilities(self) -> &'static Capabilities {
        Plain.capabilities()
    }

    fn server(self, config: &ServerConfig) -> Result<Self::Engine, Error> {
        let client = ClientConfig::default().with_roots(Roots::Pem(self.0.into()));
        Ok(mixed::Engine::new(Plain.server(config)?, Fused.client(&client)?))
    }

    fn client(self, _: &ClientConfig) -> Result<Self::Engine, Error> {
        Err(Error::ApiMisuse("it is for servers"))
    }
}

/// The configuration with one route, whose messages pass by these keys.
pub(crate) fn messages(server: &str, keys: &str) -> String {
    format!("[[route]]\nto = \"app\"\nmessages = {{ {keys} }}\n[backend.app]\nservers = [{server:?}]\n")
}

/// A server that runs `serve` for each connection, on a thread of its own. Returns its address, and counts connections.
pub(crate) fn scripted(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (count, serve) = (Arc::new(AtomicUsize::new(0)), Arc::new(serve));
    let counter = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            counter.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || serve(stream));
        }
    });
    (address, count)
}

/// Reads a head, in small letters. `None` at the end of the stream.
pub(crate) fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head.to_lowercase())
}

pub(crate) fn reader(stream: &TcpStream) -> BufReader<TcpStream> {
    stream.set_read_timeout(Some(LONG)).unwrap();
    BufReader::new(stream.try_clone().unwrap())
}

/// The number behind `content-length: `.
pub(crate) fn length(head: &str) -> Option<usize> {
    head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()
}

/// Reads the body behind a head.
pub(crate) fn body_of(head: &str, reader: &mut impl BufRead) -> String {
    let mut body = vec![0; length(head).unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    while head.contains("transfer-encoding: chunked") {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let len = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; len + 2];
        reader.read_exact(&mut chunk).unwrap();
        body.extend(&chunk[..len]);
        if len == 0 {
            break;
        }
    }
    String::from_utf8(body).unwrap()
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn of(proxy: &ServerHandle) -> Self {
        let stream = TcpStream::connect(proxy.addresses()[0].to_string()).unwrap();
        Self { reader: reader(&stream), stream }
    }

    pub(crate) fn ask(&mut self, request: &str) {
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    pub(crate) fn head(&mut self) -> String {
        head(&mut self.reader).unwrap()
    }

    pub(crate) fn exact(&mut self, len: usize) -> String {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        String::from_utf8(rest).unwrap()
    }
}

/// Sends messages through a proxy without TLS to a server that sends them back.
pub(crate) fn echoes(proxy: &ServerHandle) {
    let target = Target::new(&format!("ws://{}/", proxy.addresses()[0])).unwrap();
    let tls = Tls { engine: Plain, config: ClientConfig::default() };
    let mut socket = Socket::connect(target, tls, Config::default()).unwrap();
    for len in [1, 70_000] {
        let sent = vec![7; len];
        socket.binary(&sent).unwrap();
        assert!(matches!(socket.receive().unwrap(), Incoming::Binary(got) if got == sent), "{len}");
    }
}
