//! The log of secrets, which depends on the environment: each case runs in a process of its own.
#![cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{ClientConfig, Roots, ServerConfig};
use tautline_tls_libssl::{Flavour, fused};

/// Where the child writes the secrets of its connections.
const SECRETS: &str = "TAUTLINE_TEST_SECRETS";

/// Runs the test `case` of this binary, which does nothing otherwise; gives what it logged, and the secrets that there were.
fn in_child(case: &str, folder: &Path) -> (Option<String>, String) {
    let (log, secrets) = (folder.join(format!("{case}.log")), folder.join(format!("{case}.secrets")));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", case, "--nocapture", "--test-threads=1"]);
    let output = command.env("SSLKEYLOGFILE", &log).env(SECRETS, &secrets).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    (std::fs::read_to_string(log).ok(), std::fs::read_to_string(secrets).unwrap())
}

/// Connects by every library, and writes down what protects the traffic.
fn connect(key_log: bool) {
    let Some(path) = std::env::var_os(SECRETS) else { return };
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server = ServerConfig { certificates: vec![certificate], key_log, ..ServerConfig::default() };
    let client = ClientConfig { roots: Roots::DangerNone, ..ClientConfig::default() };
    let mut lines = String::new();
    for &flavour in Flavour::ALL.iter().filter(|flavour| flavour.fused_name().is_some()) {
        let engine = fused::Engine::new(flavour, Some(&server), Some(&client)).unwrap();
        let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        let snapshot = pair.server.session.export().unwrap();
        for secret in [&snapshot.rx.secret, &snapshot.tx.secret] {
            lines.extend(secret.iter().map(|byte| format!("{byte:02x}")));
            lines.push('\n');
        }
    }
    std::fs::write(path, lines).unwrap();
}

#[test]
fn secrets_are_written_where_the_configuration_allows_it() {
    let folder = std::env::temp_dir().join(format!("tautline-libssl-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (silent, _) = in_child("child_without_key_log", &folder);
    let (log, secrets) = in_child("child_with_key_log", &folder);
    std::fs::remove_dir_all(folder).unwrap();
    assert!(silent.is_none_or(|log| log.is_empty()), "records of our own want secrets, but tell nobody");
    let log = log.unwrap();
    for (number, secret) in secrets.lines().enumerate() {
        let label = ["CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "][number % 2];
        let is_told = log.lines().any(|line| line.starts_with(label) && line.ends_with(secret));
        assert!(is_told && secret.len() == 64, "{label}{secret} is missing in\n{log}");
    }
    assert_eq!(secrets.lines().count() % 2, 0);
    assert!(!secrets.is_empty());
}

#[test]
fn child_without_key_log() {
    connect(false);
}

#[test]
fn child_with_key_log() {
    connect(true);
}
