//! Rights to a topic.

use std::ops::BitOr;

/// The rights of a connection in a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

/// Their names in tokens and tables.
pub(super) const RIGHTS: [(&str, Rights); 4] = [
    ("subscribe", Rights::SUBSCRIBE),
    ("publish", Rights::PUBLISH),
    ("presence", Rights::PRESENCE),
    ("history", Rights::HISTORY),
];

impl Rights {
    pub(crate) const NONE: Self = Self(0);
    /// Get the messages from now on, and the latest of each key.
    pub(crate) const SUBSCRIBE: Self = Self(1);
    pub(crate) const PUBLISH: Self = Self(2);
    /// Be a member, and see the members.
    pub(crate) const PRESENCE: Self = Self(4);
    /// Get messages that are kept.
    pub(crate) const HISTORY: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    pub(crate) const fn has(self, right: Self) -> bool {
        self.0 & right.0 == right.0
    }

    /// The right of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        RIGHTS.into_iter().find_map(|(own, right)| (own == name).then_some(right))
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
