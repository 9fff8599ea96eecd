use super::*;
use http::HeaderValue;

fn allows(origins: &Origins, host: &'static str, origin: &[&'static str]) -> bool {
    let mut request = Request::new(());
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static(host));
    for origin in origin {
        headers.append(ORIGIN, HeaderValue::from_static(origin));
    }
    origins.allow(&request)
}

#[test]
fn same_host_compares_host_and_port() {
    for (host, origin) in [
        ("a.example", "https://a.example"),
        ("a.example", "http://a.example"),
        ("A.example", "https://a.EXAMPLE"),
        ("a.example:443", "https://a.example"),
        ("a.example", "https://a.example:443"),
        ("a.example:8443", "https://a.example:8443"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("[0:0::1]:9000", "http://[::1]:9000"),
    ] {
        assert!(allows(&Origins::SameHost, host, &[origin]), "{host} {origin}");
    }
    for (host, origin) in [
        ("a.example", "https://b.example"),
        ("a.example", "https://a.example.evil"),
        ("a.example", "https://evil-a.example"),
        ("a.example:8443", "https://a.example"),
        ("a.example", "https://a.example:8443"),
        ("a.example:80", "https://a.example"),
        ("a.example", "https://user@a.example"),
        ("a.example", "null"),
        ("a.example", "a.example"),
        ("", "https://"),
        ("a.example", ""),
        ("a.example", "https://a.example/path"),
    ] {
        assert!(!allows(&Origins::SameHost, host, &[origin]), "{host} {origin}");
    }
}

#[test]
fn a_list_compares_scheme_host_and_port() {
    let list = Origins::list(["https://a.example/", "http://b.example:8080", "HTTPS://C.example:443", "null"]).unwrap();
    for origin in ["https://a.example", "HTTPS://A.example:443", "http://b.example:8080", "https://c.EXAMPLE", "null"] {
        assert!(allows(&list, "x", &[origin]), "{origin}");
    }
    for origin in ["http://a.example", "https://a.example:80", "http://b.example", "file://", "https://x", "", "NULL"] {
        assert!(!allows(&list, "x", &[origin]), "{origin}");
    }
    let extension = Origins::list(["moz-extension://0123-ab"]).unwrap();
    assert!(allows(&extension, "x", &["moz-extension://0123-ab"]));
}

#[test]
fn a_wildcard_stands_for_whole_labels() {
    let list = Origins::list(["https://*.example.org", "http://*.dev.test:3000"]).unwrap();
    for origin in
        ["https://a.example.org", "https://a.b.EXAMPLE.org:443", "http://x.dev.test:3000", "https://xn--a.example.org"]
    {
        assert!(allows(&list, "x", &[origin]), "{origin}");
    }
    for origin in [
        "https://example.org",
        "https://.example.org",
        "https://a..example.org",
        "https://evil-example.org",
        "https://evilexample.org",
        "https://a.example.org.evil.example",
        "https://evil.example/.example.org",
        "https://evil.example?.example.org",
        "https://evil.example#.example.org",
        "https://evil.example\\.example.org",
        "https://user@a.example.org",
        "http://a.example.org",
        "https://a.example.org:8443",
        "http://x.dev.test",
        "null",
    ] {
        assert!(!allows(&list, "x", &[origin]), "{origin}");
    }
}

#[test]
fn one_star_allows_any_page() {
    assert_eq!(Origins::list(["https://a.example", "*"]), Ok(Origins::Any));
    assert_eq!(Origins::list::<&str>([]), Ok(Origins::List(Vec::new())));
}

#[test]
fn texts_that_no_browser_sends_are_refused_with_the_right_form() {
    for (text, remedy) in [
        ("app.example", "write https://app.example"),
        ("app.example:8443", "write https://app.example:8443"),
        ("localhost", "write https://localhost"),
        ("https://app.example/chat", "write https://app.example"),
        ("https://app.example:8443?x", "write https://app.example:8443"),
        ("https://app.example#x", "write https://app.example"),
        ("wss://app.example", "write https://app.example"),
        ("ws://app.example:80/x", "write http://app.example:80"),
        ("https://a.example,https://b.example", "each origin on its own"),
        ("https://a.example https://b.example", "each origin on its own"),
        ("a.example, b.example", "each origin on its own"),
        ("https://*", "https://*.example.org"),
        ("https://a.*.example", "https://*.example.org"),
        ("https://*example.org", "https://*.example.org"),
        ("https://*.*.example", "https://*.example.org"),
        ("https://a.example:*", "https://*.example.org"),
        ("*://a.example", "https://app.example"),
        ("https://*.127.0.0.1", "not before an address"),
        ("https://*.[::1]", "not before an address"),
        ("https://b\u{fc}cher.example", "xn--"),
        ("https://", "host"),
        ("https://user@a.example", "host"),
        ("https://a.example:0", "port"),
        ("https://a.example:99999", "port"),
        ("", "write https://app.example"),
        ("any", "write https://any"),
    ] {
        let error = Origins::list([text]).unwrap_err().to_string();
        assert!(error.contains(remedy) && error.contains(&format!("{text:?}")), "{text}: {error}");
    }
}

#[test]
fn allows_requests_without_an_origin_and_rejects_two_origins() {
    for origins in [Origins::SameHost, Origins::Loopback, Origins::List(vec![])] {
        assert!(allows(&origins, "a", &[]));
    }
    assert!(!allows(&Origins::SameHost, "a", &["https://a", "https://a"]));
    assert!(allows(&Origins::Any, "a", &["https://b", "https://c"]));
}

#[test]
fn an_absolute_target_counts_more_than_host() {
    let request = |target: &str| {
        let request = Request::get(target).header(HOST, "evil.example").header(ORIGIN, "http://a.example");
        request.body(()).unwrap()
    };
    assert_eq!(authority(&request("http://a.example/x")), Some("a.example"));
    assert!(Origins::SameHost.allow(&request("http://a.example/x")));
    assert_eq!(authority(&request("/x")), Some("evil.example"));
    assert!(!Origins::SameHost.allow(&request("/x")));
}

#[test]
fn a_rebound_name_does_not_reach_a_server_on_loopback() {
    for name in ["localhost:8080", "app.localhost:8080", "127.0.0.1:8080", "127.1.2.3:8080", "[::1]:8080", "LOCALHOST"]
    {
        let origin = HeaderValue::try_from(format!("http://{name}")).unwrap();
        let request = Request::get("/").header(HOST, name).header(ORIGIN, origin).body(()).unwrap();
        assert!(Origins::Loopback.allow(&request) && is_loopback(name), "{name}");
    }
    for name in ["evil.example:8080", "localhost.evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1", "[fe80::1]"]
    {
        let origin = HeaderValue::try_from(format!("http://{name}")).unwrap();
        let mut request = Request::get("/").header(HOST, name).header(ORIGIN, origin).body(()).unwrap();
        assert!(Origins::SameHost.allow(&request), "{name}: the other check cannot tell");
        assert!(!Origins::Loopback.allow(&request) && !is_loopback(name), "{name}");
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
        assert!(Origins::Loopback.allow(&request), "{name}: a proxy has forwarded it");
    }
    let named = Origins::list(["https://app.example", "https://*.example.org", "null"]).unwrap();
    for (host, is_served) in [("app.example", true), ("a.example.org:81", true), ("evil.example", false), ("", false)] {
        assert_eq!(named.allow_host(host), is_served, "{host}");
    }
    assert!(Origins::Loopback.allow_host("localhost:1") && !Origins::Loopback.allow_host("evil.example:1"));
    // A page of another server of this machine.
    assert!(!allows(&Origins::Loopback, "localhost:8080", &["http://localhost:3000"]));
    for wrong in ["", "a b", "localhost:x", "user@localhost"] {
        assert!(!is_loopback(wrong), "{wrong}");
    }
}
