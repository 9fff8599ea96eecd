//! The wall clock is set forward and back while servers and clients run. Nothing depends on it but the validity of
//! certificates and the age of tickets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../common/mod.rs"]
mod common;
mod sys;

use common::eventually;
use common::server::{AUTHORITY, client_config, config, server_config};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use sys::set_wrong_by;
use tautline::{
    CertificateFiles, ClientConfig, CloseCode, Conn, Handler, Incoming, Message, Outgoing, Server, ServerConfig,
    ServerFiles, ServerHandle, Socket, Target, Tls,
};
use tautline_testkit::certificate::Leaf;

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one test at a time, from the right time on.
fn alone(test: impl FnOnce()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _one = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_wrong_by(0);
    test();
}

/// Echoes, and sets a timer when it is told to.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        if message.data() == b"timer" {
            conn.set_timer(Duration::from_millis(300), 0);
        }
        conn.send(Outgoing::from(&message));
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, _: u64) {
        conn.text("due");
    }
}

struct Serving(ServerHandle);

impl Serving {
    fn new(tls: ServerConfig) -> Self {
        let mut config = config();
        config.deadlines.ping = Some(Duration::from_secs(10));
        config.deadlines.idle = Some(Duration::from_secs(20));
        let server = Server::new(Tls::from(tls)).listen("127.0.0.1:0".parse().unwrap());
        Self(server.config(config).start(|_| Echo).unwrap())
    }

    fn connect(&self, client: &ClientConfig) -> Socket {
        let mut target = Target::new("wss://localhost/").unwrap();
        target.address = Some(self.0.addresses()[0].clone());
        Socket::connect(target, client.clone(), config()).unwrap()
    }

    /// Connects once. Returns whether the session was resumed.
    fn resumes(&self, client: &ClientConfig) -> bool {
        let mut socket = self.connect(client);
        echo(&mut socket, "well");
        let resumed = socket.tls().resumed;
        socket.close(CloseCode::NORMAL, "").unwrap();
        resumed
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    }
}

fn receive(socket: &mut Socket) -> Incoming {
    socket.receive_timeout(PATIENCE).unwrap().unwrap_or_else(|| panic!("nothing comes any more"))
}

fn echo(socket: &mut Socket, text: &str) {
    socket.text(text).unwrap();
    assert_eq!(receive(socket), Incoming::Text(text.into()));
}

#[test]
fn the_clock_of_this_binary_can_be_set() {
    alone(|| {
        let (wall, steady) = (SystemTime::now(), Instant::now());
        set_wrong_by(DAY);
        let jumped = SystemTime::now().duration_since(wall).unwrap();
        assert!(jumped >= Duration::from_secs(86_400), "{jumped:?}");
        assert!(steady.elapsed() < Duration::from_secs(3_600));
    });
}

#[test]
fn connections_deadlines_and_timers_do_not_notice() {
    alone(|| {
        let serving = Serving::new(server_config());
        let mut socket = serving.connect(&client_config());
        // As far as 1970 and 2106.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().cast_signed();
        for wrong in [HOUR, -HOUR, 10 * DAY, -10 * DAY, 80 * 365 * DAY, -since_1970 - DAY, 0] {
            let begun = Instant::now();
            echo(&mut socket, "timer");
            set_wrong_by(wrong);
            echo(&mut socket, "still there");
            assert_eq!(receive(&mut socket), Incoming::Text("due".into()));
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(299), "{wrong}: after {took:?}");
        }
        let counters = serving.0.shards()[0].counters();
        assert_eq!((counters.open, counters.turns_slow), (1, 0), "{counters:?}");
    });
}

/// Within the validity of the certificate, a handshake always succeeds, and sessions are resumed again after each jump.
#[test]
fn sessions_are_resumed_after_each_jump_and_not_past_their_age() {
    alone(|| {
        let serving = Serving::new(server_config());
        let client = client_config();
        assert!(!serving.resumes(&client));
        assert!(serving.resumes(&client), "without a jump");
        for wrong in [HOUR, 0, 12 * HOUR, -12 * HOUR, 30 * DAY, 29 * DAY, -20 * HOUR, 300 * DAY, 0] {
            set_wrong_by(wrong);
            serving.resumes(&client);
            assert!(serving.resumes(&client), "after a jump to {wrong}");
        }
        set_wrong_by(8 * DAY);
        assert!(!serving.resumes(&client), "a ticket is valid for seven days at most (RFC 8446, section 4.6.1)");
    });
}

#[test]
fn a_new_certificate_is_noticed_whose_file_is_older() {
    alone(|| {
        let folder = std::env::temp_dir().join(format!("tautline-clock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [chain, key] = ["chain.pem", "key.pem"].map(|name| folder.join(name));
        let write = |age: Duration| {
            let certificate = AUTHORITY.issue(&Leaf::new(&["localhost"])).unwrap();
            for (path, bytes) in [(&chain, &certificate.chain), (&key, &certificate.key)] {
                std::fs::write(path, bytes).unwrap();
                std::fs::File::options()
                    .append(true)
                    .open(path)
                    .unwrap()
                    .set_modified(SystemTime::now() - age)
                    .unwrap();
            }
        };
        write(Duration::ZERO);
        let files = ServerFiles::new(ServerConfig::default()).certificate(CertificateFiles::new(&chain, &key));
        let serving = Serving::new(files.load().unwrap());
        let reloader = serving.0.reloader();
        let _watch = files.watch(reloader.clone(), Duration::from_millis(20)).unwrap();
        let shown = || {
            // A client without a ticket of the certificate before.
            let mut socket = serving.connect(&client_config());
            echo(&mut socket, "well");
            socket.tls().peer_certificates[0].clone()
        };
        let mut before = shown();
        for (number, wrong) in [(1, -12 * HOUR), (2, 12 * HOUR), (3, 0)] {
            set_wrong_by(wrong);
            write(Duration::from_secs(40 * 86_400 * number));
            eventually("the new certificate is used", || reloader.reloads().done == number);
            let now = shown();
            assert!(now != before, "the certificate is the old one");
            before = now;
        }
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
