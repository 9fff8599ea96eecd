//! Decisions and requests of the program: its own verification, keying material, key updates by a call.

use super::{Engines, LOCALHOST, Make, certificate, client_config, greet, server_config, trusted};
use crate::certificate::KeyKind;
use crate::pair::Side;
use crate::rustls_peer::{Fixture, SUITES, settle};
use std::sync::{Arc, Mutex};
use tautline_tls::{ClientAuth, Engine, Error, PeerCertificates, Roots, Session, Verify, Versions};

/// The length of the chain, the host, and the engine's own reason to reject the chain.
type Call = (usize, Option<String>, Option<Error>);

/// Records the calls, and answers as it is told.
struct Decides {
    answer: Result<(), String>,
    calls: Mutex<Vec<Call>>,
}

impl Decides {
    fn new(answer: Result<(), &str>) -> Arc<Self> {
        Arc::new(Self { answer: answer.map_err(str::to_owned), calls: Mutex::default() })
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

impl Verify for Decides {
    fn verify(&self, peer: &PeerCertificates<'_>) -> Result<(), String> {
        let call = (peer.chain.len(), peer.host.map(str::to_owned), peer.rejected.cloned());
        self.calls.lock().unwrap().push(call);
        self.answer.clone()
    }
}

/// The program's own decision replaces that of the engine, at both ends, and sees the engine's.
pub fn programs_decide_about_certificates<E: Engine>(make: impl Make<E>) {
    let decided = client_config().with_verify(Decides::new(Ok(())));
    if !make(None, Some(&client_config())).unwrap().capabilities().own_verifier {
        assert!(matches!(make(None, Some(&decided)), Err(Error::Config(why)) if why.contains("program")));
        return;
    }
    assert!(matches!(make(Some(&server_config().with_verify(Decides::new(Ok(())))), None), Err(Error::Config(_))));
    for versions in [Versions::Tls13, Versions::Tls12] {
        let stranger = || client_config().with_roots(Roots::Pem(certificate(&["a"], KeyKind::P256).chain));
        let server = server_config().with_versions(versions);
        for (client, accepted) in [(client_config(), true), (stranger(), false)] {
            let yes = Decides::new(Ok(()));
            greet(&mut Engines::new(&make, &server, &client.clone().with_verify(yes.clone())).open("localhost"));
            let calls = yes.calls();
            assert_eq!((calls.len(), calls[0].0, calls[0].1.as_deref()), (1, 1, Some("localhost")));
            assert_eq!(calls[0].2.is_none(), accepted, "{calls:?}");
            let no = Decides::new(Err("the program says no"));
            let (failure, _) = Engines::new(&make, &server, &client.with_verify(no)).refused("localhost");
            let Error::Certificate(why) = &failure.error else { unreachable!("{failure:?}") };
            assert_eq!((failure.side, why.contains("the program")), (Side::Client, accepted), "{why}");
        }
        // Clients' certificates.
        let server = |answer| {
            let server = server_config().with_versions(versions).with_client_auth(ClientAuth::Required(trusted()));
            server.with_verify(Decides::new(answer))
        };
        let client = client_config().with_certificate(LOCALHOST.clone());
        let (failure, _) = Engines::new(&make, &server(Err("not this one")), &client).refused("localhost");
        assert!(matches!(&failure.error, Error::Certificate(_)) && failure.side == Side::Server, "{failure:?}");
        greet(&mut Engines::new(&make, &server(Ok(())), &client).open("localhost"));
        programs_decide_alone_about_clients(&make, versions);
    }
}

/// Without roots a server's engine rejects every client, and the program may still accept it.
fn programs_decide_alone_about_clients<E: Engine>(make: &impl Make<E>, versions: Versions) {
    let server = server_config().with_versions(versions).with_client_auth(ClientAuth::Required(Vec::new()));
    let (yes, no) = (Decides::new(Ok(())), Decides::new(Err("not this one")));
    if let Err(error) = make(Some(&server.clone().with_verify(yes.clone())), None) {
        assert!(matches!(&error, Error::Config(why) if why.contains("roots for client certificates")), "{error}");
        return;
    }
    let client = client_config().with_certificate(LOCALHOST.clone());
    greet(&mut Engines::new(make, &server.clone().with_verify(yes.clone()), &client).open("localhost"));
    let calls = yes.calls();
    assert!(calls.len() == 1 && calls[0].2.is_some(), "{calls:?}");
    let refusing = server.with_verify(no);
    for client in [client, client_config()] {
        let (failure, _) = Engines::new(make, &refusing, &client).refused("localhost");
        assert_eq!(failure.side, Side::Server, "{failure:?}");
    }
}

/// A session of one decision is not resumed under another.
pub fn decisions_do_not_share_sessions<E: Engine>(make: impl Make<E>) {
    let server = make(Some(&server_config()), None).unwrap();
    if !server.capabilities().own_verifier {
        return;
    }
    let config = client_config().with_verify(Decides::new(Ok(())));
    for client in [config.clone(), config.with_verify(Decides::new(Ok(())))] {
        for expected in [false, true] {
            let engines = Engines { server: server.clone(), client: make(None, Some(&client)).unwrap() };
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            assert_eq!(pair.client.session.tls_info().resumed, expected);
        }
    }
}

/// Both ends export the same keying material, as another implementation does, in full and resumed sessions.
pub fn exporters<E: Engine>(make: impl Make<E>) {
    let (server, client) = (server_config().with_exporter(true), client_config().with_exporter(true));
    if !make(None, Some(&client_config())).unwrap().capabilities().exporter {
        for made in [make(Some(&server), None), make(None, Some(&client))] {
            assert!(matches!(made, Err(Error::Config(why)) if why.contains("export keying material")));
        }
        return;
    }
    let export = |session: &E::Session, label: &[u8], context: &[u8]| {
        let mut out = [0; 77];
        session.export_keying_material(label, context, &mut out).map(|()| out)
    };
    let engines = Engines::new(&make, &server, &client);
    for _ in 0..2 {
        let mut pair = engines.open("localhost");
        greet(&mut pair);
        let [ours, theirs] = [&pair.client.session, &pair.server.session].map(|end| export(end, b"label", b"context"));
        assert_eq!(ours.clone().unwrap(), theirs.unwrap());
        for (label, context) in [(&b"other"[..], &b"context"[..]), (b"label", b"other"), (b"label", b"")] {
            assert_ne!(ours.clone().unwrap(), export(&pair.server.session, label, context).unwrap());
        }
        assert!(matches!(export(&pair.client.session, &[7; 250], b""), Err(Error::ApiMisuse(_))));
    }
    // rustls itself is the other implementation.
    let fixture = Fixture::default();
    for suite in SUITES {
        let server = make(Some(&fixture.server(Versions::Tls13).with_exporter(true)), None).unwrap();
        let mut end = crate::pair::End::new(server.accept().unwrap());
        let mut peer = fixture.rustls(Side::Client, suite);
        settle(&mut end, &mut peer, usize::MAX);
        let theirs = peer.export_keying_material([0; 77], b"label", Some(b"context")).unwrap();
        assert_eq!(export(&end.session, b"label", b"context").unwrap(), theirs, "{suite:?}");
    }
    for (exporter, versions) in [(false, Versions::Tls13), (true, Versions::Tls12)] {
        let client = client_config().with_exporter(exporter).with_versions(versions);
        let mut pair = Engines::new(&make, &server, &client).pair("localhost");
        assert!(matches!(export(&pair.client.session, b"label", b""), Err(Error::ApiMisuse(_))));
        pair.handshake(&mut crate::pair::Split::Whole).unwrap();
        greet(&mut pair);
        assert!(matches!(export(&pair.client.session, b"label", b""), Err(Error::ApiMisuse(_))), "{versions:?}");
    }
}

/// A call changes the keys of a TLS 1.3 session, if the engine has such a call, and data follows under the new ones.
pub fn key_updates_by_a_call<E: Engine>(make: impl Make<E>) {
    let mut pair = Engines::with_versions(&make, Versions::Tls13).open("localhost");
    greet(&mut pair);
    for ask in [false, true, true] {
        match pair.client.session.update_keys(ask, &mut pair.client.outbox) {
            Ok(()) => assert!(!pair.client.outbox.is_empty()),
            Err(error) => assert!(matches!(error, Error::ApiMisuse(_)) && pair.client.outbox.is_empty()),
        }
        greet(&mut pair);
    }
    let mut pair = Engines::with_versions(&make, Versions::Tls12).open("localhost");
    assert!(matches!(pair.client.session.update_keys(true, &mut pair.client.outbox), Err(Error::ApiMisuse(_))));
    greet(&mut pair);
}

/// Sealing into a slice gives the bytes of sealing, or nothing at all.
pub fn slices_hold_the_sealed_records<E: Engine>(make: impl Make<E>) {
    let data: Vec<u8> = (0..40_000_usize).map(|at| at.to_le_bytes()[0]).collect();
    for versions in [Versions::Tls13, Versions::Tls12] {
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        greet(&mut pair);
        for chunks in [&[&data[..64]][..], &[&data[..5], &data[5..30_000]], &[&data], &[], &[&data[..0]]] {
            let len: usize = chunks.iter().map(|chunk| chunk.len()).sum();
            let mut out = vec![0; len + 4 * 64];
            let session = &mut pair.client.session;
            assert_eq!(session.seal_into(chunks, &mut out[..len / 2]).unwrap().unwrap_or_default(), 0);
            if let Some(written) = session.seal_into(chunks, &mut out).unwrap() {
                pair.server.received.clear();
                pair.server.deliver(&out[..written]).unwrap();
                assert!(pair.server.received == chunks.concat());
            }
        }
        greet(&mut pair);
    }
}

/// A session that knows which alert it sent names the one that arrives.
pub fn sent_alerts_are_those_that_arrive<E: Engine>(make: impl Make<E>) {
    let stranger = client_config().with_roots(Roots::Pem(certificate(&["a"], KeyKind::P256).chain));
    let alpn = |name: &[u8]| vec![name.to_vec()];
    for versions in [Versions::Tls13, Versions::Tls12] {
        let server = server_config().with_versions(versions);
        let demanding = server.clone().with_client_auth(ClientAuth::Required(trusted()));
        for (server, client) in [
            (server.clone(), stranger.clone()),
            (demanding.clone(), client_config()),
            (demanding, client_config().with_certificate(certificate(&["a"], KeyKind::P256))),
            (server.with_alpn(alpn(b"one")), client_config().with_alpn(alpn(b"two"))),
        ] {
            let mut pair = Engines::new(&make, &server, &client).pair("localhost");
            let Err(failure) = pair.handshake(&mut crate::pair::Split::Whole) else { continue };
            let sent = match failure.side {
                Side::Client => pair.client.session.sent_alert(),
                Side::Server => pair.server.session.sent_alert(),
            };
            if let (Some(sent), Some(Error::Alert(arrived))) = (sent, pair.deliver_alert(failure.side)) {
                assert_eq!(sent, arrived, "{versions:?}: {failure:?}");
            }
        }
        // A record that does not authenticate.
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        greet(&mut pair);
        pair.client.send(&[b"changed"]).unwrap();
        let mut wire = pair.client.take_outbox();
        wire[20] ^= 1;
        pair.server.deliver(&wire).unwrap_err();
        let sent = pair.server.session.sent_alert();
        if let (Some(sent), Some(Error::Alert(arrived))) = (sent, pair.deliver_alert(Side::Server)) {
            assert_eq!(sent, arrived, "{versions:?}");
        }
    }
}
