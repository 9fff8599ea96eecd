use tautline_tls::{Facts, registry};

/// What a handshake agreed on, small enough to be kept. Numbers are those of IANA, 0 where nothing was agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
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
    peer_certificates: Box<[Box<[u8]>]>,
}

impl Agreed {
    /// What was agreed on in TLS 1.3: suite and group by their numbers, all else as `facts` says.
    #[must_use]
    pub fn new(suite: u16, group: u16, facts: Facts) -> Self {
        let names = Names {
            alpn: facts.alpn.map(Vec::into_boxed_slice),
            server_name: facts.server_name.map(String::into_boxed_str),
            peer_certificates: facts.peer_certificates.into_iter().map(Vec::into_boxed_slice).collect(),
        };
        Self { suite, group, resumed: facts.resumed, names: names.boxed() }
    }

    pub(crate) const fn is_resumed(&self) -> bool {
        self.resumed
    }

    pub(crate) const fn group(&self) -> u16 {
        self.group
    }

    pub(crate) fn facts(&self) -> Facts {
        let name = |number: u16, name: fn(u16) -> String| if number == 0 { String::new() } else { name(number) };
        let names = self.names.as_deref();
        Facts {
            version: "TLSv1.3",
            suite: name(self.suite, registry::suite),
            group: name(self.group, registry::group),
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
