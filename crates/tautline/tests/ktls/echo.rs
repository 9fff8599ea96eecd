//! Messages of all sizes in both directions, with kernel TLS at the server or at the client.

use crate::common::{App, Event, payload, server};
use crate::{HALVES, config, driver, expected, has_ktls, peer, serve, taken};
#[cfg(feature = "openssl")]
use tautline::TlsEngine;
use tautline::{Client, CloseCode, Conn, Incoming, KernelTls, Outgoing, Socket};

const SIZES: [usize; 6] = [0, 1, 125, 16_384, 16_385, 1 << 20];

fn echoes(socket: &mut Socket) {
    for len in SIZES {
        socket.binary(&payload(len)).unwrap();
        assert!(socket.receive().unwrap() == Incoming::Binary(payload(len)), "{len}");
    }
}

#[test]
fn a_server_echoes_all_sizes() {
    let select = [KernelTls::Receive, KernelTls::Both].map(|halves| ("select", halves));
    for (io, halves) in HALVES.map(|halves| ("epoll", halves)).into_iter().chain(select) {
        if !has_ktls() {
            return;
        }
        let server = serve(io, halves, App::default());
        let grown = taken(|| {
            let mut socket = Socket::connect(server.target(), server::client_config(), config()).unwrap();
            echoes(&mut socket);
            socket.close(CloseCode::NORMAL, "").unwrap();
            server.forgets();
        });
        assert_eq!(grown, expected(halves), "{io} {halves}");
        let (conn, _) = server.events.open(0);
        assert_eq!(server.events.close(conn).code, CloseCode::NORMAL);
        server.survives();
    }
}

#[test]
fn auto_receives_only_if_keys_can_be_replaced() {
    for io in ["auto", "select"] {
        if !has_ktls() {
            return;
        }
        let server = serve(io, KernelTls::Auto, App::default());
        assert_eq!(taken(|| server.serves()), expected(KernelTls::Auto), "{io}");
        server.survives();
    }
}

/// Sends one message after the other, and closes when the last has come back.
fn asker() -> App {
    let ask = |conn: &mut Conn<'_, u64>| match SIZES.get(usize::try_from(*conn.state()).unwrap()) {
        Some(&len) => drop(conn.send(Outgoing::binary(&payload(len)))),
        None => conn.close(CloseCode::NORMAL, "done"),
    };
    App::default().on_open(move |_, conn| ask(conn)).on_message(move |_, conn, message| {
        let len = SIZES[usize::try_from(*conn.state()).unwrap()];
        assert!(message.data() == payload(len), "{len}");
        *conn.state() += 1;
        ask(conn);
    })
}

#[test]
fn a_client_asks_for_all_sizes() {
    let pairs = HALVES.map(|ours| (KernelTls::Off, ours)).into_iter().chain([(KernelTls::Both, KernelTls::Both)]);
    for (theirs, ours) in pairs {
        if !has_ktls() {
            return;
        }
        let server = serve("epoll", theirs, App::default());
        let grown = taken(|| {
            let app = asker();
            let events = app.events.clone();
            let client = Client::new(server::client_config()).driver(driver("epoll", ours)).config(config());
            client.target(server.target()).start(move |_| app).unwrap().join().unwrap();
            let (conn, _) = events.open(0);
            assert_eq!(events.close(conn).code, CloseCode::NORMAL);
            server.forgets();
        });
        let (theirs, ours) = (expected(theirs), expected(ours));
        assert_eq!(grown, (theirs.0 + ours.0, theirs.1 + ours.1));
        assert!(server.events.all().iter().any(|event| matches!(event, Event::Close(..))));
        server.survives();
    }
}

/// Tickets follow the handshake, so the kernel opens their records. It gets the keys of the resumed sessions too.
#[test]
fn tickets_in_records_opened_by_the_kernel_resume_sessions() {
    for halves in HALVES {
        if !has_ktls() {
            return;
        }
        let server = serve("epoll", KernelTls::Off, App::default());
        let tls = server::client_config();
        let grown = taken(|| {
            for number in 0..3 {
                let app = asker();
                let events = app.events.clone();
                let client = Client::new(tls.clone()).driver(driver("epoll", halves)).config(config());
                client.target(server.target()).start(move |_| app).unwrap().join().unwrap();
                assert_eq!(events.open(0).1.tls.resumed, number > 0, "{halves} {number}");
                server.forgets();
            }
        });
        let (ours, theirs) = expected(halves);
        assert_eq!(grown, (3 * ours, 3 * theirs), "{halves}");
        server.survives();
    }
}

#[cfg(feature = "openssl")]
#[test]
fn handshakes_by_openssl() {
    for halves in HALVES {
        if !has_ktls() {
            return;
        }
        let engine: TlsEngine = "fused+openssl".parse().unwrap();
        let server = server::serve_engine(engine, driver("epoll", halves), config(), App::default());
        let grown = taken(|| {
            let mut socket = Socket::connect(server.target(), server::client_config(), config()).unwrap();
            echoes(&mut socket);
            socket.close(CloseCode::NORMAL, "").unwrap();
            server.forgets();
        });
        assert_eq!(grown, expected(halves), "{halves}");
        server.survives();
    }
}

#[test]
fn all_ciphers() {
    for suite in [0x1301, 0x1302, 0x1303] {
        if !has_ktls() {
            return;
        }
        let server = serve("epoll", KernelTls::Both, App::default());
        let grown = taken(|| {
            let mut peer = peer::Peer::with_suite(&server, Some(suite));
            for len in [5, 70_000] {
                peer.echoes(&payload(len));
            }
            peer.close();
        });
        assert_eq!(grown, (1, 1), "{suite:x}");
        server.survives();
    }
}

#[test]
fn padded_and_split_records() {
    for io in ["epoll", "select"] {
        if !has_ktls() {
            return;
        }
        let server = serve(io, KernelTls::Both, App::default());
        let mut peer = peer::Peer::new(&server);
        peer.say_split(b"a message in records of a byte each, empty ones and padding between them");
        peer.close();
        server.survives();
    }
}
