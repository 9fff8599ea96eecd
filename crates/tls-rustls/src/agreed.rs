use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, CommonState, HandshakeKind, NamedGroup, ProtocolVersion};
use tautline_tls::Facts;

/// What a handshake agreed on, small enough to be kept. Numbers are those of IANA, 0 where nothing was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    version: u16,
    suite: u16,
    group: u16,
    resumed: bool,
    /// What many connections have nothing of.
    names: Option<Box<Names>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[CertificateDer<'static>]>,
}

impl Agreed {
    pub(crate) fn of(common: &CommonState, server_name: Option<Box<str>>) -> Self {
        let names = Names {
            alpn: common.alpn_protocol().map(Box::from),
            server_name,
            peer_certificates: common.peer_certificates().unwrap_or_default().into(),
        };
        Self {
            version: common.protocol_version().map_or(0, u16::from),
            suite: common.negotiated_cipher_suite().map_or(0, |suite| suite.suite().into()),
            group: common.negotiated_key_exchange_group().map_or(0, |group| group.name().into()),
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            names: names.boxed(),
        }
    }

    /// What was agreed on in TLS 1.3: suite and group by their numbers, all else as `facts` says.
    pub(crate) fn from_parts(suite: u16, group: u16, facts: Facts) -> Self {
        let names = Names {
            alpn: facts.alpn.map(Vec::into_boxed_slice),
            server_name: facts.server_name.map(String::into_boxed_str),
            peer_certificates: facts.peer_certificates.into_iter().map(CertificateDer::from).collect(),
        };
        Self { version: ProtocolVersion::TLSv1_3.into(), suite, group, resumed: facts.resumed, names: names.boxed() }
    }

    pub(crate) const fn group(&self) -> u16 {
        self.group
    }

    pub(crate) fn facts(&self) -> Facts {
        let name = |number: u16, name: fn(u16) -> String| if number == 0 { String::new() } else { name(number) };
        let names = self.names.as_deref();
        Facts {
            version: match ProtocolVersion::from(self.version) {
                ProtocolVersion::TLSv1_3 => "TLSv1.3",
                ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "",
            },
            suite: name(self.suite, |suite| format!("{:?}", CipherSuite::from(suite))),
            group: name(self.group, |group| format!("{:?}", NamedGroup::from(group))),
            alpn: names.and_then(|names| names.alpn.as_deref()).map(<[u8]>::to_vec),
            server_name: names.and_then(|names| names.server_name.as_deref()).map(str::to_owned),
            resumed: self.resumed,
            peer_certificates: names.map_or_else(Vec::new, |names| {
                names.peer_certificates.iter().map(|certificate| certificate.to_vec()).collect()
            }),
        }
    }
}

impl Names {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
