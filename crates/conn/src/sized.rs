//! Bytes that collections take from the allocator, and their return. An application that counts its memory needs them (see
//! `ApplicationMemory`).
//!
//! ```
//! use std::collections::HashMap;
//! use tautline_conn::sized::{map_memory, shrink_map};
//!
//! let mut ages: HashMap<u32, u32> = (0..1_000).map(|id| (id, 0)).collect();
//! ages.retain(|id, _| *id < 2);
//! assert!(map_memory(&ages) >= 1_000 * 9);
//! shrink_map(&mut ages);
//! assert_eq!(map_memory(&ages), 8 * 9 + 16);
//! ```

use std::collections::HashMap;
use std::hash::Hash;

/// Bytes of a `HashMap` with `capacity` for entries of this size: a power of two of them, of which 7/8 are used, with a byte of
/// control for each.
#[must_use]
pub const fn table(capacity: usize, entry: usize) -> usize {
    let buckets = match capacity {
        0 => return 0,
        1..4 => 4,
        4..8 => 8,
        _ => (capacity.saturating_mul(8) / 7).next_power_of_two(),
    };
    buckets * (entry + 1) + 16
}

/// Bytes of a table.
#[must_use]
pub fn map_memory<K, V>(map: &HashMap<K, V>) -> usize {
    table(map.capacity(), size_of::<(K, V)>())
}

/// Bytes of a text that is shared (`Arc<str>`).
#[must_use]
pub const fn name_memory(name: &str) -> usize {
    2 * size_of::<usize>() + name.len().next_multiple_of(size_of::<usize>())
}

/// Gives memory of a table back, if at most a quarter of its room is used.
pub fn shrink_map<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.len() <= map.capacity() / 4 {
        map.shrink_to(2 * map.len());
    }
}

/// Gives memory of a list back, if less than a quarter of it is used. Returns whether it did.
pub fn shrink_list<T>(list: &mut Vec<T>) -> bool {
    let is_large = list.len() < list.capacity() / 4;
    if is_large {
        list.shrink_to(2 * list.len());
    }
    is_large
}

#[cfg(test)]
mod tests {
    use super::map_memory;
    use std::collections::HashMap;

    #[test]
    fn a_table_that_grows_doubles() {
        let mut map = HashMap::new();
        let mut sizes = vec![map_memory(&map)];
        for key in 0..100_000_u64 {
            map.insert(key, key);
            if *sizes.last().unwrap() != map_memory(&map) {
                sizes.push(map_memory(&map));
            }
        }
        // 100,000 entries take 2^17 places.
        assert_eq!((sizes[0], sizes[1], sizes[sizes.len() - 1]), (0, 4 * 17 + 16, (17 << 17) + 16));
        assert_eq!(sizes.len(), 17);
    }
}
