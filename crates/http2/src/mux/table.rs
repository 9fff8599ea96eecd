//! Tokens of a loop: sockets of the driver behind, and streams.

use tautline_buf::Buf;
use tautline_io::Token;
use tautline_io::slots::Slots;

/// The thing that a token names.
#[derive(Debug)]
pub(super) enum Entry<C, S> {
    /// Nothing, while a carrier is taken out.
    Free,
    /// A socket, by its token at the driver behind.
    Socket(Token),
    /// A socket whose connection carries streams.
    Carrier(Token, Box<C>),
    Stream(Box<S>),
}

/// All tokens of one driver.
#[derive(Debug)]
pub(super) struct Table<C, S> {
    entries: Slots<Entry<C, S>>,
    /// By the indices of the driver behind: our own tokens. Some are of sockets that have ended.
    ours: Vec<Token>,
    /// Buffers that nobody needs at the moment, so that idle streams hold none.
    spares: Vec<Buf>,
}

/// Buffers that are kept at most.
const SPARES: usize = 4;
/// The largest that is kept, in bytes: it has room for all that a carrier gives its loop at a time.
const MOST_OF_SPARE: usize = 512 << 10;

impl<C, S> Table<C, S> {
    pub(super) const fn new() -> Self {
        Self { entries: Slots::new(u32::MAX), ours: Vec::new(), spares: Vec::new() }
    }

    pub(super) fn add(&mut self, entry: Entry<C, S>) -> Token {
        let inner = match &entry {
            Entry::Socket(inner) => Some(*inner),
            _ => None,
        };
        // Each is a descriptor or a bounded stream of one.
        let token = self.entries.put(entry);
        if let Some(inner) = inner {
            let at = inner.index as usize;
            if self.ours.len() <= at {
                // Those in between get their own tokens later.
                self.ours.resize(at + 1, token);
            }
            self.ours[at] = token;
        }
        token
    }

    pub(super) fn get(&self, token: Token) -> Option<&Entry<C, S>> {
        self.entries.get(token)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Entry<C, S>> {
        self.entries.get_mut(token)
    }

    /// The token at the driver behind, of a socket.
    pub(super) fn inner(&self, token: Token) -> Option<Token> {
        match self.get(token)? {
            Entry::Socket(inner) | Entry::Carrier(inner, _) => Some(*inner),
            Entry::Free | Entry::Stream(_) => None,
        }
    }

    /// Our token of a socket of the driver behind.
    pub(super) fn outer(&self, inner: Token) -> Option<Token> {
        let token = *self.ours.get(inner.index as usize)?;
        (self.inner(token)? == inner).then_some(token)
    }

    pub(super) fn remove(&mut self, token: Token) -> Entry<C, S> {
        self.entries.remove(token).unwrap_or(Entry::Free)
    }

    /// Gives `buf` memory, if it has none.
    pub(super) fn lend(&mut self, buf: &mut Buf) {
        if !buf.has_memory()
            && let Some(spare) = self.spares.pop()
        {
            *buf = spare;
        }
    }

    /// Takes a buffer back, however large it has become: a message of many frames would make it anew each time.
    pub(super) fn give(&mut self, mut buf: Buf) {
        if buf.has_memory() && buf.capacity() <= MOST_OF_SPARE && self.spares.len() < SPARES {
            buf.clear();
            self.spares.push(buf);
        }
    }

    pub(super) fn carrier(&mut self, token: Token) -> Option<&mut C> {
        match self.get_mut(token)? {
            Entry::Carrier(_, carrier) => Some(carrier),
            _ => None,
        }
    }

    /// Takes a carrier out, if the token names one. [`put_carrier`](Self::put_carrier) puts it back.
    pub(super) fn take_carrier(&mut self, token: Token) -> Option<(Token, Box<C>)> {
        let entry = self.get_mut(token)?;
        match core::mem::replace(entry, Entry::Free) {
            Entry::Carrier(inner, carrier) => Some((inner, carrier)),
            other => {
                *entry = other;
                None
            }
        }
    }

    /// Puts a carrier back, unless its token has ended.
    pub(super) fn put_carrier(&mut self, token: Token, inner: Token, carrier: Box<C>) {
        if let Some(entry) = self.get_mut(token) {
            *entry = Entry::Carrier(inner, carrier);
        }
    }

    pub(super) fn stream(&mut self, token: Token) -> Option<&mut S> {
        match self.get_mut(token)? {
            Entry::Stream(stream) => Some(stream),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, MOST_OF_SPARE, SPARES, Table};
    use tautline_buf::Buf;
    use tautline_io::Token;

    #[test]
    fn a_socket_that_is_no_carrier_stays_in_its_place() {
        let mut table = Table::<(), ()>::new();
        let inner = Token { index: 7, generation: 3 };
        let outer = table.add(Entry::Socket(inner));
        assert!(table.take_carrier(outer).is_none());
        assert_eq!((table.inner(outer), table.outer(inner)), (Some(inner), Some(outer)));
    }

    #[test]
    fn the_buffer_of_a_large_message_serves_the_next_one() {
        let mut table = Table::<(), ()>::new();
        let mut buf = Buf::with_capacity(128 << 10);
        let capacity = buf.capacity();
        buf.put(b"message");
        table.give(buf);
        let mut next = Buf::new();
        table.lend(&mut next);
        assert_eq!((next.capacity(), next.len()), (capacity, 0));
        for _ in 0..2 * SPARES {
            table.give(Buf::with_capacity(MOST_OF_SPARE + 1));
            assert!(table.spares.is_empty());
        }
        for _ in 0..2 * SPARES {
            table.give(Buf::with_capacity(4096));
        }
        assert_eq!(table.spares.len(), SPARES);
    }

    #[test]
    fn tokens_of_both_sides_find_each_other_until_they_end() {
        let mut table = Table::<(), ()>::new();
        let inner = Token { index: 7, generation: 3 };
        let outer = table.add(Entry::Socket(inner));
        assert_eq!((table.inner(outer), table.outer(inner)), (Some(inner), Some(outer)));
        assert_eq!(table.outer(Token { generation: 4, ..inner }), None);
        assert!(matches!(table.remove(outer), Entry::Socket(_)));
        assert!(matches!(table.remove(outer), Entry::Free));
        let next = table.add(Entry::Socket(Token { generation: 4, ..inner }));
        assert_eq!((next.index, next.generation), (outer.index, 1));
        assert_eq!((table.inner(outer), table.outer(inner)), (None, None));
    }
}
