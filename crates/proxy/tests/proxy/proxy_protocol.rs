//! Servers that get a header of the PROXY protocol: each connection names its own client.

use crate::kit;
use crate::kit::wire::End;
use crate::kit::{Client, LONG, Trusting, length, of_text, proxy_of, reader, scripted, start_with, text};
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use tautline::layers::tls::mixed;
use tautline::{
    Address, ClientAuth, ClientConfig, Config, Conn, EngineChoice, Fused, Handler, Incoming, Message, Outgoing, Plain,
    Prefixes, ProxyHeader, Roots, Server, ServerConfig, ServerHandle, Socket, Target, Tls,
};
use tautline_dev_cert::{Authority, Leaf, Usage};
use tautline_proxy::health::Checks;

/// Reads a header from the front of a stream.
fn header(reader: &mut impl BufRead) -> ProxyHeader {
    let mut read = Vec::new();
    loop {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        read.extend(byte);
        if let Some((header, len)) = ProxyHeader::read(&read).unwrap() {
            assert_eq!(len, read.len());
            return header;
        }
    }
}

/// A server that tells the test of the header of each connection, and of the heads of its requests.
fn telling() -> (String, Receiver<(ProxyHeader, Vec<String>)>) {
    let (sender, told) = channel();
    let (address, _) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        let header = header(&mut reader);
        let mut heads = Vec::new();
        while let Some(head) = kit::head(&mut reader) {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            heads.push(head);
        }
        let _ = sender.send((header, heads));
    });
    (address, told)
}

fn get(client: &mut Client, lines: &str) {
    client.ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let head = client.head();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert_eq!(client.exact(length(&head).unwrap()), "ok");
}

fn tcp(address: SocketAddr) -> Address {
    Address::Tcp(address)
}

#[test]
fn each_request_has_a_connection_that_names_its_client_in_every_version() {
    for version in ["v1", "v2", "v2-tls"] {
        let (server, told) = telling();
        let proxy = of_text(&text(&server, &format!("proxy-protocol = {version:?}")));
        let mut clients = [Client::of(&proxy), Client::of(&proxy)];
        for _ in 0..3 {
            for client in &mut clients {
                get(client, "");
                let (header, heads) = told.recv_timeout(LONG).unwrap();
                let addresses = header.addresses.unwrap();
                assert_eq!(addresses.client, tcp(client.stream.local_addr().unwrap()), "{version}");
                assert_eq!(addresses.server, proxy.addresses()[0], "{version}");
                assert_eq!(heads.len(), 1, "{version}: {heads:?}");
                assert!(heads[0].contains("\r\nconnection: close\r\n"), "{version}: {heads:?}");
                let id = heads[0].split("x-request-id: ").nth(1).and_then(|rest| rest.split("\r\n").next());
                let told_id = header.unique_id.map(|id| String::from_utf8(id.into()).unwrap());
                assert_eq!(told_id.as_deref(), id.filter(|_| version == "v2-tls"), "{version}");
            }
        }
    }
}

#[test]
fn a_client_that_a_proxy_in_front_names_is_passed_on() {
    let (server, told) = telling();
    let mut config = kit::raw_config();
    config.front.forwarded_from = Prefixes::list(&["127.0.0.1"]).unwrap();
    let proxy = start_with(config, kit::parsed(&text(&server, "proxy-protocol = \"v2\"")));
    let mut client = Client::of(&proxy);
    for named in ["192.0.2.7", "2001:db8::7"] {
        get(&mut client, &format!("X-Forwarded-For: {named}\r\n"));
        let (header, _) = told.recv_timeout(LONG).unwrap();
        let Some(Address::Tcp(client)) = header.client() else { panic!("{header:?}") };
        assert_eq!(client.ip().to_canonical().to_string(), named);
    }
}

/// Answers each message with what a header has told of its client.
struct Peers;

impl Handler for Peers {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, _: Message<'_>) {
        let told = conn.via().and_then(|via| via.header.as_deref());
        let authority = told.and_then(|told| told.authority.as_deref()).unwrap_or("-");
        let tls = told.and_then(|told| told.tls.as_deref());
        let tls = tls.map(|tls| (tls.version.as_deref(), tls.common_name.as_deref(), tls.is_verified));
        let text = format!("{} {authority} {tls:?}", conn.peer());
        conn.send(Outgoing::text(&text));
    }
}

/// A server that takes connections with a header alone.
fn peers<E: EngineChoice>(tls: Tls<ServerConfig, E>) -> ServerHandle {
    let mut config = Config::default();
    config.front.proxy_protocol_from = Prefixes::list(&["127.0.0.1"]).unwrap();
    Server::new(tls).config(config).listen("127.0.0.1:0".parse().unwrap()).start(|_| Peers).unwrap()
}

fn without_tls() -> Tls<ServerConfig, Plain> {
    Tls { engine: Plain, config: ServerConfig::default() }
}

fn name_their_clients(proxy: &ServerHandle) {
    for _ in 0..3 {
        let mut client = End::open(proxy, "");
        client.send(kit::wire::TEXT, b"who am I?");
        let (_, answer) = client.next();
        let own = client.stream.local_addr().unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), format!("{own} - None"));
    }
}

#[test]
fn websockets_name_their_clients_by_bytes_and_by_messages() {
    let server = peers(without_tls());
    let server = format!("http://{}", server.addresses()[0]);
    for rules in ["", "messages = {}\n"] {
        let backend = format!("[backend.app]\nservers = [{server:?}]\nproxy-protocol = \"v2\"\n");
        name_their_clients(&of_text(&format!("[[route]]\nto = \"app\"\n{rules}{backend}")));
    }
}

#[test]
fn the_header_comes_before_the_tls_of_a_server() {
    let authority = Authority::new("test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = peers(Tls { engine: Fused, config: ServerConfig::new([certificate]) });
    let port = server.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let text = text(&format!("https://localhost:{port}"), "proxy-protocol = \"v1\"");
    let root = authority.certificate().to_owned().leak();
    name_their_clients(&proxy_of(Tls { engine: Trusting(root), config: ServerConfig::default() }, &text));
}

#[test]
fn the_facts_of_a_clients_tls_are_told_if_wanted() {
    let server = peers(without_tls());
    let authority = Authority::new("test").unwrap();
    let roots = || authority.certificate().into();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let config = ServerConfig::new([certificate]).with_client_auth(ClientAuth::Required(roots()));
    let tls = Tls { engine: mixed::Kind(Fused, Fused), config };
    let server = format!("http://{}", server.addresses()[0]);
    let proxy = proxy_of(tls, &text(&server, "proxy-protocol = \"v2-tls\""));
    let port = proxy.addresses()[0].to_string().rsplit(':').next().unwrap().to_owned();
    let own = authority.issue(&Leaf::new(&["ada.example"]).with_usage(Usage::Client)).unwrap();
    let config = ClientConfig::default().with_roots(Roots::Pem(roots())).with_certificate(own);
    let mut target = Target::new(&format!("wss://localhost:{port}/")).unwrap();
    target.address = Some(proxy.addresses()[0].clone());
    let mut socket = Socket::connect(target, Tls { engine: Fused, config }, Config::default()).unwrap();
    socket.text("who am I?").unwrap();
    let Incoming::Text(text) = socket.receive().unwrap() else { panic!("a text") };
    let (_, facts) = text.split_once(' ').unwrap();
    assert_eq!(facts, r#"localhost Some((Some("TLSv1.3"), Some("ada.example"), true))"#);
}

#[test]
fn checks_are_the_proxys_own_connections() {
    for (version, path) in [("v1", "path = \"/healthz\", "), ("v2", "path = \"/healthz\", "), ("v2", "")] {
        let (server, told) = telling();
        let lines = format!("proxy-protocol = {version:?}\ncheck = {{ {path}every = \"1h\" }}");
        let plan = kit::parsed(&text(&server, &lines)).plan();
        let _checks = Checks::start(&plan).unwrap();
        let (header, heads) = told.recv_timeout(LONG).unwrap();
        assert_eq!((header.addresses, heads.len()), (None, usize::from(!path.is_empty())), "{version}");
        assert!(heads.iter().all(|head| head.starts_with("get /healthz ")), "{heads:?}");
    }
}
