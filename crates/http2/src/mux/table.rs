//! Tokens of a loop: sockets of the driver behind, and streams.

use tautline_buf::Buf;
use tautline_io::Token;

/// The thing that a token names.
#[derive(Debug, Default)]
pub(super) enum Entry<C, S> {
    #[default]
    Free,
    /// A socket, by its token at the driver behind.
    Socket(Token),
    /// A socket whose connection carries streams.
    Carrier(Token, Box<C>),
    Stream(Box<S>),
}

#[derive(Debug)]
struct Place<C, S> {
    generation: u32,
    entry: Entry<C, S>,
}

/// All tokens of one driver.
#[derive(Debug)]
pub(super) struct Table<C, S> {
    places: Vec<Place<C, S>>,
    free: Vec<u32>,
    /// By the indices of the driver behind: our own ones.
    ours: Vec<u32>,
    /// Buffers that nobody needs at the moment, so that idle streams hold none.
    spares: Vec<Buf>,
}

/// Buffers that are kept at most.
const SPARES: usize = 4;
/// The largest that is kept, in bytes: it has room for all that a carrier gives its loop at a time.
const MOST_OF_SPARE: usize = 512 << 10;

impl<C, S> Table<C, S> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), ours: Vec::new(), spares: Vec::new() }
    }

    pub(super) fn add(&mut self, entry: Entry<C, S>) -> Token {
        let inner = match &entry {
            Entry::Socket(inner) => Some(*inner),
            _ => None,
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, entry: Entry::Free });
            // Each place is a descriptor or a bounded stream of one.
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        place.entry = entry;
        if let Some(inner) = inner {
            let at = inner.index as usize;
            if self.ours.len() <= at {
                self.ours.resize(at + 1, u32::MAX);
            }
            self.ours[at] = index;
        }
        Token { index, generation: place.generation }
    }

    pub(super) fn get(&self, token: Token) -> Option<&Entry<C, S>> {
        let place = self.places.get(token.index as usize)?;
        (place.generation == token.generation).then_some(&place.entry)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Entry<C, S>> {
        let place = self.places.get_mut(token.index as usize)?;
        (place.generation == token.generation).then_some(&mut place.entry)
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
        let index = *self.ours.get(inner.index as usize)?;
        let place = self.places.get(index as usize)?;
        match &place.entry {
            Entry::Socket(of) | Entry::Carrier(of, _) if *of == inner => {
                Some(Token { index, generation: place.generation })
            }
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, token: Token) -> Entry<C, S> {
        let Some(place) = self.places.get_mut(token.index as usize) else { return Entry::Free };
        if place.generation != token.generation || matches!(place.entry, Entry::Free) {
            return Entry::Free;
        }
        place.generation = place.generation.wrapping_add(1);
        self.free.push(token.index);
        core::mem::replace(&mut place.entry, Entry::Free)
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
