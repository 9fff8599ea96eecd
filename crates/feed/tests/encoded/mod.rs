//! Messages of the schema `market`, written by hand.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

/// Bytes that grow.
#[derive(Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    /// A header of a message.
    fn header(block_length: u16, template: u16, version: u16) -> Self {
        Self::default().u16(block_length).u16(template).u16(41).u16(version)
    }

    /// Bytes as they are.
    pub(crate) fn be(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.be(&[value])
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.be(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.be(&value.to_le_bytes())
    }

    fn i64(self, value: i64) -> Self {
        self.be(&value.to_le_bytes())
    }

    fn i8(self, value: i8) -> Self {
        self.be(&value.to_le_bytes())
    }

    fn data(self, data: &[u8]) -> Self {
        self.u8(u8::try_from(data.len()).unwrap()).be(data)
    }
}

pub(crate) fn trades(count: u32) -> Vec<u8> {
    let mut bytes = Bytes::header(18, 1, 2).i64(1_764_300_000_000_001).i64(1_764_300_000_000_000).i8(-2).i8(-5);
    bytes = bytes.u16(25).u32(count);
    for index in 0..count {
        let id = i64::from(index);
        bytes = bytes.i64(id).i64(6_732_145 + id).i64(120 + id).u8(8 | u8::from(index % 2 == 1));
    }
    bytes.data(b"BTCUSDT").0
}

pub(crate) fn best_bid_ask() -> Vec<u8> {
    let bytes = Bytes::header(52, 2, 2).i64(1_764_300_000_000_001).i64(77);
    let bytes = bytes.i64(6_732_145).i8(-2).i64(120).i8(-5).i64(6_732_146).i8(-2).i64(-1).i8(0);
    bytes.data(b"BTCUSDT").0
}

pub(crate) fn depth(levels: u32) -> Vec<u8> {
    let mut bytes = Bytes::header(26, 3, 2).i64(1_764_300_000_000_001).i64(100).i64(110).i8(-2).i8(-5);
    for side in 0..2 {
        bytes = bytes.u16(16).u32(levels);
        for level in 0..i64::from(levels) {
            let away = if side == 0 { -level } else { level + 1 };
            bytes = bytes.i64(6_732_145 + away).i64(100 + level);
        }
    }
    bytes.data(b"BTCUSDT").0
}

/// An instrument as a sender with this version of the schema writes it. Version 3 has more than our schema says.
pub(crate) fn instrument(version: u16) -> Vec<u8> {
    let block_length = match version {
        0 => 53,
        1 => 57,
        2 => 65,
        _ => 70,
    };
    let mut bytes = Bytes::header(block_length, 4, version).u32(9).u8(1).i64(5).be(&u64::MAX.to_le_bytes());
    bytes = bytes.be(b"XN\0\0").u16(1).u16(2).u16(770).be(&0.25_f64.to_le_bytes());
    bytes = bytes.u8(b'H').u8(0).u16(12).i64(-3).i8(1).u8(255);
    if version >= 1 {
        bytes = bytes.u32(100);
    }
    if version >= 2 {
        bytes = bytes.i64(8);
    }
    if version >= 3 {
        bytes = bytes.be(b"?????");
    }
    let leg = |bytes: Bytes, id: u32| {
        let bytes = bytes.u32(id);
        let bytes = if version >= 1 { bytes.be(&(-1_i16).to_le_bytes()) } else { bytes };
        if version >= 3 { bytes.be(b"??") } else { bytes }
    };
    bytes = bytes.u16([4, 6, 6, 8][usize::from(version)]).u8(2);
    bytes = leg(bytes, 1).u16(9).u8(2).i64(4).i8(-4).i64(5).i8(-4).data(b"near");
    bytes = leg(bytes, 2).u16(9).u8(0).data(b"");
    if version >= 2 {
        bytes = bytes.u16(2).u8(2).u16(360).u16(366);
    }
    bytes = bytes.data(b"SPREAD");
    if version >= 2 {
        bytes = bytes.data(b"new");
    }
    if version >= 3 {
        bytes = bytes.data(b"more");
    }
    bytes.0
}
