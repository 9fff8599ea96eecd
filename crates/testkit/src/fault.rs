use core::ops::Range;

/// A change to wire bytes between sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One bit is changed.
    Flip {
        /// The index of the byte.
        at: usize,
        /// The bit of that byte, 0 to 7.
        bit: u8,
    },
    /// The stream ends after this number of bytes.
    Truncate(usize),
    /// The record with this index does not arrive.
    Drop(usize),
    /// The record with this index arrives twice.
    Repeat(usize),
    /// The record with this index and the next one change places.
    Swap(usize),
}

impl Fault {
    /// Applies the fault to `wire`, which holds whole TLS records. A fault that is out of range changes nothing.
    pub fn apply(self, wire: &mut Vec<u8>) {
        let records = record_ranges(wire);
        match self {
            Self::Flip { at, bit } => {
                if let Some(byte) = wire.get_mut(at) {
                    *byte ^= 1 << (bit & 7);
                }
            }
            Self::Truncate(len) => wire.truncate(len),
            Self::Drop(index) => {
                if let Some(record) = records.get(index) {
                    wire.drain(record.clone());
                }
            }
            Self::Repeat(index) => {
                if let Some(record) = records.get(index) {
                    let copy = wire[record.clone()].to_vec();
                    wire.splice(record.end..record.end, copy);
                }
            }
            Self::Swap(index) => {
                if let [first, second, ..] = records.get(index..).unwrap_or_default() {
                    wire[first.start..second.end].rotate_left(first.len());
                }
            }
        }
    }
}

/// The ranges of the whole TLS records at the front of `wire`, as their headers give them.
#[must_use]
pub fn record_ranges(wire: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    while let Some([_, _, _, high, low]) = wire.get(start..start + 5) {
        let end = start + 5 + usize::from(u16::from_be_bytes([*high, *low]));
        if end > wire.len() {
            break;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::Fault;

    #[test]
    fn changes_only_the_named_place() {
        let wire = [&[23, 3, 3, 0, 2, 10, 11][..], &[23, 3, 3, 0, 1, 20], &[23, 3, 3, 0, 0]].concat();
        let after = |fault: Fault| {
            let mut wire = wire.clone();
            fault.apply(&mut wire);
            wire
        };
        assert_eq!(after(Fault::Flip { at: 5, bit: 1 })[5], 8);
        assert_eq!(after(Fault::Truncate(8)), wire[..8]);
        assert_eq!(after(Fault::Drop(1)), [&wire[..7], &wire[13..]].concat());
        assert_eq!(after(Fault::Repeat(0)), [&wire[..7], &wire[..]].concat());
        assert_eq!(after(Fault::Swap(0)), [&wire[7..13], &wire[..7], &wire[13..]].concat());
        for fault in [Fault::Flip { at: 99, bit: 0 }, Fault::Drop(3), Fault::Repeat(9), Fault::Swap(2)] {
            assert_eq!(after(fault), wire, "{fault:?}");
        }
    }
}
