//! Counters on their way to the process that takes over, by their names: its build may know others.

use std::io;
use tautline_buf::fields::{put, take, take_u64};

/// Numbers that only grow, by name. Zeros are left out.
///
/// ```
/// # mod tautline { pub use tautline_engine::Totals; }
/// use tautline::Totals;
///
/// let mut totals = Totals::default();
/// totals.put("upgrades", 3);
/// let read = Totals::decode(&totals.encode())?;
/// assert_eq!(read.iter().collect::<Vec<_>>(), [("upgrades", 3)]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals(Vec<(String, u64)>);

impl Totals {
    /// Adds a number.
    pub fn put(&mut self, name: impl Into<String>, value: u64) {
        if value > 0 {
            self.0.push((name.into(), value));
        }
    }

    /// The numbers in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The numbers as bytes: each is a name behind its length (4 bytes), and the value (8 bytes).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.0 {
            put(name.as_bytes(), &mut out);
            out.extend(value.to_be_bytes());
        }
        out
    }

    /// Reads bytes that [`encode`](Self::encode) made.
    ///
    /// # Errors
    /// The bytes are no numbers with names.
    pub fn decode(mut bytes: &[u8]) -> io::Result<Self> {
        let mut totals = Self::default();
        while !bytes.is_empty() {
            let (name, value) =
                one(&mut bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the bytes are no totals"))?;
            totals.put(name, value);
        }
        Ok(totals)
    }
}

fn one<'b>(rest: &mut &'b [u8]) -> Option<(&'b str, u64)> {
    let name = str::from_utf8(take(rest)?).ok()?;
    Some((name, take_u64(rest)?))
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn other_bytes_are_errors() {
        let mut totals = Totals::default();
        totals.put("a", 1);
        totals.put("nothing", 0);
        totals.put("b".repeat(300), u64::MAX);
        let bytes = totals.encode();
        assert_eq!(Totals::decode(&bytes).unwrap(), totals);
        assert_eq!(totals.iter().count(), 2);
        let ends = [0, 4 + 1 + 8, bytes.len()];
        for len in (0..bytes.len()).filter(|len| !ends.contains(len)) {
            assert!(Totals::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Totals::decode(&[0, 0, 0, 1, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]).is_err(), "a name is text");
    }
}
