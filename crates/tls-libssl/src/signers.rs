use crate::groups::Groups;
use crate::sys::{Identity, KeyKind};
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;
use tautline_tls::hello::{Hello, first_record};
use tautline_tls::{KeyCost, Signing};

/// A server's keys with the times that they take to sign.
pub(crate) struct Signers {
    identities: Vec<Identity>,
    kinds: Vec<Kind>,
    /// The index in `kinds` of each key's kind.
    kind_of: Vec<usize>,
    /// The indices of each group's keys, as in [`Groups`], and the group of each name.
    members: Vec<Vec<usize>>,
    names: HashMap<Box<[u8]>, u32>,
    has_tls13: bool,
}

/// A kind of key: all keys of it take the same time to sign.
struct Kind {
    name: String,
    /// `None` if the library fails to sign.
    time: Option<Duration>,
    certificates: usize,
}

impl Signers {
    pub(crate) fn new(identities: Vec<Identity>, groups: Groups, has_tls13: bool) -> Self {
        let (mut kinds, mut known) = (Vec::new(), HashMap::new());
        let mut kind_of = Vec::with_capacity(identities.len());
        for identity in &identities {
            let kind = *known.entry((identity.kind(), identity.bits())).or_insert_with(|| {
                kinds.push(Kind { name: name(identity), time: measure(identity), certificates: 0 });
                kinds.len() - 1
            });
            kinds[kind].certificates += 1;
            kind_of.push(kind);
        }
        let names = groups.names.into_iter().map(|(name, group)| (name.into_bytes().into(), group)).collect();
        Self { identities, kinds, kind_of, members: groups.members, names, has_tls13 }
    }

    /// The cost of the signature for a client, from its first bytes; `None` unless they hold a whole record of a ClientHello.
    pub(crate) fn signing(&self, wire: &[u8]) -> Option<Signing> {
        let record = first_record(wire)?;
        let Some(hello) = Hello::read(record) else {
            // The ClientHello spans several records, which honest clients do only above 16 KiB: the slowest key is assumed.
            let time = self.kinds.iter().filter_map(|kind| kind.time).max()?;
            return Some(Signing::new(time, false));
        };
        let members = self.members.get(self.group(hello.server_name()))?;
        let time = if self.has_tls13 && hello.offers_tls13() {
            let schemes = hello.schemes();
            let verifiable = |index: &&usize| schemes.iter().any(|&scheme| fits(&self.identities[**index], scheme));
            self.time(*members.iter().find(verifiable).or_else(|| members.first())?)?
        } else {
            // In TLS 1.2 the choice also depends on suites, groups and the library. The slowest possible key is assumed.
            let suited = |index: &&usize| hello.has_suites_for(self.identities[**index].kind() == KeyKind::Rsa);
            members.iter().filter(suited).filter_map(|&index| self.time(index)).max().unwrap_or_default()
        };
        Some(Signing::new(time, hello.offers_ticket()))
    }

    /// The group of certificates that the library selects for this name.
    fn group(&self, name: Option<&str>) -> usize {
        let Some(name) = name else { return 0 };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6125, section 6.4.3: a wildcard stands for exactly one label, the leftmost.
        let wildcard = || name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let known = |name: &str| self.names.get(name.as_bytes()).copied();
        let group = known(&name).or_else(|| wildcard().and_then(|wildcard| known(&wildcard)));
        group.and_then(|group| usize::try_from(group).ok()).unwrap_or(0)
    }

    /// The time that the key at `index` takes; `None` if the library fails to sign.
    fn time(&self, index: usize) -> Option<Duration> {
        self.kinds[self.kind_of[index]].time
    }

    pub(crate) fn key_costs(&self) -> Vec<KeyCost> {
        let cost = |kind: &Kind| Some(KeyCost::new(&*kind.name, kind.certificates, kind.time?));
        self.kinds.iter().filter_map(cost).collect()
    }
}

/// Measures the time of a signature.
///
/// Each kind of key is measured once. The time depends on the algorithm and on the length of the key, and to measure
/// each of a thousand RSA keys would take seconds.
fn measure(identity: &Identity) -> Option<Duration> {
    let once = || {
        let start = Instant::now();
        identity.sign().then(|| start.elapsed())
    };
    (0..3).filter_map(|_| once()).min()
}

fn name(identity: &Identity) -> String {
    let bits = identity.bits();
    match identity.kind() {
        KeyKind::Ecdsa => format!("ECDSA-{bits}"),
        KeyKind::Ed25519 => "Ed25519".to_owned(),
        KeyKind::Rsa => format!("RSA-{bits}"),
        KeyKind::Other => format!("other-{bits}"),
    }
}

/// Whether this key can sign with this scheme in TLS 1.3. There an ECDSA scheme names the curve (RFC 8446, section 4.2.3).
fn fits(identity: &Identity, scheme: u16) -> bool {
    match identity.kind() {
        KeyKind::Ecdsa => matches!((scheme, identity.bits()), (0x0403, 256) | (0x0503, 384) | (0x0603, 521)),
        KeyKind::Ed25519 => scheme == 0x0807,
        KeyKind::Rsa => matches!(scheme, 0x0804..=0x0806),
        KeyKind::Other => false,
    }
}
