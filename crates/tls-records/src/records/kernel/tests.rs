use super::super::{Cold, Tickets};
use super::Records;
use crate::keys::{Keys, OVERHEAD};
use crate::{CompactTlsInfo, Role, Secret, Suite};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{DATA, Direction, HEAD, NEW_KEYS, REFUSED, frame, head};
use tautline_tls::alert::Alert;
use tautline_tls::record::HEADER;
use tautline_tls::{Content, Error, TlsInfo};

const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305];

fn end(role: Role, suite: Suite) -> Records {
    let secret = |byte| Secret::new(&vec![byte; suite.hash_len()]).unwrap();
    let keys = |byte, sequence| Keys::derive(suite, secret(byte), sequence).unwrap();
    let (rx, tx) = if role == Role::Server { (keys(1, 3), keys(2, 5)) } else { (keys(2, 5), keys(1, 3)) };
    Records::new(role, suite, (rx, tx), CompactTlsInfo::new(suite, TlsInfo::default()), None)
}

/// A server session, with a kernel that seals and opens its records.
struct Kernel {
    session: Records,
    tx: Keys,
    rx: Keys,
    /// Keys for the NEW_KEYS frames to come.
    next: VecDeque<Keys>,
    suite: Suite,
}

impl Kernel {
    fn new(suite: Suite, rekeys: bool) -> Self {
        let mut session = end(Role::Server, suite);
        let [tx, rx] = [Direction::Transmit, Direction::Receive].map(|direction| {
            let keys = session.kernel_keys(direction).unwrap();
            session.kernel_took(direction, rekeys);
            Keys::of_kernel(&keys).unwrap()
        });
        Self { session, tx, rx, next: VecDeque::new(), suite }
    }

    /// Fetches new keys, as the driver does after each call.
    fn fetch_keys(&mut self) {
        while let Some(keys) = self.session.next_kernel_keys() {
            let own = Keys::of_kernel(&keys).unwrap();
            match keys.direction {
                Direction::Transmit => self.next.push_back(own),
                Direction::Receive => self.rx = own,
            }
        }
    }

    /// Seals frames as records.
    fn transmit(&mut self, mut frames: &[u8]) -> Vec<u8> {
        self.fetch_keys();
        let mut wire = Vec::new();
        while let Some((kind, len)) = frame(frames) {
            let (content, behind) = frames[HEAD..].split_at(len);
            frames = behind;
            if kind == NEW_KEYS {
                self.tx = self.next.pop_front().expect("keys were given before the frame that wants them");
                continue;
            }
            for content in content.chunks(16_384) {
                let mut record = vec![0; content.len() + OVERHEAD];
                self.tx.seal(self.suite, kind, Some(content), &mut record).unwrap();
                wire.extend(record);
            }
        }
        assert!(frames.is_empty());
        wire
    }

    /// Opens the records, has the session open their frames, and returns the data and whether the peer closed.
    fn receive(&mut self, mut wire: &[u8], out: &mut Buf) -> Result<(Vec<u8>, bool), Error> {
        let (mut data, mut closed) = (Vec::new(), false);
        while let &[_, _, _, high, low, ..] = wire {
            let (record, behind) = wire.split_at(HEADER + usize::from(u16::from_be_bytes([high, low])));
            wire = behind;
            let mut body = record[HEADER..].to_vec();
            let mut frame = match self.rx.open(self.suite, &mut body) {
                Ok(Some(inner)) => {
                    let (kind, content) = body[..inner].split_last().unwrap();
                    [&head(*kind, u32::try_from(content.len()).unwrap())[..], content].concat()
                }
                _ => [&head(REFUSED, 1)[..], &[20]].concat(),
            };
            let opened = self.session.open(&mut frame, out)?;
            match opened.content {
                Content::Data(plain) => data.extend_from_slice(&frame[plain.range]),
                Content::Closed => closed = true,
                Content::Control => {}
                Content::Partial => panic!("frames are whole"),
            }
            assert_eq!(opened.used, frame.len());
            self.fetch_keys();
        }
        Ok((data, closed))
    }
}

fn open_all(records: &mut Records, wire: &mut [u8]) -> Result<(Vec<u8>, bool), Error> {
    let (mut data, mut start) = (Vec::new(), 0);
    loop {
        let rest = &mut wire[start..];
        let opened = records.open(rest, &mut Buf::new())?;
        start += opened.used;
        match opened.content {
            Content::Data(plain) => data.extend_from_slice(&rest[plain.range]),
            Content::Control => {}
            Content::Closed => return Ok((data, true)),
            Content::Partial => return Ok((data, false)),
        }
    }
}

#[test]
fn data_passes_a_kernel_in_both_directions() {
    for suite in SUITES {
        let (mut kernel, mut client) = (Kernel::new(suite, true), end(Role::Client, suite));
        let large: Vec<u8> = (0..100_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        let mut out = Buf::new();
        // Both ends change keys every 7 records.
        for _ in 0..20 {
            kernel.session.seal_with_limit(&[b"header", &large[..3], b""], &mut out, 7).unwrap();
            kernel.session.seal_with_limit(&[&large], &mut out, 7).unwrap();
        }
        kernel.session.close(&mut out).unwrap();
        let mut wire = kernel.transmit(out.filled());
        let (data, closed) = open_all(&mut client, &mut wire).unwrap();
        assert!(closed && data == [b"header", &large[..3], &large].concat().repeat(20), "{suite:?}");
        out.clear();
        for _ in 0..20 {
            client.seal_with_limit(&[&large[..20_000]], &mut out, 7).unwrap();
        }
        client.close(&mut out).unwrap();
        let (data, closed) = kernel.receive(out.filled(), &mut Buf::new()).unwrap();
        assert!(closed && data == large[..20_000].repeat(20), "{suite:?}");
    }
}

#[test]
fn a_requested_key_update_precedes_the_next_data() {
    let (mut kernel, mut client) = (Kernel::new(Suite::Aes128Gcm, true), end(Role::Client, Suite::Aes128Gcm));
    let mut out = Buf::new();
    client.seal_record(22, &[24, 0, 0, 1, 1], &mut out).unwrap();
    client.tx.update(Suite::Aes128Gcm).unwrap();
    client.seal(&[b"under new keys"], &mut out).unwrap();
    let mut answer = Buf::new();
    assert_eq!(kernel.receive(out.filled(), &mut answer).unwrap().0, b"under new keys");
    assert!(answer.is_empty(), "nothing is sealed while the engine may still be sending");
    assert!(kernel.session.kernel_keys(Direction::Transmit).is_none(), "no keys are handed over when new ones are due");
    kernel.session.seal(&[b"answer"], &mut answer).unwrap();
    assert_eq!(answer.filled()[..HEAD], head(22, 5));
    let mut wire = kernel.transmit(answer.filled());
    assert_eq!(open_all(&mut client, &mut wire).unwrap().0, b"answer");
    assert_eq!(client.rx.sequence(), 1);
}

/// A peer's KeyUpdate, as a frame.
fn key_update(request: u8) -> Vec<u8> {
    [&head(22, 5)[..], &[24, 0, 0, 1, request]].concat()
}

#[test]
fn a_key_update_fails_if_the_kernel_cannot_rekey() {
    for (directions, request, fails) in [
        (&[Direction::Transmit, Direction::Receive][..], 0, true),
        (&[Direction::Receive], 0, true),
        (&[Direction::Transmit], 1, true),
        (&[Direction::Transmit], 0, false),
    ] {
        let mut server = end(Role::Server, Suite::Aes128Gcm);
        for &direction in directions {
            server.kernel_took(direction, false);
        }
        let mut out = Buf::new();
        let mut wire = key_update(request);
        if !server.kernel.receives() {
            let mut client = end(Role::Client, Suite::Aes128Gcm);
            let mut sealed = Buf::new();
            client.seal_record(22, &wire[HEAD..], &mut sealed).unwrap();
            wire = sealed.filled().to_vec();
        }
        match server.open(&mut wire, &mut out) {
            Err(Error::Library(why)) => {
                assert!(fails && why.contains("6.14"), "{why}");
                let alert = [&head(21, 2)[..], &[2, 80]].concat();
                assert!(!server.kernel.transmits() || out.filled() == alert);
            }
            Ok(opened) => assert!(!fails && opened.content == Content::Control),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_sending_key_wears_out_unless_the_kernel_can_rekey() {
    let mut server = end(Role::Server, Suite::Aes128Gcm);
    server.kernel_took(Direction::Transmit, false);
    server.tx.count((1 << 23) - 6);
    let mut out = Buf::new();
    assert!(!server.is_kernel_worn_out());
    server.seal(&[b"one more"], &mut out).unwrap();
    assert!(server.is_kernel_worn_out());
    out.clear();
    server.seal(&[b"last words"], &mut out).unwrap();
    assert_eq!(frame(out.filled()), Some((DATA, 10)), "a worn-out key still seals");
    server.kernel_took(Direction::Transmit, true);
    assert!(!server.is_kernel_worn_out());
    out.clear();
    server.seal(&[b"new"], &mut out).unwrap();
    assert_eq!(frame(out.filled()), Some((22, 5)));
    assert_eq!(server.tx.sequence(), 1);
}

/// The error of a client that opens these frames, and the bytes that it sends.
fn error_of(frames: &[u8]) -> (Error, Vec<u8>) {
    let mut client = end(Role::Client, Suite::Aes128Gcm);
    client.kernel_took(Direction::Transmit, true);
    client.kernel_took(Direction::Receive, true);
    let (mut wire, mut out) = (frames.to_vec(), Buf::new());
    let mut start = 0;
    loop {
        match client.open(&mut wire[start..], &mut out) {
            Err(error) => return (error, out.filled().to_vec()),
            Ok(opened) if opened.content == Content::Partial => panic!("no error"),
            Ok(opened) => start += opened.used,
        }
    }
}

#[test]
fn bad_frames_cause_the_errors_and_alerts_of_bad_records() {
    let control = |kind, content: &[u8]| [&head(kind, u32::try_from(content.len()).unwrap())[..], content].concat();
    let alert = |code| control(21, &[2, code]);
    for (frames, words, answer) in [
        (control(REFUSED, &[20]), "does not authenticate", alert(20)),
        (control(REFUSED, &[22]), "impossible length", alert(22)),
        (control(REFUSED, &[10]), "not a protected record", alert(10)),
        (control(REFUSED, &[]), "failed to open", alert(80)),
        (control(21, &[2, 40]), "handshake_failure", vec![]),
        (control(21, &[2]), "malformed alert", alert(50)),
        (control(20, &[1]), "no place here", alert(10)),
        (control(22, &[]), "empty handshake record", alert(10)),
        (control(22, &[24, 0, 0, 1, 9]), "malformed key update", alert(47)),
        (control(22, &[24, 0, 0, 1, 0, 24]), "after its key update", alert(10)),
        ([control(22, &[24, 0]), control(DATA, b"data")].concat(), "interrupts", alert(10)),
        (key_update(0).repeat(65), "floods", alert(10)),
        (control(DATA, b"").repeat(65), "floods", alert(10)),
    ] {
        let (error, sent) = error_of(&frames);
        assert!(error.to_string().contains(words), "{error}, not {words}");
        assert_eq!(sent, answer, "{words}");
    }
}

#[test]
fn data_resets_the_count_of_quiet_frames() {
    let mut server = end(Role::Server, Suite::Aes128Gcm);
    server.kernel_took(Direction::Receive, true);
    let mut frames = [key_update(0).repeat(60), [&head(DATA, 1)[..], b"x"].concat()].concat().repeat(3);
    let mut start = 0;
    while start < frames.len() {
        start += server.open(&mut frames[start..], &mut Buf::new()).unwrap().used;
    }
    assert_eq!(server.rx.sequence(), 1, "each new key counts from 0");
}

#[test]
fn a_client_accepts_tickets_that_the_kernel_opened() {
    struct Taken(Arc<AtomicUsize>);

    impl Tickets for Taken {
        fn take(&mut self, body: &[u8]) -> Result<(), (Alert, Error)> {
            assert_eq!(body, [7; 30]);
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    let taken = Arc::new(AtomicUsize::new(0));
    let mut client = end(Role::Client, Suite::Aes128Gcm);
    client.cold = Some(Box::new(Cold { tickets: Some(Box::new(Taken(Arc::clone(&taken)))), ..Cold::default() }));
    client.kernel_took(Direction::Receive, true);
    let mut ticket = [&head(22, 34)[..], &[4, 0, 0, 30], &[7; 30]].concat();
    for expected in [1, 2, 2] {
        assert_eq!(client.open(&mut ticket, &mut Buf::new()).unwrap().content, Content::Control);
        assert_eq!(taken.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn seal_with_uses_no_helpers_if_the_kernel_seals() {
    struct Nobody;

    impl tautline_tls::Helpers for Nobody {
        fn share(&self, _: usize, _: &(dyn Fn() + Sync)) {
            panic!("no work may be shared");
        }
    }

    let mut kernel = Kernel::new(Suite::Aes128Gcm, true);
    let mut out = Buf::new();
    kernel.session.seal_with(&[&[0; 100_000]], &mut out, &Nobody).unwrap();
    assert_eq!(frame(out.filled()), Some((DATA, 100_000)));
}

#[test]
fn an_incomplete_frame_is_partial() {
    let mut server = end(Role::Server, Suite::Aes128Gcm);
    server.kernel_took(Direction::Receive, true);
    let frame = [&head(DATA, 5)[..], b"hello"].concat();
    for len in 0..frame.len() {
        let mut wire = frame[..len].to_vec();
        assert_eq!(server.open(&mut wire, &mut Buf::new()).unwrap().content, Content::Partial);
    }
    let mut wire = frame;
    let Content::Data(plain) = server.open(&mut wire, &mut Buf::new()).unwrap().content else { panic!("no data") };
    assert_eq!(wire[plain.range], *b"hello");
}
