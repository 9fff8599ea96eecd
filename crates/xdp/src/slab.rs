use tautline_io::Token;

/// Values by token. The place that was freed last is reused first, under a new generation.
pub(crate) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The number of values.
    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop() {
            let (generation, place) = &mut self.places[index as usize];
            *place = Some(value);
            return Token { index, generation: *generation };
        }
        // The limit on connections keeps the number far below 2^32.
        let index = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push((0, Some(value)));
        Token { index, generation: 0 }
    }

    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let (generation, place) = self.places.get(token.index as usize)?;
        if *generation == token.generation { place.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let (generation, place) = self.places.get_mut(token.index as usize)?;
        if *generation == token.generation { place.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let (generation, place) = self.places.get_mut(token.index as usize)?;
        if *generation != token.generation {
            return None;
        }
        let value = place.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(token.index);
        Some(value)
    }

    /// The tokens of all values.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let taken = |(index, (generation, place)): (usize, &(u32, Option<T>))| {
            place.as_ref()?;
            Some(Token { index: u32::try_from(index).ok()?, generation: *generation })
        };
        self.places.iter().enumerate().filter_map(taken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_tokens_find_nothing() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.get(a), slab.len()), (None, None, 1));
        let c = slab.insert('c');
        assert_eq!((c.index, c.generation), (a.index, 1));
        assert_eq!((slab.get(a), slab.get(b), slab.get(c)), (None, Some(&'b'), Some(&'c')));
        slab.get_mut(c).unwrap().make_ascii_uppercase();
        assert_eq!((slab.get(c), slab.tokens()), (Some(&'C'), vec![c, b]));
    }
}
