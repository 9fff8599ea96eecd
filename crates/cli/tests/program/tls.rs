//! Sessions and certificates of `taut serve`, tested with OpenSSL's client.

use super::{Home, Served};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tautline_testkit::certificate::{Authority, Leaf, Usage, Validity};

/// Whether OpenSSL's program is installed. If not, it prints that the test is skipped.
pub(super) fn openssl_is_there() -> bool {
    let ran = Command::new("openssl").arg("version").output();
    if let Err(error) = &ran {
        eprintln!("SKIPPED: `openssl` cannot be run ({error}), so nothing was tested with it");
    }
    ran.is_ok()
}

/// Writes a new certificate by `authority` to `cert.pem` and `key.pem`.
pub(super) fn write_certificate(home: &Home, authority: &Authority, validity: Validity) {
    let leaf = Leaf::new(&["localhost", "other.example"]).with_usage(Usage::Both).with_validity(validity);
    let certificate = authority.issue(&leaf).unwrap();
    std::fs::write(home.0.join("ca.pem"), authority.certificate()).unwrap();
    std::fs::write(home.0.join("cert.pem"), &certificate.chain).unwrap();
    std::fs::write(home.0.join("key.pem"), &certificate.key).unwrap();
}

pub(super) const FILES: [&str; 4] = ["--cert", "cert.pem", "--key", "key.pem"];

/// Requests a page with `openssl s_client`, and returns its report about the connection.
fn ask(home: &Home, server: &Served, arguments: &[&str]) -> String {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &format!("127.0.0.1:{}", server.port()), "-CAfile", "ca.pem", "-ign_eof"]);
    client.args(["-verify_return_error"]).args(arguments).current_dir(&home.0);
    let mut child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    let said = String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned();
    assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
    said
}

/// The server's certificate in a full handshake.
pub(super) fn certificate(home: &Home, server: &Served) -> String {
    let said = ask(home, server, &["-servername", "localhost"]);
    assert!(said.contains("New, TLSv1.3"), "{said}");
    let end = said.find("-----END CERTIFICATE-----").unwrap();
    said[said.find("-----BEGIN CERTIFICATE-----").unwrap()..end].to_owned()
}

pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn hang_up(server: &Served) {
    assert!(Command::new("kill").args(["-HUP", &server.pid()]).status().unwrap().success());
}

#[test]
fn sessions_are_resumed_by_another_process_of_the_fleet() {
    if !openssl_is_there() {
        return;
    }
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    write_certificate(&home, &authority, Validity::Valid);
    std::fs::write(home.0.join("fleet"), "5".repeat(64)).unwrap();
    std::fs::write(home.0.join("other"), "6".repeat(64)).unwrap();
    let serve = |arguments: &[&str]| home.serve(&[&FILES[..], arguments].concat());
    let first = serve(&["--ticket-secret", "fleet"]);
    // The other servers have another certificate, and the second one also another engine.
    write_certificate(&home, &authority, Validity::Valid);
    let second = serve(&["--ticket-secret", "fleet", "--tls", "rustls"]);
    let stranger = serve(&["--ticket-secret", "other"]);
    let strict = serve(&["--ticket-secret", "fleet", "--client-ca", "ca.pem"]);
    let without = serve(&["--tickets", "0"]);
    for version in ["-tls1_3", "-tls1_2"] {
        let asks = |server: &Served, resumed: bool, arguments: &[&str]| {
            let said = ask(&home, server, &[&[version][..], arguments].concat());
            let word = if resumed { "Reused, TLS" } else { "New, TLS" };
            assert!(said.contains(word), "{version} {arguments:?} should say {word:?}: {said}");
        };
        let (local, other) = (&["-servername", "localhost"][..], &["-servername", "other.example"][..]);
        asks(&first, false, &[local, &["-sess_out", "session"]].concat());
        let again = &["-sess_in", "session"][..];
        asks(&first, true, &[local, again].concat());
        asks(&second, true, &[local, again].concat());
        asks(&second, false, &[other, again].concat());
        asks(&stranger, false, &[local, again].concat());
        asks(&without, false, &[local, again].concat());
        let own = &["-cert", "cert.pem", "-key", "key.pem"][..];
        asks(&strict, false, &[local, again, own].concat());
    }
    let resumes = |server: &Served| {
        let said = ask(&home, server, &["-tls1_2", "-servername", "localhost", "-sess_in", "session"]);
        said.contains("Reused, TLS")
    };
    assert!(resumes(&first) && resumes(&second));
    std::fs::write(home.0.join("next"), "7".repeat(64)).unwrap();
    std::fs::rename(home.0.join("next"), home.0.join("fleet")).unwrap();
    eventually("the old secret is gone", || !resumes(&first) && !resumes(&second));
}

#[test]
fn certificates_are_reloaded_and_sessions_survive() {
    if !openssl_is_there() {
        return;
    }
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    write_certificate(&home, &authority, Validity::Valid);
    let server = home.serve(&FILES);
    let manual = home.serve(&[&FILES[..], &["--no-watch"]].concat());
    for (server, session) in [(&server, "session"), (&manual, "manual")] {
        ask(&home, server, &["-servername", "localhost", "-sess_out", session]);
    }
    let resumes = |server: &Served, session: &str| {
        ask(&home, server, &["-servername", "localhost", "-sess_in", session]).contains("Reused, TLSv1.3")
    };
    let first = certificate(&home, &server);
    assert_eq!(first, certificate(&home, &manual));
    write_certificate(&home, &authority, Validity::Valid);
    eventually("the files are watched", || certificate(&home, &server) != first);
    assert!(resumes(&server, "session"));
    assert_eq!(certificate(&home, &manual), first);
    hang_up(&manual);
    eventually("the signal is heard", || certificate(&home, &manual) != first);
    assert!(resumes(&manual, "manual"));

    let second = certificate(&home, &server);
    write_certificate(&home, &authority, Validity::Expired);
    hang_up(&manual);
    std::thread::sleep(Duration::from_secs(1));
    std::fs::write(home.0.join("cert.pem"), "nothing").unwrap();
    hang_up(&server);
    hang_up(&manual);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!([certificate(&home, &server), certificate(&home, &manual)], [second.clone(), second]);
    let said = server.stop();
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("was not reloaded") && said.err.contains("cert.pem: it is not PEM"), "{}", said.err);
    let said = manual.stop();
    assert!(said.err.contains("\ncertificates: reloaded 1 times, refused 2 times\n"), "{}", said.err);
    assert!(said.err.contains("certificate cert.pem with key key.pem expired on 20"), "{}", said.err);
}

#[test]
fn an_ocsp_response_is_stapled_and_reloaded() {
    if !openssl_is_there() {
        return;
    }
    let home = Home::new();
    let authority = Authority::new("Test").unwrap();
    write_certificate(&home, &authority, Validity::Valid);
    std::fs::write(home.0.join("ca-key.pem"), authority.key()).unwrap();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(&home.0).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let respond = |status: &str, minutes: &str| {
        let serial = openssl(&["x509", "-in", "cert.pem", "-noout", "-serial"]);
        let serial = serial.trim().strip_prefix("serial=").unwrap();
        std::fs::write(
            home.0.join("index"),
            format!(
                "{status}\t991231235959Z\t{}\t{serial}\tunknown\t/CN=localhost\n",
                if status == "R" { "200101000000Z" } else { "" }
            ),
        )
        .unwrap();
        openssl(&[
            "ocsp",
            "-index",
            "index",
            "-CA",
            "ca.pem",
            "-rsigner",
            "ca.pem",
            "-rkey",
            "ca-key.pem",
            "-issuer",
            "ca.pem",
            "-cert",
            "cert.pem",
            "-respout",
            "ocsp.der",
            "-nmin",
            minutes,
            "-noverify",
        ]);
    };
    let stapled = |server: &Served| {
        let said = ask(&home, server, &["-servername", "localhost", "-status"]);
        assert_ne!(
            said.contains("OCSP Response Status: successful"),
            said.contains("OCSP response: no response sent"),
            "{said}"
        );
        said.contains("Cert Status: good")
    };
    respond("V", "60");
    let server = home.serve(&[&FILES[..], &["--ocsp", "ocsp.der"]].concat());
    assert!(stapled(&server));
    // The new certificate arrives before its response, and is used without one.
    let before = certificate(&home, &server);
    write_certificate(&home, &authority, Validity::Valid);
    eventually("the new certificate", || certificate(&home, &server) != before);
    assert!(!stapled(&server));
    respond("V", "60");
    eventually("the new response", || stapled(&server));
    respond("R", "60");
    hang_up(&server);
    std::thread::sleep(Duration::from_secs(1));
    assert!(stapled(&server), "a revoked certificate is not loaded");
    let said = server.stop();
    assert!(said.err.contains("no OCSP response is sent: it is about another certificate"), "{}", said.err);
    assert!(said.err.contains("its OCSP response says that it was revoked"), "{}", said.err);
}

#[test]
fn invalid_arguments_are_explained() {
    let home = Home::new();
    write_certificate(&home, &Authority::new("Test").unwrap(), Validity::Valid);
    std::fs::write(home.0.join("short"), "short").unwrap();
    std::fs::write(home.0.join("empty"), "").unwrap();
    for (arguments, words) in [
        (&["--ticket-secret", "missing"][..], "cannot read the ticket secret missing"),
        (&["--ticket-secret", "short"], "short: ticket secret: 5 bytes are too few"),
        (&["--ticket-secret", "empty"], "empty: ticket secrets: none found"),
        (&["--ocsp", "empty"], "cannot read the OCSP response empty: the file is empty"),
        (&["--ocsp", "short"], "its OCSP response cannot be read"),
        (&["--ocsp", "short", "--ocsp", "short"], "1 --cert but 2 --ocsp"),
        (&["--client-ca", "key.pem"], "cannot read the authority for client certificates key.pem: it is not PEM"),
        (&["--tickets", "17"], "17 is not in 0..=16"),
        (&["--tickets", "0", "--ticket-secret", "short"], "--tickets 0 turns resumption off"),
        (&["--plain", "--ktls"], "cannot be used with"),
        (&["--handshake-threads", "100000"], "100000 is not in 0..=1024"),
        (&["--spin-idle", "2"], "--spin-idle needs --driver spin"),
        (&["--ticket-rotate", "43201"], "43201 is not in 1..=43200"),
    ] {
        let said = home.run(&[&["serve", "--listen", "127.0.0.1:0"], &FILES[..], arguments].concat());
        assert_eq!(said.code, Some(2), "{arguments:?}: {}", said.err);
        assert!(said.err.contains(words), "{arguments:?}: {}", said.err);
    }
}

#[cfg(not(feature = "acme"))]
#[test]
fn a_build_that_orders_no_certificates_names_the_feature() {
    let home = Home::new();
    for command in ["serve", "check"] {
        let said = home.run(&[command, "--acme", "one.example", "two.example"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("--acme") && said.err.contains("the feature `acme`"), "{said:?}");
    }
}

#[test]
fn an_operation_of_a_hub_names_the_option_for_its_authority() {
    let home = Home::new();
    let hub = home.serve(&["--app", "hub"]);
    assert_eq!(home.run(&["cert", "--dir", "other"]).code, Some(0));
    std::fs::write(home.0.join("app.key"), "k".repeat(32)).unwrap();
    let url = hub.url.replace("wss://", "https://");
    let ask = |ca: &str| home.run(&["hub", "history", &url, "--key-file", "app.key", "--ca", ca, "log:x"]);
    let strange = ask("other/ca.pem");
    assert!(strange.code == Some(3) && strange.err.contains("; pass the authority with --ca FILE"), "{strange:?}");
}
