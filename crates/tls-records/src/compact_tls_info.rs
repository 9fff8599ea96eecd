use crate::aead::choice;
use crate::schedule::Suite;
use tautline_tls::{TlsInfo, registry};

/// The result of a TLS 1.3 handshake, small enough to keep for the life of a connection.
///
/// Suite and group are IANA's numbers, or 0 if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactTlsInfo {
    suite: u16,
    group: u16,
    resumed: bool,
    /// Boxed, since many connections have none of these.
    names: Option<Box<Names>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[Box<[u8]>]>,
}

impl CompactTlsInfo {
    /// Takes suite and group by their numbers, and everything else from `info`.
    #[must_use]
    pub fn new(suite: u16, group: u16, info: TlsInfo) -> Self {
        let names = Names {
            alpn: info.alpn.map(Vec::into_boxed_slice),
            server_name: info.server_name.map(String::into_boxed_str),
            peer_certificates: info.peer_certificates.into_iter().map(Vec::into_boxed_slice).collect(),
        };
        Self { suite, group, resumed: info.resumed, names: names.boxed() }
    }

    pub(crate) const fn is_resumed(&self) -> bool {
        self.resumed
    }

    pub(crate) const fn group(&self) -> u16 {
        self.group
    }

    pub(crate) fn expand(&self) -> TlsInfo {
        let name = |number: u16, name: fn(u16) -> String| if number == 0 { String::new() } else { name(number) };
        let mut info = TlsInfo::default();
        info.version = "TLSv1.3";
        info.suite = name(self.suite, registry::suite);
        info.aead = Suite::from_code(self.suite).map(choice::names).unwrap_or_default();
        info.group = name(self.group, registry::group);
        info.resumed = self.resumed;
        if let Some(names) = self.names.as_deref() {
            info.alpn = names.alpn.as_deref().map(<[u8]>::to_vec);
            info.server_name = names.server_name.as_deref().map(str::to_owned);
            info.peer_certificates = names.peer_certificates.iter().map(|certificate| certificate.to_vec()).collect();
        }
        info
    }
}

impl Names {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
