//! Our record layer against rustls' own, over random streams. Each side opens every record that the other seals.
//!
//! The streams cover both directions, every suite, and records of all sizes and kinds, split anywhere. The default is
//! about 20,000 records; `TAUTLINE_TEST_RECORDS` sets another number.

#[path = "../rustls_layer/mod.rs"]
mod rustls_layer;

use rustls::CipherSuite;
use rustls_layer::Layer;
use std::collections::VecDeque;
use tautline_buf::Buf;
use tautline_testkit::Random;
use tautline_testkit::pair::{End, Side, Split};
use tautline_testkit::rustls_peer::{Fixture, SUITES};
use tautline_tls::alert::Alert;
use tautline_tls::{Content, Engine as _, Error, Session as _, Versions};
use tautline_tls_rustls::fused::{Engine, Session};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const MAX_PLAIN: usize = 16_384;

/// Number of records after which our layer changes its keys and asks the peer to do so.
const REKEY_AFTER: u64 = 1 << 23;

/// The result that our end must give for a record of rustls'.
#[derive(Debug)]
enum Expected {
    Data(Vec<u8>),
    Control,
    /// A KeyUpdate with a request: from then on we owe one.
    Request,
    Closed,
    Alert(Alert),
    /// The record was changed in transit.
    Forged,
}

/// The way in which a stream ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    TheyClose,
    WeClose,
    TheyAlert,
    TheyForge,
}

struct Stream {
    ours: Session,
    theirs: Layer,
    random: Random,
    split: Split,
    /// Bytes in transit to us; `expected` has the length and the meaning of each record in them.
    wire: Vec<u8>,
    expected: VecDeque<(usize, Expected)>,
    inbox: Vec<u8>,
    /// The bytes that we sent.
    out: Buf,
    scratch: Buf,
    owes: bool,
    canceled: usize,
    quiet: usize,
    records: u64,
    updates: [u64; 2],
}

impl Stream {
    fn new(fixture: &Fixture, engine: &Engine, theirs: Side, suite: CipherSuite, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let session = if theirs == Side::Client { engine.accept() } else { engine.connect("localhost") };
        let mut end = End::new(session.unwrap());
        let mut theirs = Layer::new(fixture, theirs, suite, &mut end);
        // Some streams reach the limit of a key.
        let mut sequence =
            || if random.below(3) == 0 { REKEY_AFTER - 1 - random.next() % 40 } else { random.next() % 1000 };
        theirs.skip(sequence(), sequence());
        let mut snapshot = end.session.export().unwrap();
        (snapshot.rx.sequence, snapshot.tx.sequence) = (theirs.sealed, theirs.opened);
        Self {
            ours: Session::import(&snapshot).unwrap(),
            theirs,
            split: Split::random(seed),
            random,
            wire: Vec::new(),
            expected: VecDeque::new(),
            inbox: Vec::new(),
            out: Buf::new(),
            scratch: Buf::new(),
            owes: false,
            canceled: 0,
            quiet: 0,
            records: 0,
            updates: [0, 0],
        }
    }

    fn len(&mut self) -> usize {
        let most = [2, 40, 700, MAX_PLAIN][self.random.below(4)];
        [self.random.below(most), most][usize::from(self.random.below(20) == 0)]
    }

    fn they_seal(&mut self, kind: u8, content: &[u8], expected: Expected) {
        let most = (MAX_PLAIN - content.len()).min(300);
        let padding = if self.random.below(4) == 0 { self.random.below(most + 1) } else { 0 };
        let len = self.theirs.seal(kind, content, padding, &mut self.wire);
        self.expected.push_back((len, expected));
        self.records += 1;
    }

    /// Appends one random message of the peer.
    fn they_say(&mut self) {
        // The conformance suite covers floods of records without data, which are rejected.
        let what = if self.quiet > 40 { 4 } else { self.random.below(24) };
        self.quiet += 1;
        match what {
            0 => self.they_seal(DATA, b"", Expected::Control),
            1 if self.canceled < 4 => {
                self.canceled += 1;
                self.they_seal(ALERT, &[1, 90], Expected::Control);
            }
            2 => {
                let request = self.random.below(2) == 1;
                let message = [24, 0, 0, 1, u8::from(request)];
                let last = if request { Expected::Request } else { Expected::Control };
                let (front, back) = message.split_at(self.random.below(5));
                if !front.is_empty() {
                    self.they_seal(HANDSHAKE, front, Expected::Control);
                }
                self.they_seal(HANDSHAKE, back, last);
                self.theirs.update_tx();
                self.updates[0] += 1;
            }
            _ => {
                let len = self.len().max(1);
                let content = self.random.bytes(len);
                self.quiet = 0;
                self.they_seal(DATA, &content.clone(), Expected::Data(content));
            }
        }
    }

    /// Opens the bytes in transit, sometimes without the last ones. Returns the end of our session, if it ended.
    fn we_open(&mut self, all: bool) -> Option<Result<(), Error>> {
        let keep = if all || self.random.below(3) > 0 { 0 } else { self.random.below(self.wire.len() + 1) };
        while self.wire.len() > keep {
            let len = self.split.next(self.wire.len() - keep);
            self.inbox.extend(self.wire.drain(..len));
            let mut start = 0;
            loop {
                let opened = match self.ours.open(&mut self.inbox[start..], &mut self.scratch, &mut self.out) {
                    Ok(opened) => opened,
                    Err(error) => {
                        let expected = self.expected.pop_front();
                        let same = match (&expected, &error) {
                            (Some((_, Expected::Alert(alert))), Error::Alert(told)) => alert == told,
                            (Some((_, Expected::Forged)), Error::Peer(_)) => true,
                            _ => false,
                        };
                        assert!(same, "{error:?} for {expected:?}");
                        return Some(Err(error));
                    }
                };
                if matches!(opened.content, Content::Partial) {
                    break;
                }
                let (len, expected) = self.expected.pop_front().unwrap();
                assert!(opened.used == len || matches!(expected, Expected::Closed));
                match (expected, opened.content) {
                    (Expected::Data(expected), Content::Data(plain)) => {
                        assert!(expected == plain.bytes(&mut self.inbox[start..], &mut self.scratch));
                    }
                    (Expected::Control, Content::Control) => {}
                    (Expected::Request, Content::Control) => self.owes = true,
                    (Expected::Closed, Content::Closed) => return Some(Ok(())),
                    (expected, _) => panic!("not {expected:?}"),
                }
                start += len;
            }
            self.inbox.drain(..start);
        }
        None
    }

    /// Seals a random message, which rustls' layer opens.
    fn we_say(&mut self) {
        if self.random.below(12) == 0 {
            let ask = self.random.below(2) == 1;
            self.ours.update_keys(ask, &mut self.out).unwrap();
        }
        let len = self.len() * [1, 1, 1, 3][self.random.below(4)];
        let data = self.random.bytes(len);
        let (a, b) = (self.random.below(len + 1), self.random.below(len + 1));
        self.ours.seal(&[&data[..a.min(b)], &data[a.min(b)..a.max(b)], &[], &data[a.max(b)..]], &mut self.out).unwrap();
        let received = self.they_open();
        assert!(received.data == data, "{len} bytes");
        assert_eq!(received.last, None);
    }

    /// Opens all that we sent with rustls' layer, and checks that keys change when they must.
    fn they_open(&mut self) -> Received {
        let wire = self.out.filled().to_vec();
        self.out.clear();
        let (mut received, mut rest) = (Received { data: Vec::new(), last: None }, &wire[..]);
        while let [_, _, _, high, low, ..] = *rest {
            let (record, behind) = rest.split_at(5 + usize::from(u16::from_be_bytes([high, low])));
            rest = behind;
            assert_eq!(received.last, None, "a record follows an alert");
            self.records += 1;
            let (kind, content) = self.theirs.open(record);
            match (kind, &content[..]) {
                (DATA, _) => {
                    assert!(!self.owes, "data came before the KeyUpdate that is due");
                    assert!(self.theirs.opened <= REKEY_AFTER, "a key protects too many records");
                    assert!(!content.is_empty());
                    received.data.extend(content);
                }
                (HANDSHAKE, &[24, 0, 0, 1, request @ 0..=1]) => {
                    self.theirs.update_rx();
                    self.updates[1] += 1;
                    self.owes = false;
                    if request == 1 {
                        self.they_seal(HANDSHAKE, &[24, 0, 0, 1, 0], Expected::Control);
                        self.theirs.update_tx();
                        self.updates[0] += 1;
                    }
                }
                (ALERT, &[level, code]) => received.last = Some((level, code)),
                other => panic!("{other:?}"),
            }
        }
        assert!(rest.is_empty(), "whole records");
        received
    }

    fn run(mut self, records: u64, ending: Ending) -> (u64, [u64; 2]) {
        while self.records < records {
            for _ in 0..self.random.below(6) {
                self.they_say();
            }
            assert!(self.we_open(false).is_none());
            for _ in 0..self.random.below(6) {
                self.we_say();
            }
        }
        assert!(self.we_open(true).is_none());
        self.end(ending);
        (self.records, self.updates)
    }

    fn end(&mut self, ending: Ending) {
        match ending {
            Ending::TheyClose => self.they_seal(ALERT, &[1, 0], Expected::Closed),
            Ending::TheyAlert => self.they_seal(ALERT, &[2, 80], Expected::Alert(Alert::INTERNAL_ERROR)),
            Ending::TheyForge => {
                self.they_seal(DATA, b"as it was", Expected::Forged);
                let at = self.wire.len() - 1 - self.random.below(20);
                self.wire[at] ^= 1 << self.random.below(8);
            }
            Ending::WeClose => {
                self.ours.close(&mut self.out);
                assert_eq!(self.they_open().last, Some((1, 0)));
                // The other direction stays open.
                self.they_seal(DATA, b"the last word", Expected::Data(b"the last word".to_vec()));
                assert!(self.we_open(true).is_none());
                return;
            }
        }
        let ended = self.we_open(true).unwrap();
        assert_eq!(ended.is_ok(), ending == Ending::TheyClose);
        if ending == Ending::TheyForge {
            assert_eq!(self.they_open().last, Some((2, 20)), "bad_record_mac");
        } else {
            assert_eq!(self.they_open().last, None, "no alert answers an alert");
        }
        if ended.is_ok() {
            self.we_say();
            self.ours.close(&mut self.out);
            assert_eq!(self.they_open().last, Some((1, 0)));
        }
    }
}

/// The content that rustls' layer opened.
struct Received {
    data: Vec<u8>,
    /// Level and code of the alert at the end of the stream.
    last: Option<(u8, u8)>,
}

#[test]
fn our_record_layer_interoperates_with_rustls() {
    let wanted = std::env::var("TAUTLINE_TEST_RECORDS").map_or(20_000, |number| number.parse().unwrap());
    let endings = [Ending::TheyClose, Ending::WeClose, Ending::TheyAlert, Ending::TheyForge];
    let fixture = Fixture::default();
    let (server, client) = (fixture.server(Versions::Tls13), fixture.client(Versions::Tls13));
    let engine = Engine::new(Some(&server), Some(&client)).unwrap();
    let (mut records, mut updates, mut seed) = (0, [0, 0], 0);
    while records < wanted {
        for suite in SUITES {
            for ending in endings {
                for side in [Side::Client, Side::Server] {
                    let stream = Stream::new(&fixture, &engine, side, suite, seed);
                    let ran = stream.run(wanted.clamp(12_000, 240_000) / 24, ending);
                    records += ran.0;
                    updates = [updates[0] + ran.1[0], updates[1] + ran.1[1]];
                    seed += 1;
                }
            }
        }
    }
    assert!(updates.iter().all(|&updates| updates > records / 200), "{updates:?} in {records}");
    println!("{records} records, key updates of theirs and ours {updates:?}, {seed} streams");
}
