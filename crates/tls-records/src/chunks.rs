use tautline_buf::copy_in_pieces;

/// A list of chunks, read as one stream.
#[derive(Clone)]
pub(crate) struct Chunks<'a> {
    current: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl<'a> Chunks<'a> {
    pub(crate) const fn new(chunks: &'a [&'a [u8]]) -> Self {
        Self { current: &[], rest: chunks }
    }

    /// Takes the next `len` bytes if they lie in one chunk. At least `len` bytes must be left.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        self.skip_empty();
        let (taken, behind) = self.current.split_at_checked(len)?;
        self.current = behind;
        Some(taken)
    }

    /// Copies the next bytes into `to` until it is full.
    pub(crate) fn gather(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            self.skip_empty();
            let len = to.len().min(self.current.len());
            let (now, later) = to.split_at_mut(len);
            copy_in_pieces(&self.current[..len], now);
            self.current = &self.current[len..];
            to = later;
            if len == 0 {
                return;
            }
        }
    }

    /// Skips the next `len` bytes. At least `len` bytes must be left.
    pub(crate) fn skip(&mut self, mut len: usize) {
        while len > 0 && !self.is_over() {
            self.skip_empty();
            let now = len.min(self.current.len());
            self.current = &self.current[now..];
            len -= now;
        }
    }

    const fn is_over(&self) -> bool {
        self.current.is_empty() && self.rest.is_empty()
    }

    fn skip_empty(&mut self) {
        while let ([], [next, rest @ ..]) = (self.current, self.rest) {
            self.current = next;
            self.rest = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    #[test]
    fn takes_bytes_of_one_chunk_and_gathers_those_of_several() {
        let mut chunks = Chunks::new(&[b"", b"abc", b"", b"de", b"f"]);
        assert_eq!(chunks.take(2), Some(&b"ab"[..]));
        assert_eq!(chunks.take(2), None);
        let mut behind = chunks.clone();
        behind.skip(3);
        assert_eq!((behind.take(2), behind.take(1)), (None, Some(&b"f"[..])));
        behind.skip(1);
        let mut gathered = [0; 2];
        chunks.gather(&mut gathered);
        assert_eq!(&gathered, b"cd");
        assert_eq!(chunks.take(1), Some(&b"e"[..]));
        assert_eq!(chunks.take(1), Some(&b"f"[..]));
    }
}
