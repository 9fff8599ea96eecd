use super::*;

fn target(uri: &str) -> Result<(bool, String, u16, String), String> {
    let target = parse_uri(uri).and_then(|uri| Target::of(&uri)).map_err(|error| error.to_string())?;
    let header = target.host_header();
    Ok((target.secure, target.host, target.port, header))
}

#[test]
fn reads_host_port_and_security() {
    for (uri, secure, host, port, header) in [
        ("ws://a.example", false, "a.example", 80, "a.example"),
        ("wss://a.example/", true, "a.example", 443, "a.example"),
        ("wss://a.example:443/x", true, "a.example", 443, "a.example"),
        ("ws://a.example:443/x", false, "a.example", 443, "a.example:443"),
        ("WSS://A_b.example:/x", true, "A_b.example", 443, "A_b.example"),
        ("http://127.0.0.1:9000?x", false, "127.0.0.1", 9000, "127.0.0.1:9000"),
        ("https://[::1]/", true, "::1", 443, "[::1]"),
        ("wss://[2001:db8::1]:8443/", true, "2001:db8::1", 8443, "[2001:db8::1]:8443"),
        ("wss://user:pw@a.example:1/", true, "a.example", 1, "a.example:1"),
    ] {
        assert_eq!(target(uri), Ok((secure, host.into(), port, header.into())), "{uri}");
    }
}

#[test]
fn a_zone_is_for_this_machine_alone() {
    for uri in ["wss://[fe80::1%2]:8443/x", "wss://u:p@[fe80::1%252]:8443/x"] {
        assert_eq!(target(uri), Ok((true, "fe80::1".into(), 8443, "[fe80::1]:8443".into())), "{uri}");
        assert_eq!(Target::of(&parse_uri(uri).unwrap()).unwrap().zone, Some(2));
    }
    assert_eq!(Target::of(&parse_uri("ws://[fe80::1]/").unwrap()).unwrap().zone, None);
    let error = target("ws://[fe80::1%25eth0]/").unwrap_err();
    assert!(error.contains("[fe80::1%2]"), "{error}");
}

#[test]
#[cfg(feature = "idn")]
fn international_names_become_ascii() {
    let expected = (true, "xn--bcher-kva.example".into(), 443, "xn--bcher-kva.example".into());
    assert_eq!(target("wss://B\u{fc}cher.example/"), Ok(expected));
    let error = target("wss://\u{fc}..example/").unwrap_err();
    assert!(error.contains("no valid international name"), "{error}");
}

#[test]
fn rejects_unusable_uris() {
    for uri in [
        "",
        "a.example",
        "a.example:9000",
        "/path",
        "ftp://a.example/",
        "ws:///path",
        "ws://:80/",
        "ws://a.example:0/",
        "ws://a.example:65536/",
        "ws://a.example:99999999999/",
        "ws://a.example:-1/",
        "ws://a.example:+1/",
        "ws://a.example:x/",
        "ws://a:1:2/",
        "ws://[::1/",
        "ws://[::1]x/",
        "ws://[a.example]/",
        "ws://[fe80::1%25eth0]/",
        "ws://::1/",
        "ws://a b/",
        "ws://a%20b/",
        "ws://a.example/#fragment",
        "ws://a.example#",
        "ws://user@/",
    ] {
        assert!(target(uri).is_err(), "{uri}: {:?}", target(uri));
    }
}

#[test]
fn credentials_become_basic_authorization() {
    let auth = |uri: &str| basic_auth(&parse_uri(uri).unwrap());
    let header = |uri: &str| auth(uri).unwrap().map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(header("ws://a/"), None);
    assert_eq!(header("ws://Aladdin:open%20sesame@a/").as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    assert_eq!(header("ws://u@a/"), Some(format!("Basic {}", STANDARD.encode("u:"))));
    assert_eq!(header("ws://u:a:b%40@a/"), Some(format!("Basic {}", STANDARD.encode("u:a:b@"))));
    assert_eq!(header("ws://%c3%A4:@a/"), Some(format!("Basic {}", STANDARD.encode("\u{e4}:"))));
    assert!(auth("ws://u:p@a/").unwrap().unwrap().is_sensitive());
    for wrong in ["ws://u%0d%0aX:p@a/", "ws://u%3a:p@a/", "ws://u:%00@a/"] {
        assert!(auth(wrong).is_err(), "{wrong}");
    }
    for wrong in ["%", "%1", "%zz", "a%+1"] {
        assert_eq!(percent_decode(wrong), None, "{wrong}");
    }
}
