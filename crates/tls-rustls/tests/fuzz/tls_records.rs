//! Gives any sequence of records, protected or not and split anywhere, to either engine in either role. It must not
//! panic, and must return only data that was protected and sent.
//!
//! The first byte chooses the engine, the role and whether the handshake comes first. Operations follow, each a byte with
//! its arguments.

use std::sync::LazyLock;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{End, Split};
use tautline_testkit::raw_peer::{RawPeer, kind};
use tautline_tls::{Certificate, ClientConfig, Engine, Error, Roots, ServerConfig, Session, Tickets};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

struct Fixture {
    authority: Authority,
    certificate: Certificate,
    library: library::Engine,
    fused: fused::Engine,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let authority = Authority::new("Fuzz").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = ServerConfig::new([certificate.clone()]).with_tickets(Tickets::Off);
    let roots = Roots::Pem(authority.certificate().into());
    let client = ClientConfig::default().with_roots(roots).without_resumption();
    Fixture {
        authority,
        certificate,
        library: library::Engine::new(Some(&server), Some(&client)).unwrap(),
        fused: fused::Engine::new(Some(&server), Some(&client)).unwrap(),
    }
});

pub(crate) fn run(data: &[u8]) {
    let Some((&how, operations)) = data.split_first() else { return };
    match how & 1 {
        0 => with_engine(&FIXTURE.library, how, operations),
        _ => with_engine(&FIXTURE.fused, how, operations),
    }
}

fn with_engine<E: Engine>(engine: &E, how: u8, operations: &[u8]) {
    let is_server = how & 2 == 0;
    let mut end = End::new(if is_server { engine.accept() } else { engine.connect("localhost") }.unwrap());
    let raw_peer = match (how & 4 == 0, is_server) {
        (true, true) => Some(RawPeer::client(&mut end, FIXTURE.authority.certificate(), None)),
        (true, false) => Some(RawPeer::server(&mut end, &FIXTURE.certificate, None)),
        (false, _) => {
            end.work().unwrap();
            None
        }
    };
    let mut expected = Vec::new();
    // An error ends the session. All its answers were checked before.
    let _ = operate(&mut end, raw_peer, operations, &mut expected);
    assert!(expected.starts_with(&end.received), "data arrived that was not sent");
}

fn operate<S: Session>(
    end: &mut End<S>,
    mut raw_peer: Option<RawPeer>,
    operations: &[u8],
    expected: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut input = operations.iter().copied();
    let mut split = Split::Whole;
    while let Some(operation) = input.next() {
        let mut next = || usize::from(input.next().unwrap_or(0));
        let wire = match (operation % 8, &mut raw_peer) {
            (0, _) => {
                let len = next();
                input.by_ref().take(len).collect()
            }
            (1, Some(raw_peer)) => {
                let (kind, padding, len) = (next() % 256, next(), next());
                let content: Vec<u8> = input.by_ref().take(len).collect();
                let kind = u8::try_from(kind).unwrap();
                // The last byte that is not zero is the type. So with a type of 0, the content's end becomes the type.
                let inner = [&content[..], &[kind]].concat();
                let end = inner.iter().rposition(|&byte| byte != 0);
                if let Some((&kind::DATA, data)) = end.and_then(|end| inner[..=end].split_last()) {
                    expected.extend_from_slice(data);
                }
                raw_peer.seal(kind, &content, padding)
            }
            (2, Some(raw_peer)) => {
                let content = vec![operation; next() * 130];
                expected.extend_from_slice(&content);
                raw_peer.seal(kind::DATA, &content, 0)
            }
            (3, Some(raw_peer)) => {
                let wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, u8::from(next() > 127)], 0);
                raw_peer.tx.update();
                wire
            }
            (4, _) => {
                split = Split::Every(1 + next());
                continue;
            }
            (5, _) => {
                let piece = vec![7; next() * 130];
                if end.open {
                    let _ = end.send(&[&piece, &piece[..piece.len() / 2]]);
                }
                continue;
            }
            (6, Some(raw_peer)) => {
                raw_peer.open(&end.take_outbox());
                continue;
            }
            (7, _) => {
                end.close();
                continue;
            }
            _ => continue,
        };
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(split.next(rest.len()));
            rest = behind;
            end.deliver(piece)?;
        }
    }
    Ok(())
}
