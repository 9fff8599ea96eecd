//! Sessions and certificates of running servers: resumed by other servers, replaced under load, watched in files.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

mod common;

use common::server::{AUTHORITY, client_config, config, server_config};
use common::{eventually, logs};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tautline::{
    Address, Certificate, CertificateFiles, ClientAuth, ClientConfig, CloseCode, Conn, Handler, Incoming, Message,
    Outgoing, Reloads, Server, ServerConfig, ServerFiles, ServerHandle, Socket, Target, TicketFile, Tickets, Tls,
    Versions,
};
use tautline_testkit::certificate::{KeyKind, Leaf, Validity};

struct Measuring;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all calls pass unchanged to the system allocator.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Lets one test run at a time, because one of them measures memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An echo that keeps nothing, so that it adds nothing to the measured memory.
struct Echo;

impl Handler for Echo {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

struct Serving(ServerHandle);

impl Serving {
    fn new(config: ServerConfig, shards: usize) -> Self {
        logs::keep();
        let server = Server::new(Tls::from(config)).listen("127.0.0.1:0".parse().unwrap()).shards(shards);
        Self(server.config(self::config()).start(|_| Echo).unwrap())
    }

    fn target(&self) -> Target {
        let mut target = Target::new("wss://localhost/").unwrap();
        target.address = Some(self.0.addresses()[0].clone());
        target
    }

    fn connect(&self, client: &ClientConfig) -> Socket {
        Socket::connect(self.target(), client.clone(), config()).unwrap()
    }

    /// Connects once. Returns whether the session was resumed, and the server's certificate.
    fn meet(&self, client: &ClientConfig) -> (bool, Vec<u8>) {
        let mut socket = self.connect(client);
        echo(&mut socket);
        let info = socket.tls().clone();
        socket.close(CloseCode::NORMAL, "").unwrap();
        (info.resumed, info.peer_certificates[0].clone())
    }

    fn connections(&self) -> u64 {
        self.0.shards().iter().map(|shard| shard.counters().connections).sum()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    }
}

fn echo(socket: &mut Socket) {
    socket.text("well").unwrap();
    assert_eq!(socket.receive().unwrap(), Incoming::Text("well".into()));
}

fn issue(key: KeyKind, validity: Validity) -> Certificate {
    AUTHORITY.issue(&Leaf::new(&["localhost"]).with_key(key).with_validity(validity)).unwrap()
}

fn fresh() -> Certificate {
    issue(KeyKind::P256, Validity::Valid)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tautline-reload-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_fleet_resumes_across_servers_reloads_and_restarts() {
    let _alone = alone();
    let folder = Folder::new("fleet");
    let secret = folder.write("secret", "5".repeat(64));
    let epoch = Duration::from_hours(1);
    let host = || {
        let source = std::sync::Arc::new(TicketFile::new(secret.clone()));
        let tickets = Tickets::Fleet { source, epoch };
        server_config().with_certificates([fresh()]).with_tickets(tickets)
    };
    for versions in [Versions::Tls13, Versions::Tls12] {
        let client = client_config().with_versions(versions);
        let config = host();
        let (a, b) = (Serving::new(config.clone(), 2), Serving::new(host(), 1));
        assert!(!a.meet(&client).0);
        assert!(b.meet(&client).0 && a.meet(&client).0, "{versions:?}");
        a.0.reload(&config.with_certificates([fresh()])).unwrap();
        assert!(a.meet(&client).0);
        drop(a);
        assert!(Serving::new(host(), 1).meet(&client).0, "a host that started afterwards");
        folder.write("secret", "6".repeat(64));
        assert!(!Serving::new(host(), 1).meet(&client).0, "another secret");
        folder.write("secret", "5".repeat(64));
    }
}

#[test]
fn files_are_watched() {
    let _alone = alone();
    let folder = Folder::new("watch");
    let first = fresh();
    let files = CertificateFiles::new(folder.write("chain.pem", &first.chain), folder.write("key.pem", &first.key));
    let files = ServerFiles::new(ServerConfig::default()).certificate(files);
    let serving = Serving::new(files.load().unwrap(), 1);
    let reloader = serving.0.reloader();
    let watch = files.clone().watch(reloader.clone(), Duration::from_millis(20)).unwrap();
    let veteran = client_config();
    let (_, seen) = serving.meet(&veteran);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(reloader.reloads(), Reloads::default(), "nothing has changed");

    // Replaced one after the other, as usual. In between they do not match, and the configuration stays.
    let second = fresh();
    folder.write("chain.pem", &second.chain);
    eventually("the mismatch is noticed", || reloader.reloads().failed > 0);
    logs::expect(&["ERROR", "was not reloaded", "chain.pem", "key.pem", "does not belong to the certificate"]);
    assert_eq!(serving.meet(&client_config()), (false, seen.clone()));
    folder.write("key.pem", &second.key);
    eventually("the new certificate is used", || reloader.reloads().done == 1);
    let (resumed, now) = serving.meet(&client_config());
    assert!(!resumed && now != seen);
    assert_eq!(serving.meet(&veteran), (true, seen), "its ticket is still valid");

    let expired = issue(KeyKind::P256, Validity::Expired);
    folder.write("chain.pem", &expired.chain);
    folder.write("key.pem", &expired.key);
    logs::expect(&["ERROR", "was not reloaded", "chain.pem", "expired on 20"]);
    assert_eq!(serving.meet(&client_config()), (false, now));
    let error = reloader.reload_files(&files).unwrap_err().to_string();
    assert!(error.contains("chain.pem") && error.contains("expired on 20"), "{error}");

    drop(watch);
    std::thread::sleep(Duration::from_millis(60));
    let before = reloader.reloads();
    folder.write("chain.pem", &second.chain);
    folder.write("key.pem", &second.key);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(reloader.reloads(), before, "the watch has ended");
    reloader.reload_files(&files).unwrap();
}

#[test]
fn a_reload_can_require_client_certificates() {
    let _alone = alone();
    let config = server_config();
    let serving = Serving::new(config.clone(), 1);
    let mut stands = serving.connect(&client_config());
    let client_auth = ClientAuth::Required(AUTHORITY.certificate().into());
    serving.0.reload(&config.with_client_auth(client_auth)).unwrap();
    echo(&mut stands);
    // With TLS 1.3 a client can send before it learns that it was rejected.
    let refused =
        Socket::connect(serving.target(), client_config(), self::config()).and_then(|mut socket| socket.receive());
    assert!(refused.unwrap_err().to_string().contains("certificate"), "one is required");
}

#[test]
fn only_tls_servers_reload() {
    let _alone = alone();
    let handle = Server::plain().listen("127.0.0.1:0".parse::<Address>().unwrap());
    let handle = handle.start(|_| Echo).unwrap();
    assert!(handle.reload(&server_config()).unwrap_err().to_string().contains("without server configuration"));
    handle.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    handle.join().unwrap();
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Reloads 250 times while two clients connect again and again, one of them with tickets.
fn reload_under_load(serving: &Serving, sides: &[ServerConfig; 2], veterans: &mut [Socket]) {
    let (over, connected, resumed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for remembers in [true, false] {
            let (over, connected, resumed) = (&over, &connected, &resumed);
            scope.spawn(move || {
                let mut client = client_config();
                while !over.load(Ordering::Relaxed) {
                    let (again, _) = serving.meet(&client);
                    connected.fetch_add(1, Ordering::Relaxed);
                    resumed.fetch_add(usize::from(again), Ordering::Relaxed);
                    if !remembers {
                        client = client_config();
                    }
                }
            });
        }
        for number in 0..250 {
            serving.0.reload(&sides[number % 2]).unwrap();
            if number % 10 == 0 {
                veterans.iter_mut().for_each(echo);
            }
        }
        // Waits for connections after the last reload, also on a busy machine.
        let before = connected.load(Ordering::Relaxed);
        eventually("clients connect, and resume", || {
            connected.load(Ordering::Relaxed) >= before + 4 && resumed.load(Ordering::Relaxed) > 0
        });
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_thousand_reloads_under_load() {
    let _alone = alone();
    let sides =
        [KeyKind::P256, KeyKind::Ed25519].map(|key| server_config().with_certificates([issue(key, Validity::Valid)]));
    let serving = Serving::new(sides[0].clone(), 2);
    // Kept log lines would add to the measured memory.
    log::set_max_level(log::LevelFilter::Warn);
    let mut veterans: Vec<Socket> = (0..4).map(|_| serving.connect(&client_config())).collect();
    let mut measured = Vec::new();
    // The first round fills pools and caches.
    for _ in 0..5 {
        reload_under_load(&serving, &sides, &mut veterans);
        eventually("all but the first are gone", || serving.connections() == veterans.len() as u64);
        measured.push((LIVE.load(Ordering::Relaxed), resident()));
    }
    log::set_max_level(log::LevelFilter::Info);
    let reloads = serving.0.reloader().reloads();
    assert_eq!((reloads.done, reloads.failed), (1250, 0));
    veterans.iter_mut().for_each(echo);
    let ((live_before, resident_before), (live, resident)) = (measured[0], measured[4]);
    // If 1000 configurations were kept, they would take 2.4 MiB. Buffers of the loops come and go by 0.1 MiB.
    assert!(live - live_before < 512 << 10, "{measured:?}");
    // Mapped memory is not among that. The allocator's arenas grow by some MiB on a busy machine while nothing is kept.
    assert!(resident.saturating_sub(resident_before) < 16 << 20, "{measured:?}");
}
