use serde::{Deserialize, Serialize};
use std::fmt;
use tautline_measure::named;

named! {
    /// Carrier of the messages.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Protocol {
        /// Bytes over TCP without frames: the limit that the others are judged by.
        Tcp = "tcp",
        /// WebSocket over TCP.
        Ws = "ws",
        /// WebSocket over TLS.
        Wss = "wss",
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Declares [`Case`] with one optional field and one setter for each fact.
macro_rules! facts {
    ($($(#[$doc:meta])+ $fact:ident: $kind:ident,)+) => {
        /// Identity of a measurement. Only facts that apply are set, and only those are written.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Case {
            $($(#[$doc])+ #[serde(skip_serializing_if = "Option::is_none")] pub $fact: Option<facts!(@type $kind)>,)+
        }

        /// Setters; each takes a value, or an option of one.
        impl Case {
            $(facts!(@setter $fact $kind);)+

            /// Whether every fact of this case holds for `other` too.
            pub(crate) fn covers(&self, other: &Self) -> bool {
                true $(&& (self.$fact.is_none() || self.$fact == other.$fact))+
            }

            /// The facts that are set, by the names that they have in results.
            pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
                [$(self.$fact.as_ref().map(|value| (stringify!($fact), value.to_string())),)+]
                    .into_iter()
                    .flatten()
                    .collect()
            }

            /// One fact by its name in results.
            pub(crate) fn fact(&self, name: &str) -> Option<String> {
                self.facts().into_iter().find(|(fact, _)| *fact == name).map(|(_, value)| value)
            }

            /// Names of all facts.
            #[cfg(test)]
            pub(crate) const NAMES: &[&str] = &[$(stringify!($fact)),+];
        }
    };
    (@type text) => { String };
    (@type count) => { u64 };
    (@type $type:ident) => { $type };
    (@setter $fact:ident text) => {
        pub(crate) fn $fact<'a>(mut self, value: impl Into<Option<&'a str>>) -> Self {
            self.$fact = value.into().map(str::to_owned);
            self
        }
    };
    (@setter $fact:ident count) => {
        pub(crate) fn $fact(mut self, value: impl Into<Option<usize>>) -> Self {
            self.$fact = value.into().map(|value| value as u64);
            self
        }
    };
    (@setter $fact:ident $type:ident) => {
        pub(crate) fn $fact(mut self, value: impl Into<Option<$type>>) -> Self {
            self.$fact = value.into();
            self
        }
    };
}

facts! {
    /// Carrier of the messages.
    protocol: Protocol,
    /// TLS engine: `rustls`, `fused`.
    tls: text,
    /// Provider of the AEAD of records opened and sealed in place: `aws-lc`, `ring`, or both.
    aead: text,
    /// Driver: `epoll`, `uring`, `select`, `spin`.
    driver: text,
    /// Payload bytes per message.
    size: count,
    /// Concurrent connections.
    connections: count,
    /// Messages in flight per connection.
    pipeline: count,
    /// Subscribers of a topic.
    subscribers: count,
    /// Place where TLS runs: `inline`, `always-offload`, `gated`.
    execution: text,
    /// `loop-per-core` or `shared-loop`.
    model: text,
    /// Threads of the server.
    threads: count,
    /// Path of records between buffers: `memory-bio`, `window-bio`, `direct`, `fused` and others.
    strategy: text,
    /// `read` or `write`, `seal` or `open`.
    direction: text,
    /// Key of the certificate: `rsa2048`, `p256`, `ed25519`.
    key: text,
    /// Key exchange group.
    group: text,
    /// Whether handshakes resumed earlier sessions.
    resumed: bool,
    /// Stage of a message: `nic`, `loop`, `read`, `tls`, `parse`, `callback`, `total`.
    stage: text,
    /// Network stack: `kernel`, `xdp`.
    transport: text,
    /// Another implementation that was measured.
    peer: text,
    /// Circumstances: `quiet`, `storm`, `rate=5000`.
    setup: text,
}
