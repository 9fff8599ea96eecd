//! The members of a topic, in the order of their identifiers.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use tautline::layers::engine::sized::shrink_list;

/// Members by their identifiers, with their names.
///
/// Most topics of a hub have few, and a tree would take half a kilobyte for the first one. New members of a host come last, since
/// identifiers of connections grow. In the worst case a change moves all of them ([`max_members`](crate::Config::max_members)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    sorted: Vec<Member>,
    /// Bytes of their names and identifiers.
    pub(crate) bytes: usize,
}

type Member = (Box<str>, Box<str>);

impl Members {
    pub(crate) const fn len(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Its memory, in bytes.
    pub(crate) const fn memory(&self) -> usize {
        self.sorted.capacity() * size_of::<Member>() + self.bytes
    }

    fn find(&self, id: &str) -> Result<usize, usize> {
        self.sorted.binary_search_by(|(other, _)| (**other).cmp(id))
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.find(id).is_ok()
    }

    /// Adds a member, or gives it another name.
    pub(crate) fn insert(&mut self, id: &str, name: &str) {
        self.bytes += name.len();
        match self.find(id) {
            Ok(at) => {
                self.bytes -= self.sorted[at].1.len();
                self.sorted[at].1 = name.into();
            }
            Err(at) => {
                self.bytes += id.len();
                if self.sorted.is_empty() {
                    self.sorted.reserve_exact(1);
                }
                self.sorted.insert(at, (id.into(), name.into()));
            }
        }
    }

    /// Removes a member. False if it was none.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let Ok(at) = self.find(id) else { return false };
        let (id, name) = self.sorted.remove(at);
        self.bytes -= id.len() + name.len();
        shrink_list(&mut self.sorted);
        true
    }

    /// Cuts the later half off.
    pub(crate) fn split_off_half(&mut self) -> Self {
        let sorted = self.sorted.split_off(self.sorted.len() / 2);
        let bytes = sorted.iter().map(|(id, name)| id.len() + name.len()).sum();
        self.bytes -= bytes;
        Self { sorted, bytes }
    }

    /// Adds members whose identifiers come behind all of these.
    pub(crate) fn append(&mut self, later: Self) {
        self.sorted.extend(later.sorted);
        self.bytes += later.bytes;
    }

    /// All members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sorted.iter().map(|(id, name)| (&**id, &**name))
    }

    /// Their identifiers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.sorted.iter().map(|(id, _)| &**id)
    }
}

/// As a map, like the tree that hosts of earlier versions send.
impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of members")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut sorted = Vec::<Member>::new();
                while let Some(member) = map.next_entry()? {
                    sorted.push(member);
                }
                // The last one of each identifier stays. Sorting once keeps a hostile order cheap.
                sorted.reverse();
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                sorted.dedup_by(|(one, _), (other, _)| one == other);
                let bytes = sorted.iter().map(|(id, name)| id.len() + name.len()).sum();
                Ok(Members { sorted, bytes })
            }
        }

        deserializer.deserialize_map(Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::Members;
    use std::collections::BTreeMap;

    #[test]
    fn agree_with_a_tree() {
        let (mut members, mut oracle) = (Members::default(), BTreeMap::new());
        let mut seed = 7_u64;
        for _ in 0..5_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (id, name) = (format!("m{}", (seed >> 33) % 100), format!("n{}", (seed >> 50) % 1_000));
            if !(seed >> 20).is_multiple_of(3) {
                members.insert(&id, &name);
                oracle.insert(id, name);
            } else {
                assert_eq!(members.remove(&id), oracle.remove(&id).is_some());
                assert!(!members.contains(&id));
            }
            let bytes: usize = oracle.iter().map(|(id, name)| id.len() + name.len()).sum();
            assert_eq!((members.len(), members.bytes, members.is_empty()), (oracle.len(), bytes, oracle.is_empty()));
        }
        assert!(members.iter().eq(oracle.iter().map(|(id, name)| (id.as_str(), name.as_str()))));
        let text = serde_json::to_string(&members).unwrap();
        assert_eq!(text, serde_json::to_string(&oracle).unwrap());
        assert_eq!(serde_json::from_str::<Members>(&text).unwrap().sorted, members.sorted);
    }

    #[test]
    fn a_member_that_a_host_names_twice_is_one() {
        let members: Members = serde_json::from_str(r#"{"b":"1","a":"2","b":"3"}"#).unwrap();
        assert!(members.iter().eq([("a", "2"), ("b", "3")]));
        assert_eq!(members.bytes, 4);
        assert!(serde_json::from_str::<Members>("[]").is_err());
    }
}
