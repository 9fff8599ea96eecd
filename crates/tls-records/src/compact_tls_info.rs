use crate::aead::choice;
use crate::schedule::{Secret, Suite};
use tautline_tls::{Error, NO_EXPORTER, NamedGroup, ProtocolVersion, TlsInfo};

/// The result of a TLS 1.3 handshake, small enough to keep for the life of a connection.
#[derive(Clone, Debug)]
pub struct CompactTlsInfo {
    suite: Suite,
    group: Option<NamedGroup>,
    resumed: bool,
    /// Boxed, since many connections have none of these.
    names: Option<Box<Names>>,
}

#[derive(Clone, Debug, Default)]
struct Names {
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[Box<[u8]>]>,
    client_rule: Option<Box<str>>,
    /// The secret of exporters (RFC 8446, section 7.5), if the configuration asks for one.
    exporter: Option<Box<Secret>>,
}

impl CompactTlsInfo {
    /// Takes everything but the suite from `info`.
    #[must_use]
    pub fn new(suite: Suite, info: TlsInfo) -> Self {
        let names = Names {
            alpn: info.alpn.map(Vec::into_boxed_slice),
            server_name: info.server_name.map(String::into_boxed_str),
            peer_certificates: info.peer_certificates.into_iter().map(Vec::into_boxed_slice).collect(),
            client_rule: info.client_rule.map(String::into_boxed_str),
            exporter: None,
        };
        Self { suite, group: info.group, resumed: info.resumed, names: names.boxed() }
    }

    /// With the secret of exporters.
    #[must_use]
    pub fn with_exporter(mut self, secret: Option<Secret>) -> Self {
        if let Some(secret) = secret {
            self.names.get_or_insert_default().exporter = Some(Box::new(secret));
        }
        self
    }

    pub(crate) fn export_keying_material(
        &self,
        suite: Suite,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), Error> {
        let secret = self.names.as_ref().and_then(|names| names.exporter.as_ref());
        secret.ok_or(NO_EXPORTER)?.export(suite, label, context, out)
    }

    pub(crate) fn has_exporter(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.exporter.is_some())
    }

    pub(crate) const fn is_resumed(&self) -> bool {
        self.resumed
    }

    pub(crate) fn expand(&self) -> TlsInfo {
        let mut info = TlsInfo::default();
        info.version = Some(ProtocolVersion::Tls13);
        info.suite = Some(self.suite.cipher_suite());
        info.aead = choice::names(self.suite);
        info.group = self.group;
        info.resumed = self.resumed;
        if let Some(names) = self.names.as_deref() {
            info.alpn = names.alpn.as_deref().map(<[u8]>::to_vec);
            info.server_name = names.server_name.as_deref().map(str::to_owned);
            info.peer_certificates = names.peer_certificates.iter().map(|certificate| certificate.to_vec()).collect();
            info.client_rule = names.client_rule.as_deref().map(str::to_owned);
        }
        info
    }
}

impl Names {
    fn boxed(self) -> Option<Box<Self>> {
        let has_name = self.alpn.is_some() || self.server_name.is_some() || self.client_rule.is_some();
        let has_any = has_name || !self.peer_certificates.is_empty();
        has_any.then(|| Box::new(self))
    }
}
