use super::resolve::try_out;
use super::{Broadcast, Echo, Handshakes, Idle, Lengths, Progress, Server};
use crate::{Content, Error, Span};
use std::net::SocketAddr;
use std::time::Duration;
use tautline::layers::io::machine;
use tautline::{
    Address, ClientConfig, CloseCode, Config, Conn, DeflateConfig, Handler, Message, Outgoing, ProtocolVersion, Roots,
};
use tautline::{DriverConfig, ServerConfig, ServerHandle, Tls, TlsEngine};
use tautline_dev_cert::{Authority, Leaf};
use tautline_testkit::ClosedPort;

/// Answers every message with the result of a function; `None` closes the connection.
struct Answers(fn(&[u8]) -> Option<Vec<u8>>);

impl Handler for Answers {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match (self.0)(message.data()) {
            Some(answer) => {
                let mut echo = Outgoing::from(&message);
                echo.payload = &answer;
                conn.send(echo);
            }
            None => conn.close(CloseCode::POLICY, "no"),
        }
    }
}

/// A server on a thread, stopped at the end.
struct Peer {
    running: Option<ServerHandle>,
    server: Server,
}

impl Peer {
    fn plain(answer: fn(&[u8]) -> Option<Vec<u8>>) -> Self {
        let tls = Tls { engine: TlsEngine::Plain, config: ServerConfig::default() };
        Self::start(tls, "ws", ClientConfig::default(), answer)
    }

    fn secure(is_trusted: bool) -> Self {
        let authority = Authority::new("test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        let config = ServerConfig::new([certificate]);
        let root = if is_trusted { authority.certificate().to_owned() } else { other_root() };
        let tls = ClientConfig::default().with_roots(Roots::Pem(root.into_bytes()));
        Self::start(Tls { engine: TlsEngine::Fused, config }, "wss", tls, |data| Some(data.to_vec()))
    }

    fn start(
        tls: Tls<ServerConfig, TlsEngine>,
        scheme: &str,
        client: ClientConfig,
        answer: fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Self {
        let server = tautline::Server::new(tls).listen("127.0.0.1:0".parse().unwrap());
        let running = server.start(move |_| Answers(answer)).unwrap();
        let Address::Tcp(address) = &running.addresses()[0] else { panic!("not TCP") };
        let mut server = Server::new(&format!("{scheme}://localhost:{}/", address.port())).unwrap();
        server.tls = client;
        server.pid = Some(std::process::id());
        Self { running: Some(running), server }
    }

    fn echo(&self, connections: usize, size: usize, pipeline: usize) -> Echo {
        let (server, content) = (self.server.clone(), Content::Bytes);
        Echo { server, connections, size, content, pipeline, rate: None, span: span(30, 150) }
    }
}

const fn span(warmup: u64, duration: u64) -> Span {
    Span { warmup: Duration::from_millis(warmup), duration: Duration::from_millis(duration) }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
            let ended = running.join();
            assert!(ended.is_ok() || std::thread::panicking(), "{ended:?}");
        }
    }
}

fn other_root() -> String {
    Authority::new("another").unwrap().certificate().to_owned()
}

#[test]
fn closed_loops_check_and_count_every_reply() {
    for peer in [Peer::plain(|data| Some(data.to_vec())), Peer::secure(true)] {
        for (connections, size, pipeline) in [(1, 0, 1), (20, 64, 4), (2, 300_000, 2)] {
            let mut seen = Vec::new();
            let echo = peer.echo(connections, size, pipeline);
            let measured = echo.run(&mut |progress| seen.push(progress)).unwrap();
            assert!(measured.count > 0, "{connections} x {size} x {pipeline}");
            assert_eq!(measured.latencies.count(), measured.count);
            assert!(measured.own_cpu > Duration::ZERO && measured.server_cpu.is_some());
            let [Progress::Connecting(..), .., Progress::Running(_)] = seen[..] else { panic!("{seen:?}") };
        }
    }
}

#[test]
fn every_driver_makes_load() {
    let peer = Peer::secure(true);
    for name in DriverConfig::NAMES {
        let mut echo = peer.echo(5, 1000, 2);
        echo.server.driver = name.parse().unwrap();
        assert!(echo.run(&mut |_| {}).unwrap().count > 0, "{name}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let peer = Peer::plain(|data| Some(data.to_vec()));
    let echo = Echo { rate: Some(2_000.0), span: span(30, 500), ..peer.echo(7, 32, 1) };
    let measured = echo.run(&mut |_| ()).unwrap();
    // All due messages are answered in the end. Those answered in time make the rate.
    assert!((990..=1_010).contains(&measured.latencies.count()), "{}", measured.latencies.count());
    assert!(measured.rate() <= 2_020.0);
}

#[test]
fn open_loop_latency_counts_from_when_a_message_was_due() {
    // Every message takes the server 5 ms, in which ten are due, so the queue and the latency grow.
    let peer = Peer::plain(|data| {
        std::thread::sleep(Duration::from_millis(5));
        Some(data.to_vec())
    });
    let echo = Echo { rate: Some(2_000.0), span: span(0, 100), ..peer.echo(1, 8, 1) };
    let measured = echo.run(&mut |_| ()).unwrap();
    assert!(measured.latencies.quantile_us(0.9) > 300_000.0, "{}", measured.latencies.quantile_us(0.9));
}

#[test]
fn a_stamped_latency_is_the_time_of_the_server() {
    // Every message takes the server 2 ms, and none waits for another.
    let peer = Peer::plain(|data| {
        std::thread::sleep(Duration::from_millis(2));
        Some(data.to_vec())
    });
    let echo = Echo { rate: Some(100.0), span: span(30, 500), ..peer.echo(1, 8, 1) };
    let (measured, latencies) = echo.run_stamped(&mut |_| ()).unwrap();
    assert_eq!(measured.latencies.count(), latencies.len() as u64);
    let least = latencies.iter().min().copied().unwrap_or_default();
    assert!((Duration::from_millis(2)..Duration::from_millis(200)).contains(&least), "{least:?}");
}

#[test]
fn every_length_comes_back_or_fails_the_run() {
    let peer = Peer::secure(true);
    let tls = Lengths { server: &peer.server, lengths: &[0, 1, 70_000, 125] }.run().unwrap();
    assert_eq!(tls.version, Some(ProtocolVersion::Tls13));
    let peer = Peer::plain(|data| Some(if data.len() == 3 { b"abc".to_vec() } else { data.to_vec() }));
    let wrong = Lengths { server: &peer.server, lengths: &[2, 3] }.run();
    assert!(matches!(&wrong, Err(Error::WrongReply(text)) if text.starts_with("3 bytes")), "{wrong:?}");
    let peer = Peer::plain(|_| None);
    assert!(Lengths { server: &peer.server, lengths: &[2] }.run().is_err());
}

#[test]
fn only_an_address_that_does_not_answer_is_passed_over() {
    let at = |server: &Server, address: SocketAddr| {
        let mut target = server.target.clone();
        target.address = Some(address.into());
        try_out(server, &target)
    };
    let port = ClosedPort::new().unwrap();
    for peer in [Peer::plain(|_| None), Peer::secure(false)] {
        let address = ([127, 0, 0, 1], peer.server.target.port()).into();
        at(&peer.server, address).unwrap();
        let error = at(&peer.server, port.address()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn wrong_replies_fail_the_run() {
    let changed = Peer::plain(|data| {
        let mut data = data.to_vec();
        *data.last_mut()? ^= 1;
        Some(data)
    });
    let shortened = Peer::plain(|data| Some(data[1..].to_vec()));
    let repeated = Peer::plain(|data| Some([&0_u64.to_le_bytes(), &data[8..]].concat()));
    for peer in [changed, shortened, repeated] {
        let result = peer.echo(3, 100, 1).run(&mut |_| ());
        assert!(matches!(result, Err(Error::WrongReply(_))), "{result:?}");
    }
}

#[test]
fn a_server_that_closes_fails_the_run() {
    let result = Peer::plain(|_| None).echo(3, 100, 1).run(&mut |_| ());
    let Err(Error::Failed(what)) = result else { panic!("{result:?}") };
    assert!(what.contains("1008"), "{what}");
}

#[test]
fn explains_untrusted_and_missing_servers() {
    let result = Peer::secure(false).echo(1, 1, 1).run(&mut |_| ());
    let Err(Error::Network(what)) = result else { panic!("{result:?}") };
    assert!(what.contains("issuer is not trusted") && what.contains("--ca"), "{what}");

    let port = ClosedPort::new().unwrap();
    let nobody = Server::new(&format!("ws://{}/", port.address())).unwrap();
    let result = Echo { server: nobody, ..Peer::plain(|_| None).echo(1, 1, 1) }.run(&mut |_| ());
    let Err(Error::Network(what)) = result else { panic!("{result:?}") };
    assert!(what.contains("taut serve"), "{what}");

    let mut plain = Peer::plain(|_| None).server.clone();
    plain.target.uri = "http://localhost/".parse().unwrap();
    assert!(matches!(Server::new("http://localhost/"), Err(Error::Usage(_))));
}

#[test]
fn refuses_arguments_that_make_no_sense() {
    let peer = Peer::plain(|_| None);
    for echo in [
        peer.echo(0, 1, 1),
        peer.echo(1, 1, 0),
        Echo { rate: Some(0.0), ..peer.echo(1, 1, 1) },
        Echo { rate: Some(f64::NAN), ..peer.echo(1, 1, 1) },
    ] {
        assert!(matches!(echo.run(&mut |_| ()), Err(Error::Usage(_))));
    }
}

#[test]
fn handshakes_resume_only_if_wanted() {
    let peer = Peer::secure(true);
    for resumed in [false, true] {
        let (server, span) = (peer.server.clone(), span(100, 200));
        let counts =
            Handshakes { server, at_once: 4, resumed, may_refuse: false, rate: None, span }.run(&mut |_| ()).unwrap();
        assert!(counts.measured.count > 0);
        assert!(counts.measured.latencies.count() >= counts.measured.count);
        assert_eq!(counts.resumed, if resumed { counts.measured.count } else { 0 });
    }
}

#[test]
fn holds_all_idle_connections_and_measures_their_memory() {
    let peer = Peer::secure(true);
    let (connections, duration) = (40, Duration::from_millis(50));
    let idle = Idle { server: peer.server.clone(), connections, duration, echo: true };
    let mut most = 0;
    let held = idle
        .run(&mut |progress| {
            if let Progress::Connecting(open, _) = progress {
                most = most.max(open);
            }
        })
        .unwrap();
    assert_eq!((held.connections, most), (40, 41));
    assert!(held.rss_per_connection().is_some() && held.rss_per_used_connection().is_some());
}

#[test]
fn idle_connections_notice_a_wrong_echo() {
    let peer = Peer::plain(|_| Some(b"something else".to_vec()));
    let server = peer.server.clone();
    let idle = Idle { server, connections: 3, duration: Duration::ZERO, echo: true };
    assert!(matches!(idle.run(&mut |_| ()), Err(Error::WrongReply(_))));
}

/// Sends every message to everyone.
struct Everyone;

impl Handler for Everyone {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &tautline::Opening<'_>) {
        conn.subscribe("all");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.publish("all", Outgoing::from(&message));
    }
}

#[test]
fn broadcasts_reach_every_subscriber() {
    let mut config = Config::untrusted_internet();
    config.upgrade.deflate = Some(DeflateConfig::default());
    let server = tautline::Server::plain().listen("127.0.0.1:0".parse().unwrap()).config(config);
    let running = server.start(|_| Everyone).unwrap();
    let Address::Tcp(address) = &running.addresses()[0] else { panic!("not TCP") };
    for deflate in [None, Some(DeflateConfig::default())] {
        let mut server = Server::new(&format!("ws://localhost:{}/", address.port())).unwrap();
        server.target.deflate = deflate;
        for pipeline in [1, 3] {
            let (server, span) = (server.clone(), span(20, 100));
            let broadcast = Broadcast { server, subscribers: 9, size: 700, pipeline, span };
            let measured = broadcast.run(&mut |_| ()).unwrap();
            assert!(measured.count > 9 && measured.latencies.count() == measured.count);
        }
    }
    running.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    running.join().unwrap();
}

#[test]
fn a_broadcast_without_deliveries_fails() {
    let echo = Peer::plain(|data| Some(data.to_vec()));
    let (server, span) = (echo.server.clone(), span(20, 60_000));
    let broadcast = Broadcast { server, subscribers: 2, size: 64, pipeline: 1, span };
    assert!(matches!(broadcast.run(&mut |_| ()), Err(Error::Failed(_))));
}

#[test]
fn refuses_more_connections_than_open_files() {
    let limit = usize::try_from(machine::raise_nofile_limit().unwrap()).unwrap();
    let (server, duration) = (Peer::plain(|_| None).server.clone(), Duration::ZERO);
    let idle = Idle { connections: limit, duration, server, echo: false };
    assert!(matches!(idle.run(&mut |_| ()), Err(Error::Usage(_))));
}
