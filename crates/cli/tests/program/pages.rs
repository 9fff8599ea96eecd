//! The web pages and hosts that `taut serve` takes, and the requests that stand in for them.

use super::{Finished, Home, Served};
use std::process::Command;

/// The exit code and the errors of `taut connect` with these options.
fn connect(home: &Home, server: &Served, options: &[&str]) -> (Option<i32>, String) {
    let said = home.run(&[&["connect", "--wait", "0", &server.url], options].concat());
    (said.code, said.err)
}

#[test]
fn an_origin_is_checked_when_the_server_starts() {
    let home = Home::new();
    for (origin, remedy) in [
        ("app.example", "write https://app.example"),
        ("https://app.example/chat", "write https://app.example"),
        ("wss://app.example", "write https://app.example"),
        ("https://a.example,https://b.example", "each origin on its own"),
        ("https://a.*.example", "https://*.example.org"),
    ] {
        let said = home.run(&["serve", "--plain", "--listen", "127.0.0.1:0", "--origin", origin]);
        assert_eq!(said.code, Some(2), "{origin}: {said:?}");
        assert!(said.err.contains(remedy), "{origin}: {}", said.err);
    }
}

#[test]
fn origins_and_their_wildcards_may_connect() {
    let home = Home::new();
    let named = ["--plain", "--origin", "https://app.example", "--origin", "https://*.example.org"];
    let server = home.serve(&named);
    for origin in ["https://app.example", "https://a.b.example.org"] {
        let said = connect(&home, &server, &["-H", &format!("Origin: {origin}")]);
        assert_eq!(said.0, Some(0), "{origin}: {said:?}");
    }
    for origin in ["https://evil-example.org", "https://example.org", "http://localhost"] {
        let (code, err) = connect(&home, &server, &["-H", &format!("Origin: {origin}")]);
        assert!(code == Some(3) && err.contains("403"), "{origin}: {err}");
    }
    assert_eq!(connect(&home, &server, &[]).0, Some(0), "a program sends no origin");
    for any in ["*", "any"] {
        let server = home.serve(&["--plain", "--origin", any]);
        assert_eq!(connect(&home, &server, &["-H", "Origin: https://evil.example"]).0, Some(0), "{any}");
    }
}

/// A page of evil.example whose name leads to 127.0.0.1 sends its own name in both headers.
#[test]
fn a_rebound_name_does_not_reach_a_server_on_loopback() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let at = |host: &str| [format!("Host: {host}"), format!("Origin: http://{host}")];
    let from = |server: &Served, host: &str, more: &[&str]| {
        let [host, origin] = at(host);
        connect(&home, server, &[&["-H", &host, "-H", &origin], more].concat())
    };
    let port = server.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "app.localhost"] {
        let said = from(&server, &format!("{host}:{port}"), &[]);
        assert_eq!(said.0, Some(0), "{host}: {said:?}");
    }
    let evil = format!("evil.example:{port}");
    let (code, err) = from(&server, &evil, &[]);
    assert!(code == Some(3) && err.contains("403"), "{err}");
    // A proxy that passes the public host on, or a server that knows its pages.
    assert_eq!(from(&server, "app.example", &["-H", "X-Real-IP: 192.0.2.1"]).0, Some(0));
    let (code, err) = connect(&home, &server, &["-H", "Host: app.example"]);
    assert_eq!(code, Some(0), "a program sends no origin: {err}");
    let server = home.serve(&["--plain", "--origin", "http://app.example"]);
    assert_eq!(from(&server, "app.example", &[]).0, Some(0));
    assert_eq!(from(&server, &evil, &["-H", "X-Real-IP: 192.0.2.1"]).0, Some(3));
    let server = home.serve(&["--plain", "--listen", "0.0.0.0:0"]);
    assert_eq!(from(&server, "app.example", &[]).0, Some(0), "others reach this server, under any name");
}

#[cfg(feature = "files")]
#[test]
fn files_are_served_under_the_names_of_their_pages() {
    let home = Home::new();
    std::fs::create_dir(home.0.join("public")).unwrap();
    std::fs::write(home.0.join("public/index.html"), "the page").unwrap();
    let ask = |server: &Served, host: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "60", "--header", &format!("Host: {host}")]);
        Finished::of(curl.arg(format!("http://127.0.0.1:{}/", server.port())).output().unwrap()).out
    };
    let server = home.serve(&["--plain", "--files", "public"]);
    assert_eq!([ask(&server, "localhost:1"), ask(&server, "127.0.0.1")], ["the page", "the page"]);
    assert!(ask(&server, "evil.example").contains("--origin"), "{}", ask(&server, "evil.example"));
    let server = home.serve(&["--plain", "--files", "public", "--origin", "https://*.app.example"]);
    assert_eq!(ask(&server, "www.app.example"), "the page");
    assert!(ask(&server, "evil.example").contains("--origin"));
    let server = home.serve(&["--plain", "--files", "public", "--listen", "0.0.0.0:0"]);
    assert_eq!(ask(&server, "www.example"), "the page");
}

#[test]
fn host_and_origin_are_given_once() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let (code, err) = connect(&home, &server, &["--origin", "http://localhost", "-H", "Origin: http://localhost"]);
    assert!(code == Some(2) && err.contains("given twice"), "{err}");
    for name in ["Host", "origin"] {
        let header = format!("{name}: localhost");
        let (code, err) = connect(&home, &server, &["-H", &header, "-H", &header]);
        assert!(code == Some(2) && err.contains("given twice"), "{err}");
    }
    let (code, err) = connect(&home, &server, &["-H", "Host: no host"]);
    assert!(code != Some(0) && err.contains("host"), "{err}");
    let load = ["load", "--connections", "1", "--warmup", "0", "--duration", "0.1", "--origin", "http://evil.example"];
    let said = home.run(&[&load[..], &[&server.url]].concat());
    assert!(said.code != Some(0) && said.err.contains("403"), "{said:?}");
}
