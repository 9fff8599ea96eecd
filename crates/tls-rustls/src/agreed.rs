use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, CommonState, HandshakeKind, NamedGroup, ProtocolVersion};
use tautline_tls::Facts;

/// What a handshake agreed on, small enough to be kept.
pub(crate) struct Agreed {
    version: Option<ProtocolVersion>,
    suite: Option<CipherSuite>,
    group: Option<NamedGroup>,
    resumed: bool,
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[CertificateDer<'static>]>,
}

impl Agreed {
    pub(crate) fn of(common: &CommonState, server_name: Option<Box<str>>) -> Self {
        Self {
            version: common.protocol_version(),
            suite: common.negotiated_cipher_suite().map(|suite| suite.suite()),
            group: common.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name),
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            alpn: common.alpn_protocol().map(Box::from),
            server_name,
            peer_certificates: common.peer_certificates().unwrap_or_default().into(),
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts {
            version: match self.version {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "",
            },
            suite: self.suite.map(|suite| format!("{suite:?}")).unwrap_or_default(),
            group: self.group.map(|group| format!("{group:?}")).unwrap_or_default(),
            alpn: self.alpn.as_deref().map(<[u8]>::to_vec),
            server_name: self.server_name.as_deref().map(str::to_owned),
            resumed: self.resumed,
            peer_certificates: self.peer_certificates.iter().map(|certificate| certificate.to_vec()).collect(),
        }
    }
}
