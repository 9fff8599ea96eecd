use crate::link::state::Link;
use tautline_io::Token;

/// All connections of a shard, each in the slot of its token's index. The one that is served has been taken out of its slot.
/// Others are lent to the handler with it.
pub(crate) struct Links<S, T> {
    slots: Vec<Option<Box<Link<S, T>>>>,
}

impl<S, T> Links<S, T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    /// The number of slots.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The connections from a slot on.
    pub(crate) fn from(&self, index: usize) -> impl Iterator<Item = &Link<S, T>> {
        self.slots.get(index..).unwrap_or_default().iter().filter_map(Option::as_deref)
    }

    /// The connection in a slot.
    pub(crate) fn at(&self, index: usize) -> Option<&Link<S, T>> {
        self.slots.get(index)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, index: usize) -> Option<&mut Link<S, T>> {
        self.slots.get_mut(index)?.as_deref_mut()
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Link<S, T>> {
        self.at(token.index as usize).filter(|link| link.token == token)
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Link<S, T>> {
        self.at_mut(token.index as usize).filter(|link| link.token == token)
    }

    /// Takes a link out of its slot, so that the link and the rest of the shard can be borrowed separately.
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Link<S, T>>> {
        self.slots.get_mut(token.index as usize)?.take_if(|link| link.token == token)
    }

    /// Puts a link into its slot.
    #[inline]
    pub(crate) fn put(&mut self, link: Box<Link<S, T>>) {
        match self.slots.get_mut(link.token.index as usize) {
            Some(place) => *place = Some(link),
            None => self.put_behind(link),
        }
    }

    #[inline(never)]
    fn put_behind(&mut self, link: Box<Link<S, T>>) {
        self.slots.resize_with(link.token.index as usize, || None);
        self.slots.push(Some(link));
    }
}
