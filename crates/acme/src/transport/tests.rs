//! Against authorities that do harm, over TLS.

use super::*;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;

#[test]
fn roots_are_certificates() {
    for roots in [&b"nothing"[..], b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"] {
        assert!(Transport::new(Some(roots)).is_err());
    }
}

/// An authority on loopback that answers each request with these bytes, and perhaps goes on without end.
struct Authority {
    port: u16,
    transport: Transport,
}

impl Authority {
    fn new(answer: String, endless: bool) -> Self {
        let key = KeyPair::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("authority {port}"));
        let own = params.self_signed(&key).unwrap();
        let transport = Transport::new(Some(own.pem().as_bytes())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = builder.with_no_client_auth().with_single_cert(vec![own.der().clone()], key);
        let config = Arc::new(config.unwrap());
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), socket);
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
                while endless && stream.write_all(&[b'x'; 4096]).is_ok() {}
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        });
        Self { port, transport }
    }

    fn ask(&self) -> Result<BytesResponse, Error> {
        let url = format!("https://localhost:{}/dir", self.port);
        let request = Request::get(url).body(BodyWrapper::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.transport.request(request))
    }
}

#[test]
fn answers_that_do_harm_are_bounded_and_named() {
    for (answer, endless, words) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true, "limit"),
        ("HTTP/1.1 200 OK\r\nEndless: ", true, "head"),
        ("HTTP/1.1 302 Found\r\nLocation: https://localhost/\r\nContent-Length: 0\r\n\r\n", false, "it redirects to"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", false, "cannot reach the authority at localhost"),
        ("SSH-2.0-OpenSSH\r\n", false, "cannot reach the authority at localhost"),
        ("", false, "cannot reach the authority at localhost"),
    ] {
        let error = Authority::new(answer.to_owned(), endless).ask().map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_wait_without_end_is_a_day() {
    for (said, taken) in [(u64::MAX.to_string(), "86400"), ("86401".to_owned(), "86400"), ("60".to_owned(), "60")] {
        let answer = format!("HTTP/1.1 200 OK\r\nRetry-After: {said}\r\nContent-Length: 2\r\n\r\n{{}}");
        let answer = Authority::new(answer, false).ask().unwrap();
        assert_eq!(answer.parts.headers[RETRY_AFTER], taken);
    }
}

#[test]
fn a_refusal_of_load_says_when_to_come_back() {
    for (status, said, wait) in [(429, "7200", 7200), (503, "60", 60), (429, "soon", 0), (400, "60", 0), (200, "60", 0)]
    {
        let answer = format!("HTTP/1.1 {status} No\r\nRetry-After: {said}\r\nContent-Length: 2\r\n\r\n{{}}");
        let authority = Authority::new(answer, false);
        let _ = authority.ask();
        let expected = (wait > 0).then(|| Duration::from_secs(wait));
        assert_eq!(authority.transport.wait(), expected, "{status} {said}");
    }
}

#[test]
fn a_question_that_is_refused_has_the_authoritys_reason() {
    use crate::failure::Failure;
    use crate::plan::FailureKind;

    for (status, body, words, kind) in [
        (
            404,
            r#"{"type": "urn:ietf:params:acme:error:malformed", "detail": "no such certificate"}"#,
            "the authority says: no such certificate (urn:ietf:params:acme:error:malformed), status 404",
            FailureKind::Rejected,
        ),
        (
            503,
            "<html>busy</html>",
            "says: no reason: is the directory's URL right?, status 503",
            FailureKind::Authority,
        ),
        (404, "{}", "says: no reason: is the directory's URL right?, status 404", FailureKind::Authority),
    ] {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let error = Authority::new(answer, false).ask().map(drop).unwrap_err();
        let failure = Failure::of("time of renewal", &error);
        assert!(failure.kind == kind && failure.to_string().contains(words), "{failure}");
    }
}

#[test]
fn an_authority_is_verified_by_its_roots() {
    let (one, two) = (Authority::new(String::new(), false), Authority::new(String::new(), false));
    let swapped = Authority { port: one.port, transport: two.transport };
    let error = swapped.ask().map(drop).unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate") && error.contains("--acme-ca"), "{error}");
}
