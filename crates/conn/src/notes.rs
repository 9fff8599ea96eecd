//! Additions of an application to the entries of the access log.

use std::time::Duration;

/// A value that an application adds to the entry of a request in the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A text.
    Text(Box<str>),
    /// A time.
    Time(Duration),
}

impl From<&str> for Note {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Additions of an application to the entry of a request in the access log, by names.
///
/// ```
/// # mod tautline { pub use tautline_conn::notes::{Note, Notes}; }
/// use std::time::Duration;
/// use tautline::{Note, Notes};
///
/// let mut notes = Notes::default();
/// notes.set("backend", Note::from("app"));
/// notes.set("connect", Note::Time(Duration::from_millis(3)));
/// notes.set("backend", Note::from("api"));
/// let names: Vec<&str> = notes.iter().map(|(name, _)| name).collect();
/// assert_eq!((names, notes.is_empty()), (vec!["backend", "connect"], false));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes(Vec<(&'static str, Note)>);

impl Notes {
    /// Adds a value, or replaces the one of this name.
    pub fn set(&mut self, name: &'static str, note: Note) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = note,
            None => self.0.push((name, note)),
        }
    }

    /// All values with their names, in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Note)> {
        self.0.iter().map(|(name, note)| (*name, note))
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let text = |note: &Note| if let Note::Text(text) = note { text.len() } else { 0 };
        self.0.capacity() * size_of::<(&'static str, Note)>() + self.0.iter().map(|(_, note)| text(note)).sum::<usize>()
    }
}
