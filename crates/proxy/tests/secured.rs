//! Servers with TLS and servers at Unix sockets, behind proxies with and without TLS.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod kit;

use kit::{Client, length, of_text, proxy_of, text};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tautline::http::Response;
use tautline::layers::tls::mixed;
use tautline::layers::tls::{Capabilities, EngineKind, Error};
use tautline::{
    ClientConfig, Conn, Fused, Handler, Message, Outgoing, Plain, Reply, Request, Roots, Server, ServerConfig,
    ServerHandle, Tls,
};
use tautline_dev_cert::{Authority, Leaf};

/// TLS towards servers alone, which trusts the authority with this certificate.
#[derive(Clone, Copy, Debug)]
struct Trusting(&'static str);

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

/// Answers each request with its path, and each message with itself.
struct Paths(Arc<AtomicUsize>);

impl Handler for Paths {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply<()> {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        let path = request.http.uri().path().to_owned();
        Reply::Respond(Response::new([path.as_bytes(), b" ", request.body].concat()))
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// A server with TLS, the certificate of its authority, its port and the number of its requests.
fn secured() -> (ServerHandle, &'static str, u16, Arc<AtomicUsize>) {
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let tls = Tls { engine: Fused, config: ServerConfig::new([certificate]) };
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let server = Server::new(tls).listen("127.0.0.1:0".parse().unwrap());
    let server = server.start(move |_| Paths(counter.clone())).unwrap();
    let port = server.addresses()[0].to_string().rsplit(':').next().unwrap().parse().unwrap();
    (server, authority.certificate().to_owned().leak(), port, count)
}

/// Passes connections on to a port, each once it gets leave. Says of each when its client has ended it.
fn held(port: u16) -> (u16, Sender<()>, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let (leave, leaves) = channel::<()>();
    let (end, ends) = channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            if leaves.recv().is_err() {
                return;
            }
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
            let (mut back, mut forth) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let _ = io::copy(&mut back, &mut forth);
                let _ = forth.shutdown(Shutdown::Write);
            });
            let end = end.clone();
            thread::spawn(move || {
                let _ = io::copy(&mut client, &mut server);
                let _ = server.shutdown(Shutdown::Write);
                let _ = end.send(());
            });
        }
    });
    (own, leave, ends)
}

#[test]
fn a_connection_that_comes_too_late_gets_no_other_request() {
    let (_server, root, port, count) = secured();
    let (port, leave, ends) = held(port);
    let text = text(&format!("https://localhost:{port}"), "connect-time = \"2s\"");
    let proxy = proxy_of(Tls { engine: Trusting(root), config: ServerConfig::default() }, &text);
    let mut client = Client::of(&proxy);
    client.ask("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("http/1.1 504 "), "{head}");
    let _ = client.exact(length(&head).unwrap());
    client.ask("POST /two HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    leave.send(()).unwrap();
    // The connection for the first request is established now, and is of no use.
    ends.recv_timeout(kit::LONG).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0);
    leave.send(()).unwrap();
    let head = client.head();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!(client.exact(length(&head).unwrap()), "/two x");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn a_server_with_tls_gets_requests_and_websockets() {
    let (_server, root, port, count) = secured();
    let text = text(&format!("https://localhost:{port}"), "");
    let proxy = proxy_of(Tls { engine: Trusting(root), config: ServerConfig::default() }, &text);
    let mut client = Client::of(&proxy);
    let long = "0123456789".repeat(5_000);
    for number in 0..3 {
        client.ask(&format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n{long}"));
        let head = client.head();
        assert!(client.exact(length(&head).unwrap()) == format!("/{number} {long}"), "{head}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    kit::echoes(&proxy);
    // Messages pass, too, if the route says so: here records end amid frames.
    let pairs = kit::messages(&format!("https://localhost:{port}"), "");
    let pairs = proxy_of(Tls { engine: Trusting(root), config: ServerConfig::default() }, &pairs);
    kit::echoes(&pairs);
    // Its certificate is none for another name.
    let proxy = proxy_of(
        Tls { engine: Trusting(root), config: ServerConfig::default() },
        &kit::text(&format!("https://127.0.0.1:{port}"), ""),
    );
    let mut client = Client::of(&proxy);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("http/1.1 502 "));
}

#[test]
fn a_server_at_a_unix_socket_gets_requests_and_websockets() {
    let path = std::env::temp_dir().join(format!("taut-proxy-{}.sock", std::process::id()));
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let address = format!("unix:{}", path.display());
    let server = Server::plain().listen(address.parse().unwrap()).start(move |_| Paths(counter.clone())).unwrap();
    let proxy = of_text(&text(&address, ""));
    let mut client = Client::of(&proxy);
    for number in 0..3 {
        client.ask(&format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"));
        let head = client.head();
        assert_eq!(client.exact(length(&head).unwrap()), format!("/{number} ab"));
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    kit::echoes(&proxy);
    drop(server);
    let _ = std::fs::remove_file(path);
}
