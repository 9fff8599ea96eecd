//! The key log and the platform's trust store depend on the environment. Each case runs in a process of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{ClientConfig, Error, Roots, ServerConfig};
use tautline_tls_rustls::Engine;

/// Names the variable with the folder of the authority's certificate, the server's chain and its key.
const FOLDER: &str = "TAUTLINE_TEST_FOLDER";

/// Runs the test `case` of this binary in a process with these variables. Without them the case does nothing.
fn in_child(case: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", case, "--nocapture", "--test-threads=1"]);
    command.env_remove("SSL_CERT_DIR").env_remove("SSL_CERT_FILE").env_remove("SSLKEYLOGFILE");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Makes a folder with an authority's certificate and a server's certificate and key.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tautline-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let authority = Authority::new("Test").unwrap();
    let leaf = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    std::fs::write(folder.join("authority.pem"), authority.certificate()).unwrap();
    std::fs::write(folder.join("chain.pem"), leaf.chain).unwrap();
    std::fs::write(folder.join("key.pem"), leaf.key).unwrap();
    folder
}

fn connect(roots: Roots, key_log: bool) {
    let read = |name: &str| std::fs::read(PathBuf::from(std::env::var_os(FOLDER).unwrap()).join(name)).unwrap();
    let certificate = tautline_tls::Certificate::new(read("chain.pem"), read("key.pem"));
    let server = ServerConfig::new([certificate]).with_key_log(key_log);
    let client = ClientConfig::default().with_roots(roots).with_key_log(key_log);
    let engine = Engine::new(Some(&server), Some(&client)).unwrap();
    let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    assert!(pair.client.open && pair.server.open);
}

#[test]
fn a_key_log_needs_both_the_variable_and_the_configuration() {
    let folder = folder("keylog");
    let log = folder.join("keys.log");
    let paths = [(FOLDER, folder.to_str().unwrap()), ("SSLKEYLOGFILE", log.to_str().unwrap())];
    in_child("child_without_key_log", &paths);
    assert!(!log.exists(), "secrets are written only if the configuration allows it");
    in_child("child_with_key_log", &paths);
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.contains("CLIENT_TRAFFIC_SECRET_0") && written.contains("SERVER_TRAFFIC_SECRET_0"), "{written}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A new key log is its owner's alone. One that others can read is reported.
#[test]
fn a_key_log_that_others_can_read_is_reported() {
    let folder = folder("keylog-mode");
    let log = folder.join("keys.log");
    let paths = [(FOLDER, folder.to_str().unwrap()), ("SSLKEYLOGFILE", log.to_str().unwrap())];
    in_child("child_with_private_key_log", &paths);
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o640)).unwrap();
    in_child("child_with_open_key_log", &paths);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn child_with_private_key_log() {
    if std::env::var_os(FOLDER).is_some() {
        assert!(tautline_testkit::warnings(|| connect(Roots::DangerNone, true)).is_empty());
    }
}

#[test]
fn child_with_open_key_log() {
    if std::env::var_os(FOLDER).is_some() {
        let said = tautline_testkit::warnings(|| connect(Roots::DangerNone, true));
        assert!(!said.is_empty(), "nothing was said");
        assert!(said.iter().all(|line| line.contains("(mode 640)") && line.contains("chmod 600")), "{said:?}");
    }
}

#[test]
fn child_without_key_log() {
    if std::env::var_os(FOLDER).is_some() {
        connect(Roots::DangerNone, false);
    }
}

#[test]
fn child_with_key_log() {
    if std::env::var_os(FOLDER).is_some() {
        connect(Roots::DangerNone, true);
    }
}

#[test]
fn platform_roots_come_from_the_trust_store() {
    let folder = folder("roots");
    let roots = folder.join("authority.pem");
    in_child(
        "child_trusts_the_platform",
        &[(FOLDER, folder.to_str().unwrap()), ("SSL_CERT_FILE", roots.to_str().unwrap())],
    );
    std::fs::write(&roots, "").unwrap();
    in_child(
        "child_has_no_trust_store",
        &[(FOLDER, folder.to_str().unwrap()), ("SSL_CERT_FILE", roots.to_str().unwrap())],
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// A file that begins with a byte-order mark, has a certificate that is none, and markers without a line end between them.
#[test]
fn a_root_that_cannot_be_parsed_takes_no_other_along() {
    let folder = folder("bad-roots");
    let roots = folder.join("authority.pem");
    let good = std::fs::read_to_string(&roots).unwrap();
    let bad = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
    let cut = "-----BEGIN CERTIFICATE-----\nMAA=\n";
    std::fs::write(&roots, format!("\u{feff}{bad}{cut}{good}")).unwrap();
    let paths = [(FOLDER, folder.to_str().unwrap()), ("SSL_CERT_FILE", roots.to_str().unwrap())];
    in_child("child_is_warned_of_two_roots", &paths);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Roots in a folder are read as those in a file.
#[test]
fn a_root_of_a_folder_may_begin_with_a_byte_order_mark() {
    let folder = folder("folder-of-roots");
    let roots = folder.join("roots");
    std::fs::create_dir_all(&roots).unwrap();
    let good = std::fs::read_to_string(folder.join("authority.pem")).unwrap();
    std::fs::write(roots.join("root.pem"), format!("\u{feff}{good}")).unwrap();
    std::fs::write(roots.join("cut.pem"), &good[..100]).unwrap();
    std::os::unix::fs::symlink("cut.pem", roots.join("12345678.0")).unwrap();
    let paths = [(FOLDER, folder.to_str().unwrap()), ("SSL_CERT_DIR", roots.to_str().unwrap())];
    in_child("child_is_warned_of_one_root", &paths);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn child_is_warned_of_one_root() {
    if std::env::var_os(FOLDER).is_some() {
        let said = tautline_testkit::warnings(|| connect(Roots::Platform, false));
        assert!(said.len() == 1 && said[0].starts_with("SSL_CERT_DIR: "), "{said:?}");
        assert!(said[0].contains("12345678.0: line 1: ") && said[0].contains("not trusted"), "{said:?}");
    }
}

#[test]
fn child_is_warned_of_two_roots() {
    if std::env::var_os(FOLDER).is_some() {
        let said = tautline_testkit::warnings(|| connect(Roots::Platform, false));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said.iter().all(|line| line.starts_with("SSL_CERT_FILE: ")), "{said:?}");
        assert!(said[0].contains("line 1: the certificate is malformed") && said[1].contains("line 3: "), "{said:?}");
    }
}

#[test]
fn child_trusts_the_platform() {
    if std::env::var_os(FOLDER).is_some() {
        connect(Roots::Platform, false);
    }
}

#[test]
fn child_has_no_trust_store() {
    if std::env::var_os(FOLDER).is_some() {
        let error = Engine::client(&ClientConfig::default()).err();
        assert!(matches!(&error, Some(Error::Config(why)) if why.contains("trust store")), "{error:?}");
    }
}
