/// Whether records are sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Seal,
    /// From the peer.
    Open,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Seal, Self::Open];
}

/// A class of sizes, by the bytes of a record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Up to 256 bytes.
    Small,
    /// Up to 2 KiB.
    Medium,
    /// More than 2 KiB.
    Large,
}

impl Class {
    /// All classes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// The class of a record with `len` bytes of content.
    #[must_use]
    #[inline]
    pub const fn of(len: usize) -> Self {
        match len {
            0..=256 => Self::Small,
            257..=2048 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// The class's name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "to 256 B",
            Self::Medium => "to 2 KiB",
            Self::Large => "larger",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn classes_end_at_256_bytes_and_2_kib() {
        for (len, class) in [
            (0, Class::Small),
            (256, Class::Small),
            (257, Class::Medium),
            (2048, Class::Medium),
            (2049, Class::Large),
            (usize::MAX, Class::Large),
        ] {
            assert_eq!(Class::of(len), class, "{len}");
        }
    }
}
