//! `taut check`, and faults of files at the start.

use super::Home;
use super::privilege::{NOBODY, is_root};
use super::tls::{FILES, write_certificate};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use tautline_testkit::certificate::{Authority, Leaf, Validity};

fn home(validity: Validity) -> Home {
    let home = Home::new();
    write_certificate(&home, &Authority::new("Test").unwrap(), validity);
    fs::set_permissions(home.0.join("key.pem"), fs::Permissions::from_mode(0o600)).unwrap();
    home
}

fn check(home: &Home, arguments: &[&str]) -> (Option<i32>, String) {
    let finished = home.run(&[&["check"][..], arguments].concat());
    (finished.code, finished.out + &finished.err)
}

#[test]
fn check_accepts_what_a_server_accepts() {
    let home = home(Validity::Valid);
    let mut all = FILES.to_vec();
    all.extend(["--client-ca", "ca.pem", "--listen", "127.0.0.1:8443"]);
    assert_eq!(check(&home, &all), (Some(0), "the files and options can be used\n".to_owned()));
    assert_eq!(check(&home, &["--plain"]).0, Some(0));
    // An editor's byte-order mark, and certificates without a line end between them.
    let chain = fs::read_to_string(home.0.join("cert.pem")).unwrap();
    let root = fs::read_to_string(home.0.join("ca.pem")).unwrap();
    fs::write(home.0.join("cert.pem"), format!("\u{feff}{}{root}", chain.trim_end())).unwrap();
    assert_eq!(check(&home, &FILES).0, Some(0));
}

#[test]
fn check_names_each_fault_with_its_file_and_remedy() {
    let home = home(Validity::Valid);
    let chain = fs::read_to_string(home.0.join("cert.pem")).unwrap();
    let key = fs::read_to_string(home.0.join("key.pem")).unwrap();
    let with_files = |chain: &str, key: &str| {
        fs::write(home.0.join("cert.pem"), chain).unwrap();
        fs::write(home.0.join("key.pem"), key).unwrap();
        check(&home, &FILES)
    };
    let legacy =
        key.replace("PRIVATE KEY-----\n", "PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0\n\n");
    for ((code, said), words) in [
        (with_files(&chain[..chain.len() / 2], &key), vec!["cert.pem", "line 1: BEGIN CERTIFICATE without an END"]),
        (with_files(&chain.replace("-----BEGIN", "----BEGIN"), &key), vec!["cert.pem", "line 1"]),
        (with_files(&chain, &legacy.replace("PRIVATE", "EC PRIVATE")), vec!["passphrase", "openssl pkey -in"]),
        (with_files(&chain, &chain), vec!["key.pem", "PRIVATE KEY"]),
        (with_files(&chain, &key), vec![]),
    ] {
        assert_eq!(code, Some(if words.is_empty() { 0 } else { 2 }), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said} should say {words:?}");
    }
    let mut all = FILES.to_vec();
    all.extend(["--client-ca", "gone.pem", "--unix", "no/such/folder.sock"]);
    #[cfg(feature = "files")]
    all.extend(["--files", "no-such-folder"]);
    let (code, said) = check(&home, &all);
    assert_eq!(code, Some(2), "{said}");
    let mut words = vec!["gone.pem", "there is no folder no/such"];
    #[cfg(feature = "files")]
    words.push("no-such-folder");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn check_tries_files_to_write_to_and_makes_none() {
    let home = home(Validity::Valid);
    let (code, said) = check(&home, &["--plain", "--access-log", "."]);
    assert!(code == Some(2) && said.contains("--access-log: cannot write .: Is a directory"), "{code:?} {said}");
    let (code, said) = check(&home, &["--plain", "--access-log", "missing/access.log"]);
    assert!(code == Some(2) && said.contains("there is no folder missing"), "{code:?} {said}");
    assert_eq!(check(&home, &["--plain", "--access-log", "access.log"]).0, Some(0));
    assert!(!home.0.join("access.log").exists());
    let keys = home.0.join("keys.log");
    let arguments = [&["check", "--key-log"], &FILES[..]].concat();
    let checked = home.taut(&arguments).env("SSLKEYLOGFILE", &keys).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert!(!keys.exists());
}

#[test]
fn check_tries_the_files_as_the_user_of_the_server() {
    if !is_root() {
        return;
    }
    let home = home(Validity::Valid);
    let mode = |path: &str, mode| fs::set_permissions(home.0.join(path), fs::Permissions::from_mode(mode)).unwrap();
    mode("", 0o755);
    for (folder, bits) in [("logs", 0o755), ("site", 0o700)] {
        fs::create_dir(home.0.join(folder)).unwrap();
        mode(folder, bits);
    }
    let with = |options: &[&str]| check(&home, &[options, &["--user", "nobody"]].concat());
    let log = ["--plain", "--access-log", "logs/a.log"];
    for (options, why) in [
        (&log[..], "--access-log: cannot write logs/a.log as nobody: Permission denied"),
        (&FILES[..], "key.pem: Permission denied (os error 13) (as nobody, the user of --user)"),
        #[cfg(feature = "files")]
        (&["--plain", "--files", "site"], "site: Permission denied (os error 13) (as nobody, the user of --user)"),
        #[cfg(feature = "acme")]
        (
            &["--acme", "www.example.com", "--acme-folder", "logs/acme"],
            "--acme-folder: cannot make logs/acme: Permission denied (os error 13) (as nobody",
        ),
    ] {
        let (code, said) = with(options);
        assert!(code == Some(2) && said.contains(why), "{options:?}: {code:?} {said}");
        assert_eq!(check(&home, options).0, Some(0), "root may: {options:?}");
    }
    for path in ["logs", "site", "key.pem"] {
        chown(home.0.join(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for options in [
        &log[..],
        &FILES,
        #[cfg(feature = "files")]
        &["--plain", "--files", "site"],
    ] {
        let (code, said) = with(options);
        assert_eq!(code, Some(0), "{options:?}: {said}");
    }
    assert!(!home.0.join("logs/a.log").exists());
    // Without root there is no other user to try.
    let program = super::upgrade::copy(&home);
    mode("taut", 0o755);
    let mut other = home.command(&program, &["check", "--user", "nobody"]);
    let other = other.args(FILES).uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(other.status.success() && said.contains("only root can try the files as nobody"), "{said}");
}

#[test]
fn check_refuses_a_certificate_that_has_expired() {
    let (code, said) = check(&home(Validity::Expired), &FILES);
    assert!(code == Some(2) && said.contains("taut: ") && said.contains("expired on"), "{code:?} {said}");
}

#[test]
fn a_chain_without_its_intermediate_is_a_warning_at_start() {
    let home = Home::new();
    let middle = Authority::new("Test").unwrap().intermediate("Test Intermediate").unwrap();
    let leaf = middle.issue(&Leaf::new(&["localhost"])).unwrap();
    fs::write(home.0.join("cert.pem"), &leaf.chain).unwrap();
    fs::write(home.0.join("key.pem"), &leaf.key).unwrap();
    let (code, said) = check(&home, &FILES);
    assert!(code == Some(0) && said.contains("\"Test Intermediate\""), "{code:?} {said}");
    assert_eq!(said.matches("Test Intermediate").count(), 1, "said once: {said}");
}

#[cfg(feature = "harden")]
#[test]
fn harden_does_not_open_the_whole_tree() {
    let home = home(Validity::Valid);
    for arguments in
        [&["--plain", "--harden", "--unix", "/taut-test.sock"][..], &["--plain", "--harden", "--files", "/"]]
    {
        let (code, said) = check(&home, arguments);
        assert!(code == Some(2) && said.contains("--harden") && said.contains("folder of its own"), "{code:?} {said}");
        let started = home.run(&[&["serve"][..], arguments].concat());
        assert!(started.code == Some(2) && started.err.contains("--harden"), "{started:?}");
    }
}

#[test]
fn what_openssl_makes_is_trusted_by_name_of_its_file() {
    let home = Home::new();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&home.0)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let server = home.serve(&FILES);
    let said = home.run_with(&["connect", "--ca", "cert.pem", &server.url], "hello\n");
    assert!(said.code == Some(0) && said.out.contains("hello"), "{said:?}");
}

#[cfg(not(any(feature = "nats", feature = "redis")))]
#[test]
fn a_build_without_brokers_names_the_feature() {
    let home = Home::new();
    for (command, broker) in [("serve", "nats"), ("check", "nats"), ("serve", "redis"), ("check", "redis")] {
        let said = home.run(&[command, "--plain", "--app", "hub", "--broker", &format!("{broker}://127.0.0.1:4222")]);
        assert!(said.code == Some(2) && said.err.contains(&format!("feature `{broker}`")), "{said:?}");
    }
    for (option, value) in [("--broker-size", "1MiB"), ("--broker-entries", "10"), ("--broker-replicas", "3")] {
        let said = home.run(&["check", "--plain", "--app", "hub", option, value]);
        assert!(said.code == Some(2) && said.err.contains(&format!("{option} needs --broker")), "{said:?}");
    }
}

#[test]
fn a_hub_that_others_reach_needs_rules_or_the_word_that_it_is_open() {
    let home = Home::new();
    let public = ["--plain", "--app", "hub", "--listen", "0.0.0.0:0"];
    for command in ["serve", "check"] {
        let said = home.run(&[&[command][..], &public].concat());
        assert!(said.code == Some(2) && said.err.contains("--rules") && said.err.contains("--open"), "{said:?}");
    }
    let open = home.run(&[&["check"][..], &public, &["--open"]].concat());
    assert_eq!(open.code, Some(0), "{open:?}");
    fs::write(home.0.join("hub.toml"), "[[namespce]]\n").unwrap();
    let said = home.run(&[&["check"][..], &public, &["--rules", "hub.toml"]].concat());
    assert!(said.code == Some(2) && said.err.contains("hub.toml:1: unknown key `namespce`"), "{said:?}");
}
