use super::{Addresses, FIXED, MAX_V1, MAX_V2, ProxyHeader, ProxyHeaderError, ProxyTls, V2, crc32c, looks_like};
use tautline_buf::Buf;
use tautline_io::Address;

fn address(text: &str) -> Address {
    if text == "unix:" { Address::UnixUnnamed } else { text.parse().unwrap() }
}

fn v2(header: &ProxyHeader, checked: bool) -> Vec<u8> {
    let mut out = Buf::new();
    header.write_v2(checked, &mut out).unwrap();
    out.filled().to_vec()
}

/// A header of version 2 with this command, this family, and these bytes behind.
fn raw(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap();
    [V2, &[command, family], &len.to_be_bytes(), rest].concat()
}

/// As [`raw`], from 192.0.2.7:4711 to 198.51.100.1:443.
fn with_values(values: &[u8]) -> Vec<u8> {
    raw(0x21, 0x11, &[&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xbb], values].concat())
}

fn full() -> ProxyHeader {
    ProxyHeader {
        addresses: Some(Addresses { client: address("192.0.2.7:4711"), server: address("198.51.100.1:443") }),
        alpn: Some(b"http/1.1".as_slice().into()),
        authority: Some("www.example.org".into()),
        unique_id: Some([7; 128].as_slice().into()),
        tls: Some(Box::new(ProxyTls {
            is_tls: true,
            has_certificate: true,
            is_verified: true,
            version: Some("TLSv1.3".into()),
            common_name: Some("b\u{fc}cher".into()),
            cipher: Some("TLS_AES_128_GCM_SHA256".into()),
            signature: Some("SHA256".into()),
            key: Some("RSA2048".into()),
        })),
    }
}

fn error(bytes: &[u8]) -> String {
    ProxyHeader::read(bytes).unwrap_err().to_string()
}

#[test]
fn version_1_is_read_as_the_specification_has_it() {
    for (line, client, server) in [
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            "255.255.255.255:65535",
            "255.255.255.255:65535",
        ),
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", "192.168.0.1:56324", "192.168.0.11:443"),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
        ),
        ("PROXY TCP6 ::1 2001:db8::1 0 1\r\n", "[::1]:0", "[2001:db8::1]:1"),
    ] {
        let bytes = [line.as_bytes(), b"GET"].concat();
        let expected = ProxyHeader::new(address(client), address(server));
        assert_eq!(ProxyHeader::read(&bytes), Ok(Some((expected.clone(), line.len()))));
        let mut out = Buf::new();
        expected.write_v1(&mut out);
        assert_eq!(out.filled(), line.as_bytes());
    }
    for line in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 ::2 65535 65535\r\n", "PROXY UNKNOWN \u{fc} \r\n"] {
        assert_eq!(ProxyHeader::read(line.as_bytes()), Ok(Some((ProxyHeader::default(), line.len()))));
    }
    // The longest line.
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1 - 16));
    assert_eq!((longest.len(), ProxyHeader::read(longest.as_bytes()).unwrap().unwrap().1), (MAX_V1, MAX_V1));
}

#[test]
fn a_wrong_line_is_refused() {
    for (line, word) in [
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n", "behind the ports"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", "behind the ports"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "port"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", "port"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n", "port"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", "port"),
        ("PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n", "address"),
        ("PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", "address"),
        ("PROXY TCP4 ::1 ::1 1 2\r\n", "address"),
        ("PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", "address"),
        ("PROXY TCP6 fe80::1%1 ::1 1 2\r\n", "address"),
        ("PROXY TCP4\r\n", "address"),
        ("PROXY \r\n", "protocol other"),
        ("PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n", "protocol other"),
        ("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "protocol other"),
        ("PROXY UNKNOWNS\r\n", "protocol other"),
        ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n\r\n", "port"),
        ("proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "other bytes"),
        ("PROXYTCP4", "request of HTTP"),
        ("GET / HTTP/1.1\r\n", "request of HTTP"),
        ("\u{16}\u{3}\u{1}", "TLS"),
        ("\n", "other bytes"),
    ] {
        assert!(error(line.as_bytes()).contains(word), "{line:?}: {}", error(line.as_bytes()));
    }
    let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; MAX_V1]].concat();
    assert_eq!(ProxyHeader::read(&endless), Err(ProxyHeaderError::TooLong(MAX_V1)));
    assert_eq!(ProxyHeader::read(&endless[..MAX_V1 - 1]), Ok(None));
    assert_eq!(ProxyHeader::read(b"PROXY \xff\r\n"), Err(ProxyHeaderError::Malformed("a line that is no text")));
}

#[test]
fn version_2_is_read_back_as_it_was_written() {
    for (client, server) in [
        ("192.0.2.7:4711", "198.51.100.1:443"),
        ("[2001:db8::7]:4711", "[2001:db8::1]:443"),
        ("unix:/run/client.sock", "unix:/run/server.sock"),
        ("unix:", "unix:/run/server.sock"),
    ] {
        for checked in [false, true] {
            let header = ProxyHeader {
                addresses: Some(Addresses { client: address(client), server: address(server) }),
                ..full()
            };
            let bytes = [v2(&header, checked), b"rest".to_vec()].concat();
            assert_eq!(ProxyHeader::read(&bytes), Ok(Some((header, bytes.len() - 4))));
        }
    }
    // The two families together.
    let mixed = ProxyHeader::new(address("192.0.2.7:1"), address("[2001:db8::1]:2"));
    let (read, _) = ProxyHeader::read(&v2(&mixed, true)).unwrap().unwrap();
    assert_eq!(read.client(), Some(&address("[::ffff:192.0.2.7]:1")));
    let mut out = Buf::new();
    assert!(ProxyHeader::new(address("192.0.2.7:1"), Address::UnixUnnamed).write_v2(false, &mut out).is_err());
    assert!(out.is_empty());
    mixed.write_v1(&mut out);
    assert_eq!(out.filled(), b"PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 1 2\r\n");
    out.clear();
    ProxyHeader::new(Address::UnixUnnamed, Address::UnixUnnamed).write_v1(&mut out);
    assert_eq!(out.filled(), b"PROXY UNKNOWN\r\n");
    assert_eq!(v2(&ProxyHeader::default(), false), raw(0x20, 0, &[]));
}

#[test]
fn a_header_is_the_same_however_its_bytes_arrive() {
    let mut v1 = Buf::new();
    full().write_v1(&mut v1);
    for bytes in [v1.filled(), &v2(&full(), true), &v2(&full(), false), &raw(0x20, 0x11, b"xy"), b"PROXY UNKNOWN\r\n"] {
        for len in 0..bytes.len() {
            assert_eq!(ProxyHeader::read(&bytes[..len]), Ok(None), "{len} of {bytes:?}");
        }
        assert_eq!(ProxyHeader::read(bytes).unwrap().unwrap().1, bytes.len());
    }
}

#[test]
fn headers_without_a_client_are_skipped_whole() {
    for header in [
        raw(0x20, 0x00, &[]),
        // All of it is to be discarded, whatever it is.
        raw(0x20, 0xff, &[1; 300]),
        raw(0x21, 0x00, &[]),
        raw(0x21, 0x00, &[9; 300]),
    ] {
        assert_eq!(ProxyHeader::read(&header), Ok(Some((ProxyHeader::default(), header.len()))));
    }
}

#[test]
fn a_wrong_header_of_version_2_is_refused() {
    let tls = |value: &[u8]| with_values(&[&[0x20, 0, u8::try_from(value.len()).unwrap()], value].concat());
    for (header, word) in [
        (raw(0x11, 0x11, &[0; 12]), "version other"),
        (raw(0x31, 0x11, &[0; 12]), "version other"),
        (raw(0x22, 0x11, &[0; 12]), "command"),
        (raw(0x21, 0x11, &[0; 11]), "ends too early"),
        (raw(0x21, 0x21, &[0; 35]), "ends too early"),
        (raw(0x21, 0x31, &[0; 215]), "ends too early"),
        (raw(0x21, 0x12, &[0; 12]), "datagrams"),
        (raw(0x21, 0x22, &[0; 36]), "datagrams"),
        (raw(0x21, 0x10, &[0; 36]), "unknown"),
        (raw(0x21, 0x41, &[0; 36]), "unknown"),
        (with_values(&[1]), "ends too early"),
        (with_values(&[1, 0]), "ends too early"),
        (with_values(&[1, 0, 2, b'h']), "longer than the header"),
        (with_values(&[1, 0xff, 0xff]), "longer than the header"),
        (with_values(&[1, 0, 0, 1, 0, 0]), "twice"),
        (with_values(&[2, 0, 1, 0xff]), "UTF-8"),
        (with_values(&[&[5, 0, 129], [0; 129].as_slice()].concat()), "128 bytes"),
        (with_values(&[3, 0, 3, 0, 0, 0]), "checksum of another length"),
        (with_values(&[3, 0, 4, 0, 0, 0, 0]), "CRC-32C"),
        (tls(&[]), "ends too early"),
        (tls(&[1, 0, 0, 0]), "ends too early"),
        (tls(&[1, 0, 0, 0, 0, 0x21, 0, 9]), "longer than the header"),
        (tls(&[1, 0, 0, 0, 0, 0x22, 0, 0, 0x22, 0, 0]), "twice"),
        (tls(&[1, 0, 0, 0, 0, 0x22, 0, 1, 0xff]), "UTF-8"),
    ] {
        assert!(error(&header).contains(word), "{header:?}: {}", error(&header));
    }
    // Refused before its bytes arrive.
    let long = u16::try_from(MAX_V2 - FIXED + 1).unwrap().to_be_bytes();
    let header = [V2, &[0x21, 0x11], &long].concat();
    assert_eq!(ProxyHeader::read(&header), Err(ProxyHeaderError::TooLong(MAX_V2)));
    // One bit anywhere in a header with a checksum.
    let header = v2(&full(), true);
    for at in FIXED..header.len() {
        let mut wrong = header.clone();
        wrong[at] ^= 1;
        assert_ne!(ProxyHeader::read(&wrong), ProxyHeader::read(&header), "{at}");
        assert!(ProxyHeader::read(&wrong).is_err(), "{at}");
    }
}

#[test]
fn unknown_values_and_padding_are_skipped() {
    let values = [4, 0, 2, 9, 9, 0x30, 0, 1, b'n', 0xe0, 0, 0, 4, 0, 0];
    let (header, _) = ProxyHeader::read(&with_values(&values)).unwrap().unwrap();
    assert_eq!(header, ProxyHeader::new(address("192.0.2.7:4711"), address("198.51.100.1:443")));
    // A certificate that was not verified, of a session that was resumed.
    let values = [0x20, 0, 8, 5, 0, 0, 0, 1, 0x28, 0, 0];
    let (header, _) = ProxyHeader::read(&with_values(&values)).unwrap().unwrap();
    let expected = ProxyTls { is_tls: true, has_certificate: true, ..ProxyTls::default() };
    assert_eq!(header.tls.as_deref(), Some(&expected));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut out = Buf::new();
    let id = |len: usize| ProxyHeader { unique_id: Some(vec![0; len].into()), ..full() };
    assert!(id(128).write_v2(true, &mut out).is_ok());
    out.clear();
    assert!(id(129).write_v2(true, &mut out).is_err());
    for len in [MAX_V2, 70_000] {
        let long = ProxyHeader { authority: Some("x".repeat(len).into()), ..full() };
        assert_eq!(long.write_v2(true, &mut out), Err(ProxyHeaderError::TooLong(MAX_V2)));
    }
    let path = format!("unix:/{}", "x".repeat(108));
    assert!(ProxyHeader::new(address(&path), Address::UnixUnnamed).write_v2(true, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn tells_what_a_beginning_looks_like() {
    assert_eq!(looks_like(b"PROXY TCP4 "), Some(1));
    assert_eq!(looks_like(b"PROXY"), Some(1));
    assert_eq!(looks_like(&v2(&full(), true)), Some(2));
    assert_eq!(looks_like(&V2[..5]), Some(2));
    for other in [&b"PROX"[..], b"PROXIMITY / HTTP/1.1", b"\r\n\r\n", b"\x16\x03\x01\0\0\0", b"GET / HTTP/1.1", b""] {
        assert_eq!(looks_like(other), None, "{other:?}");
    }
}

#[test]
fn the_checksum_is_crc_32c() {
    // RFC 3720, appendix B.4, and the check value of the catalogue of parametrised CRCs.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
}

/// Random bytes behind a signature are a header that can be written again, or an error, and never more than they are.
#[test]
fn random_headers_are_read_alike_or_refused() {
    let mut seed = 7_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(seed >> 56).unwrap()
    };
    let mut read = 0;
    for _ in 0..20_000 {
        let families = [0x11, 0x21, 0x11, random()];
        let family = families[usize::from(random() % 4)];
        let mut rest: Vec<u8> = (0..if family == 0x21 { 36 } else { 12 }).map(|_| random()).collect();
        while random() % 3 > 0 {
            let len = random() % 6;
            rest.extend([random() % 6, 0, len]);
            rest.extend((0..len.saturating_sub(random() % 32 / 31)).map(|_| random() % 128));
        }
        let bytes = raw(if random() % 8 == 0 { random() } else { 0x21 }, family, &rest);
        if let Ok(Some((header, len))) = ProxyHeader::read(&bytes) {
            assert_eq!(len, bytes.len());
            let again = v2(&header, random() % 2 == 0);
            assert_eq!(ProxyHeader::read(&again), Ok(Some((header, again.len()))));
            read += 1;
        }
    }
    assert!(read > 2_000, "{read}");
}
