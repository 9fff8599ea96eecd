//! The tables that indices of fields refer to (RFC 7541, section 2.3).

use std::collections::VecDeque;

/// The cost of a field beside its bytes (RFC 7541, section 4.1).
const COST: usize = 32;

/// The static table (RFC 7541, appendix A). Its indices begin with 1.
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// The first index of a name in the static table.
const fn first(name: &[u8]) -> Option<usize> {
    Some(match name {
        b":authority" => 1,
        b":method" => 2,
        b":path" => 4,
        b":scheme" => 6,
        b":status" => 8,
        b"accept-charset" => 15,
        b"accept-encoding" => 16,
        b"accept-language" => 17,
        b"accept-ranges" => 18,
        b"accept" => 19,
        b"access-control-allow-origin" => 20,
        b"age" => 21,
        b"allow" => 22,
        b"authorization" => 23,
        b"cache-control" => 24,
        b"content-disposition" => 25,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-length" => 28,
        b"content-location" => 29,
        b"content-range" => 30,
        b"content-type" => 31,
        b"cookie" => 32,
        b"date" => 33,
        b"etag" => 34,
        b"expect" => 35,
        b"expires" => 36,
        b"from" => 37,
        b"host" => 38,
        b"if-match" => 39,
        b"if-modified-since" => 40,
        b"if-none-match" => 41,
        b"if-range" => 42,
        b"if-unmodified-since" => 43,
        b"last-modified" => 44,
        b"link" => 45,
        b"location" => 46,
        b"max-forwards" => 47,
        b"proxy-authenticate" => 48,
        b"proxy-authorization" => 49,
        b"range" => 50,
        b"referer" => 51,
        b"refresh" => 52,
        b"retry-after" => 53,
        b"server" => 54,
        b"set-cookie" => 55,
        b"strict-transport-security" => 56,
        b"transfer-encoding" => 57,
        b"user-agent" => 58,
        b"vary" => 59,
        b"via" => 60,
        b"www-authenticate" => 61,
        _ => return None,
    })
}

/// The index of a field in the static table, or of its name alone. The second value says whether it is that of the field.
pub(crate) fn find(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let first = first(name)?;
    let fields = STATIC[first - 1..].iter().zip(first..);
    let same = fields.take_while(|((other, _), _)| *other == name).find(|((_, other), _)| *other == value);
    Some(same.map_or((first, false), |(_, index)| (index, true)))
}

/// A field of the dynamic table.
#[derive(Debug)]
struct Entry {
    /// The name, and the value behind it.
    bytes: Box<[u8]>,
    /// The length of the name.
    name: usize,
}

/// The tables of a decoder: the static one, and the dynamic one, which the peer fills.
#[derive(Debug)]
pub(crate) struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    /// The sum of all entries, each with [`COST`].
    size: usize,
    /// The most that `size` may be.
    most: usize,
}

impl Table {
    /// A dynamic table of `most` bytes, without entries or memory.
    pub(crate) const fn new(most: usize) -> Self {
        Self { entries: VecDeque::new(), size: 0, most }
    }

    /// Name and value of a field.
    pub(crate) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let at = index.checked_sub(1)?;
        if let Some(field) = STATIC.get(at) {
            return Some(*field);
        }
        let entry = self.entries.get(at - STATIC.len())?;
        Some(entry.bytes.split_at(entry.name))
    }

    /// Adds a field whose name and value follow each other in `field`. Older ones make room. One that is larger than the table
    /// leaves it empty.
    pub(crate) fn add(&mut self, field: &[u8], name: usize) {
        let size = field.len() + COST;
        self.shrink(self.most.saturating_sub(size));
        if size <= self.most {
            self.size += size;
            self.entries.push_front(Entry { bytes: field.into(), name });
        }
    }

    /// Its memory, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.size
    }

    /// Sets the most that the table may hold.
    pub(crate) fn resize(&mut self, most: usize) {
        self.most = most;
        self.shrink(most);
    }

    fn shrink(&mut self, most: usize) {
        while self.size > most
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.bytes.len() + COST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{STATIC, Table, find};

    #[test]
    fn all_fields_of_the_static_table_are_found() {
        for (index, (name, value)) in (1..).zip(STATIC) {
            assert_eq!(find(name, value), Some((index, true)));
            assert_eq!(Table::new(0).get(index), Some((name, value)));
            let (same, is_same) = find(name, b"another").unwrap();
            assert_eq!((STATIC[same - 1].0, is_same), (name, false));
        }
        assert_eq!((find(b"x-own", b""), Table::new(0).get(0), Table::new(0).get(62)), (None, None, None));
    }

    #[test]
    fn the_newest_comes_first_and_the_oldest_makes_room() {
        let mut table = Table::new(3 * 34);
        for one in [b"ab", b"cd", b"ef", b"gh"] {
            table.add(one, 1);
        }
        let value = |table: &Table, index| table.get(index).map(|(_, value)| value.to_vec());
        assert_eq!(value(&table, 62), Some(b"h".to_vec()));
        assert_eq!((value(&table, 64), value(&table, 65)), (Some(b"d".to_vec()), None));
        table.resize(2 * 34 + 33);
        assert_eq!((value(&table, 63), value(&table, 64)), (Some(b"f".to_vec()), None));
        table.add(&[b'x'; 3 * 34 - 32], 5);
        assert_eq!((table.get(62), table.size), (None, 0));
    }
}
