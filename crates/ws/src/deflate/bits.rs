use tautline_buf::Buf;

/// The end of a flushed run of DEFLATE blocks, which is not sent (RFC 7692, section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];

/// Bits of the output that are no whole byte yet, lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    value: u64,
    count: u32,
}

impl Bits {
    /// Appends the `count` lowest bits of `value`, at most 16. Its other bits are 0.
    #[inline]
    pub(super) fn put(&mut self, value: u32, count: u32, out: &mut Buf) {
        if self.count >= u64::BITS - 16 {
            self.put_bytes(out);
        }
        self.add(value, count);
    }

    /// Makes room for 48 bits, which are all bits of a repetition.
    #[inline]
    pub(super) fn make_room(&mut self, out: &mut Buf) {
        if self.count >= 16 {
            self.put_bytes(out);
        }
    }

    /// Appends the `count` lowest bits of `value`, for which there is room.
    #[inline]
    pub(super) fn add(&mut self, value: u32, count: u32) {
        self.value |= u64::from(value) << self.count;
        self.count += count;
    }

    /// Moves all whole bytes to the output, so that less than 8 bits remain.
    #[inline]
    pub(super) fn put_bytes(&mut self, out: &mut Buf) {
        let whole = self.count / 8;
        // Only the whole bytes count; the others are overwritten.
        if let Some(to) = out.reserve(8).first_chunk_mut() {
            *to = self.value.to_le_bytes();
        }
        out.commit(whole as usize);
        self.value >>= 8 * whole;
        self.count %= 8;
    }

    /// Appends the header of a stored block that is not the last one, and zeros up to a whole byte.
    pub(super) fn begin_stored(&mut self, out: &mut Buf) {
        self.put(0, 3, out);
        self.put(0, self.count.wrapping_neg() % 8, out);
        self.put_bytes(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_fill_bytes_from_the_lowest_on() {
        let (mut bits, mut out) = (Bits::default(), Buf::new());
        bits.put(0b1, 1, &mut out);
        bits.put(0b10, 2, &mut out);
        bits.put(0x7fff, 15, &mut out);
        bits.put_bytes(&mut out);
        assert_eq!(out.filled(), [0b1111_1101, 0xff]);
        bits.begin_stored(&mut out);
        assert_eq!(out.filled(), [0b1111_1101, 0xff, 0b11]);
        assert_eq!(bits, Bits::default());
    }

    #[test]
    fn any_widths_make_one_stream() {
        let (mut bits, mut out, mut due) = (Bits::default(), Buf::new(), Vec::new());
        for i in 0..1000_u32 {
            let (count, value) = (i * 7 % 17, i.wrapping_mul(0x9e37_79b1) >> 7);
            bits.put(value & ((1 << count) - 1), count, &mut out);
            due.extend((0..count).map(|bit| value >> bit & 1));
        }
        due.extend([0; 16]);
        bits.put(0, 15, &mut out);
        bits.put_bytes(&mut out);
        let made = out.filled().iter().flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1)));
        assert!(made.zip(due).all(|(made, due)| made == due));
    }
}
