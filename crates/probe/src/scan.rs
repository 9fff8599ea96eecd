//! Handshakes with restricted offers: which versions, suites and groups a server takes.

use super::client::{Client, Offer, group_name};
use super::dialer::Dialer;
use super::facts::{self, Answer, Scan, TroubleKind, WithoutName};
use super::legacy;
use rustls::client::ClientConnection;
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, ALL_KX_GROUPS};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Handshakes at once.
const AT_ONCE: usize = 4;

/// One handshake of a scan.
#[derive(Clone, Copy)]
enum Question {
    Suite(SupportedCipherSuite),
    Group(&'static dyn SupportedKxGroup),
    WithH2,
    WithoutName,
    Old(&'static (&'static str, u16, &'static [u16])),
}

/// All questions, in the order of the report.
fn questions() -> Vec<Question> {
    let suites = ALL_CIPHER_SUITES.iter().copied().map(Question::Suite);
    let groups = ALL_KX_GROUPS.iter().copied().map(Question::Group);
    let old = legacy::OFFERS.iter().map(Question::Old);
    suites.chain(groups).chain([Question::WithH2, Question::WithoutName]).chain(old).collect()
}

/// The connections of a scan.
pub(crate) fn connections() -> usize {
    questions().len()
}

/// An answer, and the values that came with it.
struct Answered {
    answer: Answer,
    alpn: Option<String>,
    chain: Vec<CertificateDer<'static>>,
}

/// Scans the endpoint at one address. `leaf` is the certificate that it showed with a name.
pub(crate) fn scan(client: &Client, dialer: &Dialer, address: SocketAddr, leaf: &[u8]) -> Scan {
    let questions = questions();
    let answers: Vec<Mutex<Option<Answered>>> = questions.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < questions.len()) {
                    let answered = ask(client, dialer, address, questions[index]);
                    *answers[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(answered);
                }
            });
        }
    });
    let answers = answers.into_iter().map(|answer| answer.into_inner().unwrap_or_else(PoisonError::into_inner));
    let mut scan = Scan::default();
    for (question, answered) in questions.iter().zip(answers) {
        let Some(answered) = answered else { continue };
        collect(&mut scan, question, answered, leaf);
    }
    for (name, prefix) in [("TLSv1.3", "TLS13_"), ("TLSv1.2", "TLS_")] {
        let answer = whole(scan.suites.iter().filter(|offer| offer.name.starts_with(prefix)));
        scan.versions.push(facts::Offer { name: name.to_owned(), answer });
    }
    // Newest first.
    scan.versions.sort_by(|one, other| other.name.cmp(&one.name));
    scan
}

/// The answer to a version, by those to its suites.
fn whole<'a>(offers: impl Iterator<Item = &'a facts::Offer>) -> Answer {
    let answers: Vec<&Answer> = offers.map(|offer| &offer.answer).collect();
    let unclear = answers.iter().find(|answer| matches!(answer, Answer::Unclear(_)));
    if answers.contains(&&Answer::Taken) {
        Answer::Taken
    } else {
        unclear.map_or(Answer::Refused, |answer| (*answer).clone())
    }
}

fn collect(scan: &mut Scan, question: &Question, answered: Answered, leaf: &[u8]) {
    let offer = |name: String, answer| facts::Offer { name, answer };
    match question {
        Question::Suite(suite) => scan.suites.push(offer(format!("{:?}", suite.suite()), answered.answer)),
        Question::Group(group) => scan.groups.push(offer(group_name(group.name()), answered.answer)),
        Question::Old((name, ..)) => scan.versions.push(offer((*name).to_owned(), answered.answer)),
        Question::WithH2 => scan.alpn_with_h2 = answered.alpn,
        Question::WithoutName => {
            let shown = answered.chain.first().map(AsRef::as_ref);
            scan.without_name = match answered.answer {
                Answer::Taken if shown == Some(leaf) => Some(WithoutName::SameCertificate),
                Answer::Taken => Some(WithoutName::OtherCertificate),
                Answer::Refused => Some(WithoutName::Refused),
                Answer::Unclear(_) => None,
            };
        }
    }
}

fn ask(client: &Client, dialer: &Dialer, address: SocketAddr, question: Question) -> Answered {
    let usual = client.offer();
    let with = |provider, versions| Offer { provider: Arc::new(provider), versions, ..usual.clone() };
    let offer = match question {
        Question::Old((_, version, suites)) => {
            let mut random = [0; 32];
            let _ = client.provider.secure_random.fill(&mut random);
            let answer = legacy::ask(dialer, address, (*version, suites), random);
            return Answered { answer, alpn: None, chain: Vec::new() };
        }
        Question::Suite(suite) => {
            let provider = CryptoProvider { cipher_suites: vec![suite], ..(*client.provider).clone() };
            with(provider, version_of(suite))
        }
        Question::Group(group) => {
            let provider = CryptoProvider { kx_groups: vec![group], ..(*client.provider).clone() };
            with(provider, rustls::ALL_VERSIONS)
        }
        Question::WithH2 => Offer { alpn: &[b"h2", b"http/1.1"], ..usual },
        Question::WithoutName => Offer { sends_name: false, ..usual },
    };
    let unclear = |text| Answered { answer: Answer::Unclear(text), alpn: None, chain: Vec::new() };
    // An offer that the library cannot make, as TLS 1.2 with a group of TLS 1.3 alone.
    let prepared = client.prepare(&offer).and_then(|prepared| Ok((prepared.connection()?, prepared.seen)));
    let (tls, seen) = match prepared {
        Ok(connection) => connection,
        Err(error) => return unclear(error.to_string()),
    };
    let mut stream = match dialer.connect(address) {
        Ok((stream, _)) => stream,
        Err(trouble) => return unclear(trouble.text),
    };
    let answer = match stream.handshake(tls, dialer.until()) {
        Ok(()) => Answer::Taken,
        Err(trouble) if matches!(trouble.kind, TroubleKind::Alert(_) | TroubleKind::Closed) => Answer::Refused,
        Err(trouble) => Answer::Unclear(trouble.text),
    };
    let alpn = stream.tls().and_then(alpn);
    stream.leave();
    Answered { answer, alpn, chain: seen.shown().chain }
}

fn alpn(tls: &mut ClientConnection) -> Option<String> {
    tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned())
}

fn version_of(suite: SupportedCipherSuite) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    if suite.tls13().is_some() { &BOTH[..1] } else { &BOTH[1..] }
}
