//! The log of secrets. It depends on an environment variable, so each case runs in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::libraries;
use std::path::Path;
use std::process::Command;
use tautline::layers::tls::{ClientConfig, Engine, Roots, ServerConfig};
use tautline::layers::tls_libssl::{Engine as Library, fused};
use tautline::layers::tls_rustls::fused::{Engine as Fused, Role, Session};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};

/// The variable with the path to which the child process writes its secrets.
const SECRETS: &str = "TAUTLINE_TEST_SECRETS";

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0 ";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0 ";

/// Runs the test `case` of this binary in a child process. Returns its log of secrets, and the secrets that it had.
fn in_child(case: &str, folder: &Path) -> (Option<String>, String) {
    let (log, secrets) = (folder.join(format!("{case}.log")), folder.join(format!("{case}.secrets")));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("key_log::{case}"), "--nocapture", "--test-threads=1"]);
    let output = command.env("SSLKEYLOGFILE", &log).env(SECRETS, &secrets).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    (std::fs::read_to_string(log).ok(), std::fs::read_to_string(secrets).unwrap())
}

/// Connects `client` to `server`.
fn handshake<C: Engine, S: Engine>(client: &C, server: &S) -> Pair<C::Session, S::Session> {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    pair
}

/// Connects every library, as server and as client, to an engine that exports its secrets, and writes these to a file.
fn connect(key_log: bool) {
    let Some(path) = std::env::var_os(SECRETS) else { return };
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let quiet_server = ServerConfig::new([certificate]);
    let quiet_client = ClientConfig::default().with_roots(Roots::DangerNone).without_resumption();
    let server = quiet_server.clone().with_key_log(key_log);
    let client = quiet_client.clone().with_key_log(key_log);
    let peer = Fused::new(Some(&quiet_server), Some(&quiet_client)).unwrap();
    let mut lines = String::new();
    let mut note = |session: &mut Session| {
        let snapshot = session.export().unwrap();
        let labels = if snapshot.role == Role::Client { [SERVER, CLIENT] } else { [CLIENT, SERVER] };
        for (label, traffic) in labels.into_iter().zip([snapshot.rx, snapshot.tx]) {
            let secret: String = traffic.secret.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.extend([label, &secret, "\n"]);
        }
    };
    for flavour in libraries().into_iter().filter(|flavour| flavour.capabilities().key_log) {
        let library = Library::new(flavour, Some(&server), Some(&client)).unwrap();
        note(&mut handshake(&peer, &library).client.session);
        note(&mut handshake(&library, &peer).server.session);
        if flavour.fused_name().is_some() {
            let engine = fused::Engine::new(flavour, Some(&server), Some(&client)).unwrap();
            note(&mut handshake(&peer, &engine).client.session);
            note(&mut handshake(&engine, &peer).server.session);
        }
    }
    std::fs::write(path, lines).unwrap();
}

#[test]
fn secrets_are_logged_only_if_configured() {
    let folder = std::env::temp_dir().join(format!("tautline-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (silent, _) = in_child("child_without_key_log", &folder);
    let (log, secrets) = in_child("child_with_key_log", &folder);
    std::fs::remove_dir_all(folder).unwrap();
    assert!(silent.is_none_or(|log| log.is_empty()), "our own record layer gets secrets but does not log them");
    let log = log.unwrap_or_default();
    for line in secrets.lines() {
        let (label, secret) = line.rsplit_once(' ').unwrap();
        // wolfSSL writes hexadecimal digits in upper case; readers take both.
        let has_secret = |line: &str| line.starts_with(label) && line.to_ascii_lowercase().ends_with(secret);
        let is_logged = log.lines().any(has_secret);
        assert!(is_logged && secret.len() == 64, "{label} {secret} is missing in\n{log}");
    }
}

#[test]
fn child_without_key_log() {
    connect(false);
}

#[test]
fn child_with_key_log() {
    connect(true);
}
