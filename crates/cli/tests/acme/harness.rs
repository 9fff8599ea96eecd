//! An authority on loopback, servers, and their clients.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tautline::{ClientConfig, Config, Roots, Socket, Target};

/// The time that a slow, loaded machine has for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The file of an authority's log.
const LOG: &str = "pebble.log";

/// The folder of a test, removed on drop, with the ports that it uses.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) ports: Ports,
    _names: Running,
}

/// Ports of a test, free a moment ago.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) directory: u16,
    pub(crate) management: u16,
    /// Where the authority validates by TLS-ALPN-01, and a server listens.
    pub(crate) tls: u16,
    /// Where the authority validates by HTTP-01.
    pub(crate) http: u16,
    pub(crate) dns: u16,
}

/// A process that ends with its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// A place where every name leads to loopback.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("taut-acme-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let bound: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |index: usize| bound[index].local_addr().unwrap().port();
        let ports = Ports { directory: port(0), management: port(1), tls: port(2), http: port(3), dns: port(4) };
        let control = port(5);
        drop(bound);
        let mut names = tool("pebble-challtestsrv");
        // A word of version 2.10; before that it was -dns01.
        let listen = if std::env::var_os("TAUTLINE_PEBBLE").is_some() { "-dnsserver" } else { "-dns01" };
        names.args([listen, &format!("127.0.0.1:{}", ports.dns), "-management", &format!("127.0.0.1:{control}")]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        let names = Running(names.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let place = Self { path, ports, _names: names };
        let made = place.taut(&["cert", "--dir", "authority", "localhost", "127.0.0.1"]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        until("names are answered", || TcpStream::connect(("127.0.0.1", ports.dns)).is_ok());
        place
    }

    pub(crate) fn taut(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taut"));
        command.args(arguments).current_dir(&self.path).stdin(Stdio::null());
        command.env("XDG_DATA_HOME", &self.path).env_remove("RUST_LOG").env_remove("SSL_CERT_FILE");
        command
    }

    /// Starts an authority.
    pub(crate) fn authority(&self, faults: &Faults) -> Authority {
        let Ports { directory, management, tls, http, dns } = self.ports;
        let responder = faults.responder.map(|port| format!("http://127.0.0.1:{port}/")).unwrap_or_default();
        let config = serde_json::json!({"pebble": {
            "ocspResponderURL": responder,
            "listenAddress": format!("127.0.0.1:{directory}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": "authority/cert.pem",
            "privateKey": "authority/key.pem",
            "httpPort": http,
            "tlsPort": if faults.is_lost { 1 } else { tls },
            // The first is of versions before 2.10, which do not know the second.
            "certificateValidityPeriod": faults.life.as_secs(),
            "profiles": {"default": {"description": "for tests", "validityPeriod": faults.life.as_secs()}},
            "externalAccountBindingRequired": faults.binding,
            "externalAccountMACKeys": {"kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"},
        }});
        fs::write(self.path.join("pebble.json"), config.to_string()).unwrap();
        // Its log of all times goes into one file.
        let log = File::options().create(true).append(true).open(self.path.join(LOG)).unwrap();
        let mut pebble = tool("pebble");
        pebble.args(["-config", "pebble.json", "-dnsserver", &format!("127.0.0.1:{dns}")]).current_dir(&self.path);
        pebble.env("PEBBLE_WFE_NONCEREJECT", faults.nonces.to_string());
        match faults.slow {
            0 => pebble.env("PEBBLE_VA_NOSLEEP", "1"),
            seconds => pebble.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
        };
        let running = Running(pebble.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        until("the authority listens", || TcpStream::connect(("127.0.0.1", directory)).is_ok());
        Authority { _running: running }
    }

    /// A file of the authority's management interface, in PEM.
    fn managed(&self, path: &str) -> String {
        let said = self.manage(&format!("GET {path} HTTP/1.0\r\n\r\n"));
        said[said.find("-----BEGIN").unwrap_or_else(|| panic!("{path}: {said}"))..].to_owned()
    }

    /// Has the authority suggest that the certificate in use be renewed within this time (ARI).
    pub(crate) fn suggest(&self, begin: &str, end: &str) {
        let file = fs::read_to_string(self.path.join("folder/certificate.pem")).unwrap();
        let begins = file.find("-----BEGIN CERTIFICATE").unwrap();
        let window = serde_json::json!({"suggestedWindow": {"start": begin, "end": end}}).to_string();
        let body = serde_json::json!({"Certificate": &file[begins..], "ARIResponse": window}).to_string();
        let said = self.manage(&format!(
            "POST /set-renewal-info/ HTTP/1.0\r\nUser-Agent: tests\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert!(said.starts_with("HTTP/1.0 200"), "{said}");
    }

    /// The answer to a request to the authority's management interface.
    fn manage(&self, request: &str) -> String {
        let address = format!("127.0.0.1:{}", self.ports.management);
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-quiet", "-connect", &address]).stdin(Stdio::piped());
        let mut asked = openssl.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // It reads to the end of the answer, as long as this is open.
        let mut stdin = asked.stdin.take().unwrap();
        stdin.write_all(request.as_bytes()).unwrap();
        let said = asked.wait_with_output().unwrap();
        drop(stdin);
        String::from_utf8(said.stdout).unwrap()
    }

    /// Starts the responder of the authority at this port, which knows the latest certificate as good.
    pub(crate) fn responder(&self, port: u16) -> Running {
        fs::write(self.path.join("issuer.pem"), self.managed("/intermediates/0")).unwrap();
        fs::write(self.path.join("issuer.key"), self.managed("/intermediate-keys/0")).unwrap();
        let log = self.authority_log();
        let issued = log.lines().rev().find_map(|line| line.split_once("Issued certificate serial "));
        let serial = issued.unwrap().1.split(' ').next().unwrap().to_uppercase();
        fs::write(self.path.join("index"), format!("V\t991231235959Z\t\t{serial}\tunknown\t/CN=one\n")).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["ocsp", "-port", &port.to_string(), "-index", "index", "-CA", "issuer.pem", "-nmin", "60"]);
        openssl.args(["-rsigner", "issuer.pem", "-rkey", "issuer.key"]).current_dir(&self.path);
        Running(openssl.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Whether the authority has this feature of newer versions. If not, it is said that a test is skipped.
    pub(crate) fn is_recent(&self, feature: &str) -> bool {
        let is_recent = self.authority_log().contains("Loaded profile");
        if !is_recent {
            eprintln!("SKIPPED: this pebble is older than 2.10 and has no {feature}, so nothing was tested");
        }
        is_recent
    }

    /// The log of all authorities of this place.
    pub(crate) fn authority_log(&self) -> String {
        fs::read_to_string(self.path.join(LOG)).unwrap()
    }

    /// Orders that the authority has received.
    pub(crate) fn orders(&self) -> usize {
        let log = self.authority_log();
        log.lines().filter(|line| line.contains("There are now") && line.contains("orders in the db")).count()
    }

    /// Options of a server for two names.
    pub(crate) fn options(&self) -> Vec<String> {
        let directory = format!("https://localhost:{}/dir", self.ports.directory);
        let words = ["--acme", "one.example", "two.example", "--acme-directory", &directory, "--acme-ca"];
        let more = ["authority/ca.pem", "--acme-folder", "folder", "--acme-contact", "operator@one.example"];
        words.into_iter().chain(more).map(str::to_owned).collect()
    }

    /// Starts a server at the port where the authority validates.
    pub(crate) fn serve(&self, name: &str, more: &[&str]) -> Server {
        self.serve_at(self.ports.tls, name, more)
    }

    pub(crate) fn serve_at(&self, port: u16, name: &str, more: &[&str]) -> Server {
        let listen = format!("127.0.0.1:{port}");
        let admin = self.path.join(format!("{name}.sock"));
        let log = self.path.join(format!("{name}.log"));
        let mut command = self.taut(&["serve", "--listen", &listen, "--admin", &format!("unix:{}", admin.display())]);
        command.args(self.options()).args(more).env("RUST_LOG", "info");
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(out).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("said {line:?}: {}", said()));
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        Server { running: Running(child), port, admin, log }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The faults of an authority.
pub(crate) struct Faults {
    /// Percentage of nonces that are rejected.
    pub(crate) nonces: u32,
    /// Most seconds that a validation takes.
    pub(crate) slow: u32,
    pub(crate) life: Duration,
    /// Whether it validates where nobody listens.
    pub(crate) is_lost: bool,
    /// Whether accounts must be bound to others.
    pub(crate) binding: bool,
    /// The port of the OCSP responder that its certificates name.
    pub(crate) responder: Option<u16>,
}

impl Default for Faults {
    fn default() -> Self {
        let life = Duration::from_secs(90 * 24 * 60 * 60);
        Self { nonces: 0, slow: 0, life, is_lost: false, binding: false, responder: None }
    }
}

/// An authority, which forgets everything when it ends.
pub(crate) struct Authority {
    _running: Running,
}

/// A server that orders its certificate.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) port: u16,
    admin: PathBuf,
    log: PathBuf,
}

impl Server {
    /// The status and the body of the admin listener's answer; nothing if there is none.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        let answer = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&self.admin)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let answer = answer().unwrap_or_default();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// The sum of a metric's values, over labels that contain `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let figures = self.ask("/metrics").1;
        let lines = figures.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok())).sum()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ask("/readyz").0 == 200
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Upgrades it. The new process ends with the result.
    pub(crate) fn upgrade(&self, place: &Place) -> Successor {
        let upgraded = place.taut(&["upgrade", &self.running.0.id().to_string()]).output().unwrap();
        assert!(upgraded.status.success(), "{upgraded:?}");
        let said = self.log();
        let (_, successor) = said.rsplit_once("to process ").unwrap();
        Successor(successor.split(' ').next().unwrap().to_owned())
    }

    /// Whether a new connection gets an OCSP response that says that the certificate is good.
    pub(crate) fn staples(&self) -> bool {
        let address = format!("127.0.0.1:{}", self.port);
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-connect", &address, "-servername", "one.example", "-status"]);
        let said = openssl.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&said.stdout).contains("Cert Status: good")
    }

    /// Opens a WebSocket, whatever the certificate is.
    pub(crate) fn connect(&self) -> Socket {
        let mut target = Target::new("wss://one.example/").unwrap();
        target.address = Some(format!("127.0.0.1:{}", self.port).parse().unwrap());
        target.deflate = None;
        let config = ClientConfig::default().with_roots(Roots::DangerNone).without_resumption();
        Socket::connect(target, config, Config::default()).unwrap()
    }

    /// The certificate of a new connection, in DER.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.connect().tls().peer_certificates[0].clone()
    }
}

/// The process to which a server was upgraded, which ends with its test.
pub(crate) struct Successor(String);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
    }
}

/// Sends a text on each socket, and receives it.
pub(crate) fn echo(sockets: &mut [Socket], text: &str) {
    for socket in &mut *sockets {
        socket.text(text).unwrap();
    }
    for socket in sockets {
        assert_eq!(socket.receive().unwrap().data(), text.as_bytes());
    }
}

/// A program of pebble: that in the folder which `TAUTLINE_PEBBLE` names, or else the system's.
fn tool(name: &str) -> Command {
    Command::new(
        std::env::var_os("TAUTLINE_PEBBLE").map_or_else(|| name.into(), |folder| Path::new(&folder).join(name)),
    )
}

/// Waits until this is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The mode of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().mode() & 0o777
}
