//! TLS 1.3: handshakes and records that no library sends (RFC 8446).
//!
//! Neither tlsfuzzer nor BoGo, BoringSSL's test suite, is in a registry of packages. These scripts do what BoGo's most
//! important cases for servers do:
//!
//! | case of BoGo | script |
//! |---|---|
//! | `SendEmptyRecords`, `SendEmptyRecords-Pass` | 1,000 empty records; ten empty records |
//! | `TooManyKeyUpdates`, `KeyUpdate-InvalidRequestMode` | a flood of 5,000 KeyUpdates; a KeyUpdate with the value 2 |
//! | `SendUserCanceledAlerts-TooMany-TLS13`, `SendBogusAlertType` | a flood of user_canceled; an alert of level 77 |
//! | `TooManyChangeCipherSpec-Server-TLS13` | 1,000 change_cipher_specs in the handshake, and before a hello |
//! | `BadChangeCipherSpec` | a change_cipher_spec of two bytes; one with another value |
//! | `AppDataBeforeTLS13KeyChange` | no Finished, but data in the clear |
//! | `SendInvalidRecordType`, `TLS13-WrongOuterRecord` | an outer type that nobody knows; an outer handshake type |
//! | `CheckRecordVersion` | a header with version 1.2; a record with version 1.9 |
//! | `LargePlaintext`, `LargeCiphertext` | 2^14 + 1 bytes in a record; a record of 2^14 + 257 bytes |
//! | `Server-TooLongSessionID-TLS13` | a hello with a session id of 33 bytes |
//! | `TrailingMessageData`, `TrailingDataWithClientHello` | a hello with bytes behind it; two hellos |
//! | `WrongMessageType` | a hello of another type; handshake message 0, 1, 2 and others |
//! | `NoSharedCipher-TLS13` | a hello with the suites of SSL 3 only |
//! | `NoNullCompression-TLS13`, `TLS13-InvalidCompressionMethod` | a hello with a compression method that is not null |
//! | `NoSupportedVersions` | a hello with versions that nobody knows |
//! | `MissingKeyShare-Server-TLS13`, `NoSupportedCurves-TLS13` | a hello without key shares; without groups |
//! | `OmitExtensions-ClientHello`, `DuplicateExtensionServer` | a hello without signature algorithms; with an extension twice |
//! | `SkipEarlyData` | a replayed hello with a ticket, and early data |
//!
//! Not covered: cases that need TLS 1.2 records of the peer's own, a second ClientHello (HelloRetryRequest), binders of PSKs
//! and 0-RTT, which no engine here offers.

use crate::script::{Begin, Expect, Over, Script, Step};
use crate::seen::Seen;
use crate::wire::{TEXT, masked};
use crate::{server::Server, tls};
use std::time::Duration;
use tautline_testkit::raw_peer::kind::{ALERT, CHANGE_CIPHER_SPEC, DATA, HANDSHAKE};

const GROUP: &str = "TLS";
/// A KeyUpdate that asks for none, and one that asks for one.
const UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

// Alerts (RFC 8446, section 6.2).
const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const DECRYPT_ERROR: u8 = 51;
const PROTOCOL_VERSION: u8 = 70;
const MISSING_EXTENSION: u8 = 109;

// Extensions (RFC 8446, section 4.2), and one that is assigned to nobody.
const SUPPORTED_GROUPS: u16 = 10;
const SIGNATURE_ALGORITHMS: u16 = 13;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;
const NOBODYS: u16 = 0x7a7b;

pub(super) fn scripts() -> Vec<Script> {
    let mut all = openings();
    all.extend(hellos());
    all.extend(offers());
    all.extend(flights());
    all.extend(other_flights());
    all.extend(records());
    all.extend(post_handshake());
    all.extend(stalls());
    all.push(Script::program(GROUP, "a ticket of another server", tickets::foreign, Expect::Word("open, full")));
    all.push(Script::program(GROUP, "a replayed hello with a ticket", tickets::replayed, Expect::Word("refused")));
    all
}

fn wire(name: impl Into<String>, bytes: impl Into<Vec<u8>>, alerts: &'static [u8]) -> Script {
    Script::new(GROUP, name, vec![Step::Wire(bytes.into())], Expect::Alert(alerts)).begin(Begin::Tcp).over(Over::Tls)
}

/// First bytes that are no ClientHello. Libraries of the OpenSSL family hang up on some of them without an alert.
fn openings() -> Vec<Script> {
    let all = vec![
        wire("plain HTTP", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", &[]),
        wire("SSH", "SSH-2.0-OpenSSH_9.6\r\n", &[]),
        wire("zeros", vec![0; 500], &[]),
        wire("0xff", vec![0xff; 500], &[]),
        wire("a hello of SSL 2", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10\x01\x00\x80".to_vec(), &[]),
        wire("data before a hello", [&[DATA, 3, 3, 0, 4][..], b"data"].concat(), &[]),
        wire("an alert before a hello", [ALERT, 3, 3, 0, 2, 2, 40], &[]),
        wire("a close_notify before a hello", [ALERT, 3, 3, 0, 2, 1, 0], &[]).slow(),
        wire("a ServerHello", [&[HANDSHAKE, 3, 3, 0, 8, 2, 0, 0, 4][..], &[3, 3, 0, 0]].concat(), &[]),
        wire("an empty handshake record", [HANDSHAKE, 3, 1, 0, 0], &[]),
        wire("a handshake record of 2^14 + 1 bytes", [HANDSHAKE, 3, 1, 0x40, 1], &[RECORD_OVERFLOW, DECODE_ERROR]),
        wire("a handshake record of 65,535 bytes", [HANDSHAKE, 3, 1, 0xff, 0xff], &[RECORD_OVERFLOW, DECODE_ERROR]),
        wire("a message of 16 MiB, announced", [HANDSHAKE, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff], &[]),
        Script::new(
            GROUP,
            "64 KiB of a hello without an end in records of one byte",
            vec![
                Step::Wire(vec![HANDSHAKE, 3, 1, 0, 4, 1, 0, 0xff, 0xf0]),
                Step::Times(1_000, vec![Step::Wire([HANDSHAKE, 3, 1, 0, 1, 3].repeat(64))]),
            ],
            Expect::Alert(&[]),
        )
        .begin(Begin::Tcp)
        .over(Over::Tls),
        Script::new(
            GROUP,
            "1,000 change_cipher_specs before a hello",
            vec![Step::Times(1_000, vec![Step::Wire(vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1])])],
            Expect::Alert(&[]),
        )
        .begin(Begin::Tcp)
        .over(Over::Tls),
    ];
    all.into_iter().map(|script| script.or(Expect::Hangup)).collect()
}

fn handshake(name: impl Into<String>, edit: tls::Edit, expect: Expect) -> Script {
    Script::new(GROUP, name, vec![Step::Handshake(edit)], expect).begin(Begin::Tcp).over(Over::Tls)
}

/// Changes a byte of the ClientHello.
macro_rules! hello_byte {
    ($name:expr, $at:expr, $value:expr, $alerts:expr) => {
        handshake(
            $name,
            |flight, mut wire| {
                if flight == 0 {
                    wire[$at] = $value;
                }
                wire
            },
            Expect::Alert($alerts),
        )
        .or(Expect::Hangup)
    };
}

/// ClientHellos with a wrong byte. Byte 5 of the record begins the message, byte 43 has the length of the session id.
fn hellos() -> Vec<Script> {
    let mut all = vec![
        hello_byte!("a hello with legacy version 2.0", 9, 2, &[PROTOCOL_VERSION, ILLEGAL_PARAMETER, DECODE_ERROR])
            .or(Expect::Word("the hellos differ")),
        hello_byte!("a hello whose length is too great", 8, 0xff, &[]).slow(),
        hello_byte!("a hello with a session id of 255 bytes", 43, 0xff, &[DECODE_ERROR, ILLEGAL_PARAMETER]),
        hello_byte!("a hello with a session id of 33 bytes", 43, 33, &[DECODE_ERROR, ILLEGAL_PARAMETER]),
        hello_byte!("a hello of another type", 5, 77, &[UNEXPECTED_MESSAGE, DECODE_ERROR]),
        hello_byte!("a record with version 1.9", 1, 1, &[]),
        hello_byte!("cipher suites of an odd length", 77, 0x0f, &[DECODE_ERROR, ILLEGAL_PARAMETER]),
        hello_byte!("cipher suites longer than the hello", 76, 0xff, &[DECODE_ERROR, ILLEGAL_PARAMETER]),
        handshake(
            "a hello in records of one byte",
            |flight, wire| match flight {
                0 => wire[5..].iter().flat_map(|byte| [HANDSHAKE, 3, 1, 0, 1, *byte]).collect(),
                _ => wire,
            },
            Expect::Word("handshake"),
        )
        .or(Expect::Alert(&[])),
        handshake(
            "a hello in records of 50 bytes",
            |flight, wire| match flight {
                0 => wire[5..].chunks(50).flat_map(record).collect(),
                _ => wire,
            },
            Expect::Word("handshake"),
        ),
        // The version of a record is ignored, so the second hello may be taken for a protected record.
        handshake(
            "two hellos",
            |flight, wire| if flight == 0 { wire.repeat(2) } else { wire },
            Expect::Alert(&[UNEXPECTED_MESSAGE, DECODE_ERROR, BAD_RECORD_MAC]),
        ),
        handshake(
            "a hello with bytes behind it in its record",
            |flight, mut wire| {
                if flight == 0 {
                    wire.extend([1, 2, 3, 4]);
                    let len = wire.len() - 5;
                    wire[3..5].copy_from_slice(&u16::try_from(len).unwrap_or(0).to_be_bytes());
                }
                wire
            },
            Expect::Alert(&[]),
        )
        .or(Expect::Hangup),
        handshake(
            "a hello and data in the clear",
            |flight, mut wire| {
                if flight == 0 {
                    wire.extend([DATA, 3, 3, 0, 3, 1, 2, 3]);
                }
                wire
            },
            Expect::Alert(&[]),
        ),
        handshake(
            "a hello with the suites of SSL 3 only",
            |flight, mut wire| {
                if flight == 0 {
                    let len = usize::from(u16::from_be_bytes([wire[76], wire[77]]));
                    wire[78..78 + len].fill(0);
                }
                wire
            },
            Expect::Alert(&[HANDSHAKE_FAILURE, ILLEGAL_PARAMETER]),
        ),
    ];
    for cut in [0, 1, 4, 5, 6, 9, 11, 43, 44, 76, 100, 150, 200, 300, 500, 1_000] {
        let hello = tls::hello().unwrap_or_default();
        let part = hello.get(..cut).unwrap_or_default().to_vec();
        let steps = vec![Step::Wire(part), Step::HalfClose];
        let script = Script::new(GROUP, format!("a hello cut behind {cut} bytes"), steps, Expect::Hangup);
        all.push(script.or(Expect::Alert(&[])).begin(Begin::Tcp).over(Over::Tls));
    }
    all
}

/// ClientHellos that lack something, or have it twice. An extension is left out by giving it a type that nobody knows.
fn offers() -> Vec<Script> {
    const MALFORMED: &[u8] = &[ILLEGAL_PARAMETER, DECODE_ERROR];
    const LACKING: &[u8] = &[HANDSHAKE_FAILURE, MISSING_EXTENSION];
    vec![
        second(
            "a hello with a compression method that is not null",
            |flight, mut wire| {
                if flight == 0 {
                    let at = compression(&wire);
                    wire[at + 1] = 1;
                }
                wire
            },
            MALFORMED,
        ),
        second(
            "a hello with versions that nobody knows",
            |flight, mut wire| {
                if let Some(at) = extension(&wire, SUPPORTED_VERSIONS).filter(|_| flight == 0) {
                    let len = usize::from(wire[at + 4]);
                    wire[at + 5..at + 5 + len].fill(0x7a);
                }
                wire
            },
            &[PROTOCOL_VERSION],
        ),
        second("a hello without key shares", |flight, wire| renamed(flight, wire, KEY_SHARE, NOBODYS), LACKING),
        second("a hello without groups", |flight, wire| renamed(flight, wire, SUPPORTED_GROUPS, NOBODYS), LACKING),
        second(
            "a hello without signature algorithms",
            |flight, wire| renamed(flight, wire, SIGNATURE_ALGORITHMS, NOBODYS),
            LACKING,
        ),
        second(
            "a hello with an extension twice",
            |flight, wire| renamed(flight, wire, SUPPORTED_GROUPS, SIGNATURE_ALGORITHMS),
            MALFORMED,
        ),
    ]
}

/// The place of the compression methods in a ClientHello.
fn compression(wire: &[u8]) -> usize {
    let suites = 44 + usize::from(wire.get(43).copied().unwrap_or(0));
    let len = wire.get(suites..suites + 2).map_or(0, |len| usize::from(len[0]) << 8 | usize::from(len[1]));
    suites + 2 + len
}

/// The place of an extension in a ClientHello.
fn extension(wire: &[u8], kind: u16) -> Option<usize> {
    let mut at = compression(wire) + 4;
    while let Some([one, two, high, low]) = wire.get(at..at + 4) {
        if u16::from_be_bytes([*one, *two]) == kind {
            return Some(at);
        }
        at += 4 + usize::from(u16::from_be_bytes([*high, *low]));
    }
    None
}

/// A ClientHello one of whose extensions has another type.
fn renamed(flight: usize, mut wire: Vec<u8>, from: u16, to: u16) -> Vec<u8> {
    if let Some(at) = extension(&wire, from).filter(|_| flight == 0) {
        wire[at..at + 2].copy_from_slice(&to.to_be_bytes());
    }
    wire
}

/// A handshake record.
fn record(content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap_or(0).to_be_bytes();
    [&[HANDSHAKE, 3, 1, len[0], len[1]], content].concat()
}

fn second(name: &str, edit: tls::Edit, alerts: &'static [u8]) -> Script {
    handshake(name, edit, Expect::Alert(alerts))
}

/// Changes of the client's second flight: a change_cipher_spec of 6 bytes and Finished.
fn flights() -> Vec<Script> {
    vec![
        handshake("an honest handshake", |_, wire| wire, Expect::Word("handshake")),
        second(
            "Finished with a flipped bit",
            |flight, mut wire| {
                if flight == 1
                    && let Some(last) = wire.last_mut()
                {
                    *last ^= 1;
                }
                wire
            },
            &[BAD_RECORD_MAC, DECRYPT_ERROR],
        ),
        second(
            "Finished twice",
            |flight, wire| if flight == 1 { [&wire[..], &wire[6..]].concat() } else { wire },
            &[BAD_RECORD_MAC],
        ),
        second(
            "no Finished, but data in the clear",
            |flight, wire| match flight {
                1 => vec![DATA, 3, 3, 0, 3, 1, 2, 3],
                _ => wire,
            },
            &[],
        ),
        second(
            "a change_cipher_spec with another value",
            |flight, mut wire| {
                if flight == 1 {
                    wire[5] = 2;
                }
                wire
            },
            &[UNEXPECTED_MESSAGE, DECODE_ERROR, ILLEGAL_PARAMETER],
        ),
        second(
            "a change_cipher_spec of two bytes",
            |flight, wire| match flight {
                1 => [&[CHANGE_CIPHER_SPEC, 3, 3, 0, 2, 1, 1], &wire[6..]].concat(),
                _ => wire,
            },
            &[UNEXPECTED_MESSAGE, DECODE_ERROR, ILLEGAL_PARAMETER],
        ),
        second(
            "1,000 change_cipher_specs in the handshake",
            |flight, wire| match flight {
                1 => [&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1].repeat(1_000)[..], &wire].concat(),
                _ => wire,
            },
            &[],
        )
        .or(Expect::Hangup),
    ]
}

/// Second flights that are something else, or end early.
fn other_flights() -> Vec<Script> {
    vec![
        second(
            "an alert in the clear for Finished",
            |flight, wire| match flight {
                1 => vec![ALERT, 3, 3, 0, 2, 2, 40],
                _ => wire,
            },
            &[],
        )
        .or(Expect::Hangup),
        second(
            "a second hello for Finished",
            |flight, wire| match flight {
                1 => tls::hello().unwrap_or_default(),
                _ => wire,
            },
            &[],
        ),
        second(
            "Finished cut, then a half-close",
            |flight, mut wire| {
                if flight == 1 {
                    wire.truncate(40);
                }
                wire
            },
            &[],
        )
        .half_closed(),
    ]
}

impl Script {
    /// Ends our direction at the end.
    fn half_closed(mut self) -> Self {
        if let crate::script::Act::Steps(steps) = &mut self.act {
            steps.push(Step::HalfClose);
        }
        self.or(Expect::Hangup)
    }
}

fn open(name: impl Into<String>, steps: Vec<Step>, expect: Expect) -> Script {
    Script::new(GROUP, name, steps, expect).over(Over::Tls)
}

/// Protected records at every edge.
fn records() -> Vec<Script> {
    let text = masked(TEXT, b"still there");
    let echo = || Expect::Echo("still there".to_owned());
    let last = Step::Send(text.clone());
    let of = |kind: u8, content: &[u8], padding: usize| Step::Record(kind, content.to_vec(), padding);
    let header = |bytes: [u8; 5]| [&bytes[..], &[0; 100]].concat();
    vec![
        open("records of one byte", vec![Step::Pieces(text.clone(), 1)], echo()),
        open("a record of 2^14 bytes of padding", vec![of(DATA, &text, (1 << 14) - text.len())], echo()),
        open("ten empty records", vec![Step::Times(10, vec![of(DATA, b"", 0)]), last.clone()], echo()),
        open("ten records of padding alone", vec![Step::Times(10, vec![of(DATA, b"", 16_000)]), last.clone()], echo()),
        open("1,000 empty records", vec![Step::Times(1_000, vec![of(DATA, b"", 0)]), last.clone()], echo())
            .or(Expect::Alert(&[])),
        open("a flood of padding", vec![Step::Times(2_000, vec![of(DATA, b"", 16_000)]), last.clone()], echo())
            .or(Expect::Alert(&[])),
        open(
            "2^14 + 1 bytes in a record",
            vec![of(DATA, &vec![0; (1 << 14) + 1], 0)],
            Expect::Alert(&[RECORD_OVERFLOW]),
        ),
        open("a record with padding above 2^14", vec![of(DATA, b"x", 1 << 14)], Expect::Alert(&[RECORD_OVERFLOW])),
        open("a record of zeros without a type", vec![of(0, b"", 100)], Expect::Alert(&[UNEXPECTED_MESSAGE])),
        open("an inner type that nobody knows", vec![of(99, b"x", 0)], Expect::Alert(&[UNEXPECTED_MESSAGE])),
        open(
            "an outer type that nobody knows",
            vec![Step::Wire(header([99, 3, 3, 0, 100]))],
            Expect::Alert(&[UNEXPECTED_MESSAGE]),
        ),
        open(
            "an outer handshake type",
            vec![Step::Wire(header([HANDSHAKE, 3, 3, 0, 100]))],
            Expect::Alert(&[UNEXPECTED_MESSAGE, BAD_RECORD_MAC]),
        ),
        open("a header with version 1.2", vec![Step::Wire(header([DATA, 2, 3, 0, 100]))], Expect::Alert(&[])),
        open(
            "a record of 2^14 + 257 bytes",
            vec![Step::Wire([&[DATA, 3, 3, 0x41, 1][..], &[0; 0x4101]].concat())],
            Expect::Alert(&[RECORD_OVERFLOW]),
        ),
        open(
            "a header of 65,535 bytes",
            vec![Step::Wire(vec![DATA, 3, 3, 0xff, 0xff])],
            Expect::Alert(&[RECORD_OVERFLOW]),
        ),
        open(
            "a record without bytes",
            vec![Step::Wire(vec![DATA, 3, 3, 0, 0])],
            Expect::Alert(&[DECODE_ERROR, UNEXPECTED_MESSAGE, BAD_RECORD_MAC]),
        ),
        open(
            "a record of 16 bytes",
            vec![Step::Wire(header([DATA, 3, 3, 0, 16])[..21].to_vec())],
            Expect::Alert(&[DECODE_ERROR, BAD_RECORD_MAC]),
        ),
        open("a wrong tag", vec![Step::WrongTag(text.clone())], Expect::Alert(&[BAD_RECORD_MAC])),
        open("a wrong tag behind a good record", vec![last, Step::WrongTag(text)], Expect::Alert(&[BAD_RECORD_MAC]))
            .with_data(),
        open("data in the clear", vec![Step::Wire(header([DATA, 3, 3, 0, 100]))], Expect::Alert(&[BAD_RECORD_MAC])),
        open("an alert in the clear", vec![Step::Wire(vec![ALERT, 3, 3, 0, 2, 1, 0])], Expect::Alert(&[]))
            .or(Expect::Hangup),
        open(
            "a change_cipher_spec behind the handshake",
            vec![Step::Wire(vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1])],
            Expect::Alert(&[UNEXPECTED_MESSAGE]),
        ),
        open(
            "a record cut in the middle, then a half-close",
            vec![Step::Wire(vec![DATA, 3, 3, 0, 100, 1, 2, 3]), Step::HalfClose],
            Expect::Hangup,
        )
        .or(Expect::Alert(&[])),
    ]
}

impl Script {
    /// Permits an echo before an alert.
    fn with_data(self) -> Self {
        self.or(Expect::DataThenAlert)
    }
}

/// Handshake messages and alerts behind the handshake.
fn post_handshake() -> Vec<Script> {
    let echo = || Expect::Echo("still there".to_owned());
    let last = Step::Send(masked(TEXT, b"still there"));
    let of = |kind: u8, content: &[u8]| Step::Record(kind, content.to_vec(), 0);
    let update = |request: bool| vec![of(HANDSHAKE, if request { &UPDATE_REQUESTED } else { &UPDATE }), Step::NextKeys];
    let mut all = vec![
        open("a KeyUpdate", [update(false), vec![last.clone()]].concat(), echo()),
        open("a KeyUpdate with request", [update(true), vec![last.clone()]].concat(), echo()),
        open("a flood of 5,000 KeyUpdates", vec![Step::Times(5_000, update(false)), last.clone()], echo())
            .on("rustls", Expect::Hangup)
            .or(Expect::Alert(&[])),
        open("a flood of 5,000 KeyUpdates with request", vec![Step::Times(5_000, update(true)), last.clone()], echo())
            .on("rustls", Expect::Hangup)
            .or(Expect::Alert(&[])),
        open(
            "a KeyUpdate without new keys",
            vec![of(HANDSHAKE, &UPDATE), last.clone()],
            Expect::Alert(&[BAD_RECORD_MAC]),
        ),
        open(
            "a KeyUpdate with the value 2",
            vec![of(HANDSHAKE, &[24, 0, 0, 1, 2])],
            Expect::Alert(&[ILLEGAL_PARAMETER, DECODE_ERROR]),
        ),
        open("an empty KeyUpdate", vec![of(HANDSHAKE, &[24, 0, 0, 0])], Expect::Alert(&[DECODE_ERROR])),
        open(
            "a KeyUpdate with bytes behind it",
            vec![of(HANDSHAKE, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0])],
            Expect::Alert(&[UNEXPECTED_MESSAGE, DECODE_ERROR]),
        ),
        open(
            "a KeyUpdate over two records",
            vec![of(HANDSHAKE, &UPDATE[..2]), of(HANDSHAKE, &UPDATE[2..]), Step::NextKeys, last.clone()],
            echo(),
        ),
        open(
            "data inside a KeyUpdate",
            vec![of(HANDSHAKE, &UPDATE[..2]), last.clone()],
            Expect::Alert(&[UNEXPECTED_MESSAGE]),
        ),
        open(
            "a handshake record without content",
            vec![of(HANDSHAKE, b""), last.clone()],
            Expect::Alert(&[UNEXPECTED_MESSAGE, DECODE_ERROR]),
        ),
        open(
            "a handshake message of 16 MiB, announced",
            vec![of(HANDSHAKE, &[24, 0xff, 0xff, 0xff])],
            Expect::Alert(&[]),
        )
        .on("rustls", Expect::Hangup),
        open("a flood of user_canceled", vec![Step::Times(1_000, vec![of(ALERT, &[1, 90])]), last.clone()], echo())
            .or(Expect::Alert(&[]))
            .or(Expect::Hangup),
        open("a fatal alert", vec![of(ALERT, &[2, 40])], Expect::Hangup),
        open("half an alert", vec![of(ALERT, &[1])], Expect::Alert(&[DECODE_ERROR, UNEXPECTED_MESSAGE])),
        open(
            "two alerts in a record",
            vec![of(ALERT, &[1, 90, 1, 90])],
            Expect::Alert(&[DECODE_ERROR, UNEXPECTED_MESSAGE]),
        ),
        open("an empty alert", vec![of(ALERT, b"")], Expect::Alert(&[DECODE_ERROR, UNEXPECTED_MESSAGE])),
        open("an alert of level 77", vec![of(ALERT, &[77, 40])], Expect::Alert(&[])).or(Expect::Hangup),
        open("data behind close_notify", vec![of(ALERT, &[1, 0]), last], Expect::Hangup),
    ];
    for message in [0, 1, 2, 4, 5, 8, 11, 13, 15, 20, 77, 254] {
        all.push(open(
            format!("handshake message {message}"),
            vec![of(HANDSHAKE, &[message, 0, 0, 2, 0, 0])],
            Expect::Alert(&[UNEXPECTED_MESSAGE, DECODE_ERROR, ILLEGAL_PARAMETER]),
        ));
    }
    all
}

/// Peers that stop in the middle of a handshake.
fn stalls() -> Vec<Script> {
    let hello = tls::hello().unwrap_or_default();
    let stall = |name: &str, steps: Vec<Step>| {
        let script = Script::new(GROUP, name, steps, Expect::Hangup).begin(Begin::Tcp).over(Over::Tls);
        script.or(Expect::Alert(&[])).slow()
    };
    vec![
        stall("a stall in the first header", vec![Step::Wire(hello[..3].to_vec())]),
        stall("a stall in the hello", vec![Step::Wire(hello[..100].to_vec())]),
        stall(
            "a stall before Finished",
            vec![Step::Handshake(|flight, wire| match flight {
                0 => wire,
                _ => Vec::new(),
            })],
        ),
        stall(
            "a stall in Finished",
            vec![Step::Handshake(|flight, mut wire| {
                if flight == 1 {
                    wire.truncate(30);
                }
                wire
            })],
        ),
        stall("a hello of one byte every 100 ms", vec![Step::Drip(hello, Duration::from_millis(100))]),
    ]
}

mod tickets {
    //! Tickets of others, and tickets that were used before.

    use super::{Seen, Server, tls};
    use crate::outcome::Result;
    use crate::peer::Peer;
    use crate::script::Begin;
    use rustls::client::{ClientSessionMemoryCache, Resumption};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{HandshakeKind, ServerConfig, ServerConnection};
    use std::io::Write;
    use std::sync::Arc;
    use std::time::Duration;

    /// Offers a ticket that another server has sealed.
    pub(super) fn foreign(server: &Server) -> Result<Seen> {
        let mut config = tls::client_config(server)?;
        config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(8)));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&server.certificate.chain).collect();
        let key = PrivateKeyDer::from_pem_slice(&server.certificate.key)?;
        let mut other = builder.with_no_client_auth().with_single_cert(chain?, key)?;
        other.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        let (mut ours, mut theirs) = (tls::client(config.clone())?, ServerConnection::new(Arc::new(other))?);
        for _ in 0..4 {
            let mut wire = Vec::new();
            while ours.wants_write() {
                ours.write_tls(&mut wire)?;
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                theirs.read_tls(&mut rest)?;
                theirs.process_new_packets()?;
            }
            let mut wire = Vec::new();
            while theirs.wants_write() {
                theirs.write_tls(&mut wire)?;
            }
            let mut rest = &wire[..];
            while !rest.is_empty() {
                ours.read_tls(&mut rest)?;
                ours.process_new_packets()?;
            }
        }
        tls::converse(server, config).map(|kind| Seen { word: word(kind), ..Seen::default() })
    }

    /// Sends one ClientHello with a ticket on three connections. Without 0-RTT, none of them gets any further.
    pub(super) fn replayed(server: &Server) -> Result<Seen> {
        let config = tls::client_config(server)?;
        tls::converse(server, config.clone())?;
        let mut own = tls::client(config)?;
        let mut hello = Vec::new();
        own.write_tls(&mut hello)?;
        for _ in 0..3 {
            let mut peer = Peer::begin(server, Begin::Tcp)?;
            peer.stream.write_all(&hello)?;
            // Data that the client's first flight would have encrypted.
            peer.stream.write_all(&[[23, 3, 3, 0, 20].as_slice(), &[7; 20]].concat())?;
            let seen = peer.observe(Duration::from_secs(5), |_| false);
            if seen.end.is_none() || seen.alert.is_none() && !seen.frames.is_empty() {
                return Ok(seen);
            }
        }
        Ok(Seen { word: "refused", ..Seen::default() })
    }

    fn word(kind: HandshakeKind) -> &'static str {
        if kind == HandshakeKind::Resumed { "open, resumed" } else { "open, full" }
    }
}
