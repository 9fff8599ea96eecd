//! The client, as a proxy names it: in a header of the PROXY protocol, or in a header of a request.

use http::header::{HeaderMap, HeaderValue};
use tautline_buf::Buf;
use tautline_conn::forwarded::ForwardedHeader;
use tautline_conn::prefixes::Prefixes;
use tautline_conn::proxy_header::{MAX_V2, ProxyHeader, looks_like};

/// Input: one byte for the kind, then a header of the PROXY protocol, or lines of a header of a request.
pub(crate) fn run(data: &[u8]) {
    let Some((&way, rest)) = data.split_first() else { return };
    match way % 3 {
        0 => header(rest),
        1 => forwarded(ForwardedHeader::XForwardedFor, ("x-forwarded-for", "192.0.2.7"), rest),
        _ => forwarded(ForwardedHeader::Forwarded, ("forwarded", "for=192.0.2.7"), rest),
    }
}

/// A header is the same whatever follows, is there only once it is whole, and can be written and read again.
fn header(bytes: &[u8]) {
    let whole = ProxyHeader::read(bytes);
    let bytes = &bytes[..bytes.len().min(MAX_V2)];
    let first = (0..=bytes.len()).find(|&len| ProxyHeader::read(&bytes[..len]) != Ok(None));
    let Some(first) = first else {
        assert_eq!(whole, Ok(None));
        return;
    };
    assert_eq!(ProxyHeader::read(&bytes[..first]), whole, "more bytes change nothing");
    let Ok(Some((header, len))) = whole else { return };
    assert_eq!(len, first);
    assert!(looks_like(bytes).is_some());
    for checked in [false, true] {
        let mut out = Buf::new();
        if header.write_v2(checked, &mut out).is_ok() {
            assert_eq!(ProxyHeader::read(out.filled()), Ok(Some((header.clone(), out.len()))));
        }
    }
    let mut out = Buf::new();
    header.write_v1(&mut out);
    let (again, len) = ProxyHeader::read(out.filled()).unwrap().unwrap();
    assert_eq!(len, out.len());
    assert!(again.client().is_none() || again.client() == header.client() || !is_ipv4(&header));
}

fn is_ipv4(header: &ProxyHeader) -> bool {
    header.client().is_some_and(|client| matches!(client, tautline_io::Address::Tcp(client) if client.is_ipv4()))
        && header
            .addresses
            .as_ref()
            .is_some_and(|addresses| matches!(&addresses.server, tautline_io::Address::Tcp(server) if server.is_ipv4()))
}

/// Whatever lines a client sends, the address that its proxy appends in a line of its own is the client.
fn forwarded(header: ForwardedHeader, (name, entry): (&'static str, &'static str), bytes: &[u8]) {
    let trusted = Prefixes::list(&["10.0.0.0/8", "unix"]).unwrap();
    let peer = tautline_io::Address::UnixUnnamed;
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&byte| byte == b'\n').take(100) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    let first = header.client(&headers, &peer, &trusted);
    headers.append(name, HeaderValue::from_static(",,"));
    assert_eq!(header.client(&headers, &peer, &trusted), first, "empty elements count for nothing");
    headers.append(name, HeaderValue::from_static(entry));
    let client = header.client(&headers, &peer, &trusted).map(|client| client.to_string());
    assert_eq!(client.as_deref(), Some("192.0.2.7:0"));
    let stranger = "192.0.2.1:1".parse().unwrap();
    assert_eq!(header.client(&headers, &stranger, &trusted), None);
}
