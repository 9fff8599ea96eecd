//! Servers with TLS and servers at Unix sockets, behind proxies with and without TLS.

use crate::hosts::{Hosts, LAX, OPEN, RULES, STRICT, names_ada};
use crate::kit;
use crate::kit::{Client, Trusting, length, of_text, proxy_of, text};
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use tautline::http::Response;
use tautline::{
    Certificate, Conn, Fused, Handler, Message, Outgoing, Reply, Request, Server, ServerConfig, ServerHandle, Tls,
};
use tautline_dev_cert::{Authority, Leaf, Usage};
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConnection, HandshakeKind, NamedGroup, RootCertStore, StreamOwned, crypto};

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

/// A store that offers its tickets to every host.
#[derive(Debug, Default)]
struct AnyHost {
    tickets: Mutex<Vec<Tls13ClientSessionValue>>,
    session: Mutex<Option<Tls12ClientSessionValue>>,
}

impl ClientSessionStore for AnyHost {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        *self.session.lock().unwrap() = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.session.lock().unwrap().clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        *self.session.lock().unwrap() = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.tickets.lock().unwrap().push(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().unwrap().pop()
    }
}

/// A client's configuration, whose sessions may be resumed at any host.
fn trusting(
    hosts: &Hosts,
    own: Option<&Certificate>,
    version: &'static rustls::SupportedProtocolVersion,
) -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(hosts.authority.certificate().as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()));
    let config = config.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots);
    let mut config = match own {
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(&own.chain).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&own.key).unwrap()).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    config.resumption = Resumption::store(Arc::new(AnyHost::default()));
    config
}

/// A connection with TLS.
struct Secure(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Secure {
    /// Connects with this name in TLS. An address is none.
    fn to(proxy: &ServerHandle, config: &rustls::ClientConfig, name: &str) -> Self {
        let stream = TcpStream::connect(proxy.addresses()[0].to_string()).unwrap();
        stream.set_read_timeout(Some(kit::LONG)).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        Self(BufReader::new(StreamOwned::new(connection, stream)))
    }

    /// The status and the body of the answer to a request for this host. `None` if the connection ends before.
    fn ask(&mut self, host: &str) -> Option<(u16, String)> {
        let forged = "X-Client-Cert-Verified: true\r\nX_Client_Cert_Subject: CN=forged\r\n";
        write!(self.0.get_mut(), "GET / HTTP/1.1\r\nHost: {host}\r\n{forged}\r\n").ok()?;
        let head = kit::head(&mut self.0)?;
        let mut body = vec![0; length(&head).unwrap()];
        self.0.read_exact(&mut body).unwrap();
        Some((head.split(' ').nth(1).unwrap().parse().unwrap(), String::from_utf8(body).unwrap()))
    }

    fn is_resumed(&self) -> bool {
        self.0.get_ref().conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

const VERSIONS: [&rustls::SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

#[test]
fn each_host_decides_about_the_certificates_of_its_clients() {
    let hosts = Hosts::new("decides");
    let (proxy, _) = hosts.start(RULES);
    let eve = Authority::new("Stranger").unwrap().issue(&Leaf::new(&["eve"]).with_usage(Usage::Client)).unwrap();
    for version in VERSIONS {
        // Whether a request is answered, and whether the server is told of the client.
        for (own, host, answered, told) in [
            (None, OPEN, true, false),
            (None, STRICT, false, false),
            (None, LAX, true, false),
            (Some(&eve), OPEN, true, false),
            (Some(&eve), STRICT, false, false),
            (Some(&eve), LAX, false, false),
            (Some(&hosts.own()), OPEN, true, false),
            (Some(&hosts.own()), STRICT, true, true),
            (Some(&hosts.own()), LAX, true, true),
        ] {
            let mut client = Secure::to(&proxy, &trusting(&hosts, own, version), host);
            let answer = client.ask(host);
            assert_eq!(answer.is_some(), answered, "{host}: {answer:?}");
            if let Some((status, head)) = answer {
                assert_eq!((status, names_ada(&head)), (200, told), "{host}: {head}");
            }
        }
    }
}

#[test]
fn a_request_for_a_host_of_another_rule_is_misdirected() {
    let hosts = Hosts::new("misdirected");
    let (proxy, _) = hosts.start(RULES);
    let config = trusting(&hosts, Some(&hosts.own()), VERSIONS[0]);
    for name in [OPEN, STRICT, LAX] {
        for host in [OPEN, STRICT, LAX] {
            let mut client = Secure::to(&proxy, &config, name);
            let (status, text) = client.ask(host).unwrap();
            assert_eq!(status, if name == host { 200 } else { 421 }, "{name} {host} {text}");
            // The client is to connect anew.
            assert_eq!(client.ask(name).is_some(), name == host, "{name} {host}");
        }
    }
    // Without a name in TLS a client has the rule of the first certificate.
    for rules in [RULES, [RULES[1], RULES[0], RULES[2]]] {
        let (proxy, _) = hosts.start(rules);
        for host in [OPEN, STRICT, LAX] {
            let mut nameless = trusting(&hosts, Some(&hosts.own()), VERSIONS[0]);
            nameless.enable_sni = false;
            let (status, text) = Secure::to(&proxy, &nameless, OPEN).ask(host).unwrap();
            assert_eq!(status, if host == OPEN { 200 } else { 421 }, "{host} {text}");
        }
    }
}

/// Nobody is known by a session that another host has made.
#[test]
fn a_session_of_one_host_is_no_identity_at_another() {
    let hosts = Hosts::new("sessions");
    let (proxy, _) = hosts.start(RULES);
    for version in VERSIONS {
        let known = trusting(&hosts, Some(&hosts.own()), version);
        let mut unknown = trusting(&hosts, None, version);
        unknown.resumption = known.resumption.clone();
        // Twice each, so that a ticket could be used.
        for _ in 0..2 {
            for host in [STRICT, LAX] {
                let mut client = Secure::to(&proxy, &known, host);
                assert!(names_ada(&client.ask(host).unwrap().1) && !client.is_resumed(), "{host}");
            }
            let mut client = Secure::to(&proxy, &unknown, LAX);
            assert!(!names_ada(&client.ask(LAX).unwrap().1) && !client.is_resumed());
            assert!(Secure::to(&proxy, &unknown, STRICT).ask(STRICT).is_none());
        }
        for resumed in [false, true] {
            let mut client = Secure::to(&proxy, &unknown, OPEN);
            assert!(!names_ada(&client.ask(OPEN).unwrap().1));
            assert_eq!(client.is_resumed(), resumed, "a host that asks for nothing has tickets");
        }
        assert!(Secure::to(&proxy, &unknown, STRICT).ask(STRICT).is_none());
    }
}

#[test]
fn a_reload_adds_and_removes_rules_under_live_connections() {
    let hosts = Hosts::new("rules");
    let proxy = hosts.start(RULES);
    let (known, unknown) = (trusting(&hosts, Some(&hosts.own()), VERSIONS[0]), trusting(&hosts, None, VERSIONS[0]));
    let status = |client: &mut Secure, host: &str| client.ask(host).map(|(status, _)| status);
    let [mut open, mut strict, mut lax] = [OPEN, STRICT, LAX].map(|host| Secure::to(&proxy.0, &known, host));
    for (client, host) in [(&mut open, OPEN), (&mut strict, STRICT), (&mut lax, LAX)] {
        assert_eq!(status(client, host), Some(200));
    }
    // A fault has a line and a remedy.
    let broken = hosts.text(["", ", client-ca = \"gone.pem\"", ""]);
    let faults = hosts.parse(&broken, Some(&proxy.1.plan())).unwrap_err();
    assert!(faults.contains("taut.toml:3: cannot read ") && faults.contains("make it readable"), "{faults}");
    // The first gets a rule, the second loses its rule, the third has another one.
    hosts.reload(&proxy, [RULES[1], "", RULES[1]]);
    for (client, host) in [(&mut open, OPEN), (&mut strict, STRICT), (&mut lax, LAX)] {
        assert_eq!(status(client, host), Some(421), "{host}");
    }
    for host in [OPEN, LAX] {
        assert!(names_ada(&Secure::to(&proxy.0, &known, host).ask(host).unwrap().1));
        assert!(Secure::to(&proxy.0, &unknown, host).ask(host).is_none());
    }
    let mut client = Secure::to(&proxy.0, &unknown, STRICT);
    assert!(!names_ada(&client.ask(STRICT).unwrap().1));
    // A reload that changes no rule is none of a connection's business.
    hosts.reload(&proxy, [RULES[1], "", RULES[1]]);
    assert_eq!(status(&mut client, STRICT), Some(200));
}
