use super::ForwardedHeader::{self, Forwarded, XForwardedFor};
use crate::prefixes::Prefixes;
use http::header::{HeaderMap, HeaderValue};
use tautline_io::Address;

/// The client behind a proxy at 10.0.0.1. 10.0.0.0/8 and fd00::/8 are trusted.
fn client(header: ForwardedHeader, lines: &[&str]) -> Option<String> {
    client_of(header, "10.0.0.1:80", lines)
}

fn client_of(header: ForwardedHeader, peer: &str, lines: &[&str]) -> Option<String> {
    let trusted = Prefixes::list(&["10.0.0.0/8", "fd00::/8", "unix"]).unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(header.name(), HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    let peer: Address = peer.parse().unwrap();
    header.client(&headers, &peer, &trusted).map(|client| client.to_string())
}

fn is(header: ForwardedHeader, lines: &[&str], expected: &str) {
    assert_eq!(client(header, lines).as_deref(), Some(expected), "{lines:?}");
}

#[test]
fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
    is(XForwardedFor, &["192.0.2.7"], "192.0.2.7:0");
    is(XForwardedFor, &["198.51.100.1, 192.0.2.7"], "192.0.2.7:0");
    is(XForwardedFor, &["198.51.100.1, 192.0.2.7, 10.0.0.2,10.0.0.3"], "192.0.2.7:0");
    is(XForwardedFor, &["198.51.100.1", "192.0.2.7", "10.0.0.2"], "192.0.2.7:0");
    is(XForwardedFor, &["2001:db8::1"], "[2001:db8::1]:0");
    is(XForwardedFor, &["[2001:db8::1]:4711, fd00::1"], "[2001:db8::1]:4711");
    is(XForwardedFor, &["192.0.2.7:4711"], "192.0.2.7:4711");
    is(Forwarded, &["for=192.0.2.7"], "192.0.2.7:0");
    is(Forwarded, &["For=\"[2001:db8:cafe::17]:4711\""], "[2001:db8:cafe::17]:4711");
    is(Forwarded, &["for=192.0.2.60;proto=http;by=203.0.113.43"], "192.0.2.60:0");
    is(Forwarded, &["proto=https; host=\"a,b;for=9.9.9.9\"; FOR=\"192.0.2.7:_port\""], "192.0.2.7:0");
    is(Forwarded, &["for=192.0.2.43, for=\"[fd00::17]\""], "192.0.2.43:0");
    is(Forwarded, &["for=198.51.100.1, for=192.0.2.43", "for=10.1.1.1"], "192.0.2.43:0");
    is(Forwarded, &["for=\"192.0.2.\\7\""], "192.0.2.7:0");
}

#[test]
fn if_all_are_trusted_the_first_of_them_is_the_client() {
    is(XForwardedFor, &["10.0.0.9, 10.0.0.2"], "10.0.0.9:0");
    assert_eq!(client(XForwardedFor, &[]), None);
    assert_eq!(client(XForwardedFor, &["", " , ,"]), None);
}

#[test]
fn peers_that_are_not_trusted_name_nobody() {
    for peer in ["192.0.2.1:80", "[2001:db8::1]:80", "11.0.0.1:1"] {
        assert_eq!(client_of(XForwardedFor, peer, &["198.51.100.1"]), None);
        assert_eq!(client_of(Forwarded, peer, &["for=198.51.100.1"]), None);
    }
    for peer in ["unix:/run/proxy.sock", "[fd00::1]:1", "[::ffff:10.0.0.1]:1"] {
        assert!(client_of(XForwardedFor, peer, &["198.51.100.1"]).is_some());
    }
}

#[test]
fn an_entry_without_an_address_ends_the_walk_at_the_proxy_that_wrote_it() {
    for entry in
        ["unknown", "_hidden", "1.2.3", "1.2.3.4.5", "x", "[::1", "[::1]x", "[1.2.3.4]", "1.2.3.4:", "1.2.3.4:99999"]
    {
        assert_eq!(client(XForwardedFor, &[&format!("198.51.100.1, {entry}")]), None, "{entry}");
        is(XForwardedFor, &[&format!("198.51.100.1, {entry}, 10.0.0.2")], "10.0.0.2:0");
        let quoted = format!("for=198.51.100.1, for=\"{entry}\"");
        assert_eq!(client(Forwarded, &[&quoted]), None, "{entry}");
        is(Forwarded, &[&format!("{quoted}, for=10.0.0.2")], "10.0.0.2:0");
    }
    for element in
        ["proto=http", "for", "for=", "for=1.1.1.1;for=2.2.2.2", "for=\"1.1.1.1", "for=1.1.1.1 x", "for=1.1.1.1;", "=1"]
    {
        assert_eq!(client(Forwarded, &[element]), None, "{element}");
        assert_eq!(client(Forwarded, &[&format!("for=198.51.100.1, {element}")]), None, "{element}");
    }
    // A byte that is no UTF-8.
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_bytes(b"198.51.100.1, \xff").unwrap());
    let trusted = Prefixes::list(&["10.0.0.0/8"]).unwrap();
    assert_eq!(XForwardedFor.client(&headers, &"10.0.0.1:1".parse().unwrap(), &trusted), None);
}

#[test]
fn a_client_hides_nothing_that_a_proxy_has_appended() {
    for forged in ["for=\"", "for=\"x", "for=\"a\\\"", "\"", "for=1.1.1.1;x=\"", "for=\\\"", ",,\",\"\""] {
        is(Forwarded, &[&format!("{forged}, for=192.0.2.7")], "192.0.2.7:0");
        is(Forwarded, &[&format!("{forged}, for=\"[2001:db8::7]\";x=\"a\\\"b,c\", for=10.0.0.2")], "[2001:db8::7]:0");
        is(XForwardedFor, &[&format!("{forged}, 192.0.2.7")], "192.0.2.7:0");
    }
}

#[test]
fn elements_may_be_empty() {
    is(XForwardedFor, &[" , 192.0.2.7 ,, ", "", ","], "192.0.2.7:0");
    is(Forwarded, &["for=198.51.100.1,, for=192.0.2.7\t,", ","], "192.0.2.7:0");
}

#[test]
fn the_other_header_has_no_effect() {
    let trusted = Prefixes::list(&["10.0.0.0/8"]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.7"));
    headers.insert("forwarded", HeaderValue::from_static("for=198.51.100.1"));
    let client = |header: ForwardedHeader| header.client(&headers, &"10.0.0.1:1".parse().unwrap(), &trusted).unwrap();
    assert_eq!(client(XForwardedFor).to_string(), "192.0.2.7:0");
    assert_eq!(client(Forwarded).to_string(), "198.51.100.1:0");
    assert_eq!("X-Forwarded-For".parse(), Ok(XForwardedFor));
    assert!("x-real-ip".parse::<ForwardedHeader>().is_err());
}

/// Whatever a client sends in front, the address that its proxy appends stays the client.
#[test]
fn random_lines_of_a_client_change_nothing() {
    let alphabet = b"for=\"\\,; 1.:[]x_\t";
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for _ in 0..20_000 {
        let len = random(24);
        let forged: String = (0..len).map(|_| char::from(alphabet[random(alphabet.len())])).collect();
        let lines = [forged.clone(), format!("{forged},for=192.0.2.7;by=\"_a\\\\\", for=\"10.0.0.2:8\"")];
        is(Forwarded, &[&lines[0], &lines[1]], "192.0.2.7:0");
        is(XForwardedFor, &[&forged, &format!("{}, 192.0.2.7", forged.replace('"', ""))], "192.0.2.7:0");
    }
}
