//! Messages of handlers to single connections of their own shard. Their memory is used again, so that none is allocated.

use tautline_conn::config::SlowConsumer;
use tautline_conn::message::Outgoing;
use tautline_io::Token;
use tautline_ws::Kind;

/// Bytes of all letters, and of their memory while there is none. Messages beyond are published.
const MOST: usize = 1 << 20;
/// Bytes of the longest message that is copied. Longer ones are published, which copies them once for the whole way.
const LONGEST: usize = 64 << 10;

/// The messages, which follow after the driver's events.
#[derive(Default)]
pub(crate) struct Letters {
    letters: Vec<Letter>,
    /// The payloads, one behind another.
    bytes: Vec<u8>,
}

struct Letter {
    to: Token,
    kind: Kind,
    compress: bool,
    key: Option<u64>,
    policy: Option<SlowConsumer>,
    len: usize,
}

impl Letters {
    pub(crate) const fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Whether there is room for a message of `len` bytes.
    pub(crate) fn takes(&self, len: usize) -> bool {
        let all = self.bytes.len() + len + (self.letters.len() + 1) * size_of::<Letter>();
        len <= LONGEST && all <= MOST
    }

    /// Copies a message.
    pub(crate) fn push(&mut self, to: Token, message: Outgoing<'_>) {
        let Outgoing { kind, payload, compress, key, policy, .. } = message;
        self.letters.push(Letter { to, kind, compress, key, policy, len: payload.len() });
        self.bytes.extend_from_slice(payload);
    }

    /// The messages in order, each with its receiver.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, Outgoing<'_>)> {
        let mut rest = &self.bytes[..];
        self.letters.iter().map(move |&Letter { to, kind, compress, key, policy, len }| {
            let (payload, behind) = rest.split_at(len);
            rest = behind;
            let mut message = Outgoing::binary(payload);
            (message.kind, message.compress, message.key, message.policy) = (kind, compress, key, policy);
            (to, message)
        })
    }

    /// Forgets all messages, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.letters.clear();
        self.bytes.clear();
    }
}
