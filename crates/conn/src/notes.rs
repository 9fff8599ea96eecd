//! Additions of an application to the entries of the access log.

use std::borrow::Cow;
use std::time::Duration;
use tautline_buf::fields::{put, put_len, take, take_array, take_len, take_u64};

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
pub struct Notes(Vec<(Cow<'static, str>, Note)>);

impl Notes {
    /// Adds a value, or replaces the one of this name.
    pub fn set(&mut self, name: &'static str, note: Note) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = note,
            None => self.0.push((Cow::Borrowed(name), note)),
        }
    }

    /// All values with their names, in the order in which they were first set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Note)> {
        self.0.iter().map(|(name, note)| (&**name, note))
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
        let name = |name: &Cow<'_, str>| if let Cow::Owned(name) = name { name.len() } else { 0 };
        let texts = self.0.iter().map(|(of, note)| name(of) + text(note)).sum::<usize>();
        self.0.capacity() * size_of::<(Cow<'static, str>, Note)>() + texts
    }

    /// Appends them, for another process.
    pub fn save(&self, out: &mut Vec<u8>) {
        put_len(self.0.len(), out);
        for (name, note) in &self.0 {
            put(name.as_bytes(), out);
            match note {
                Note::Text(text) => {
                    out.push(0);
                    put(text.as_bytes(), out);
                }
                Note::Time(time) => {
                    out.push(1);
                    out.extend(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_be_bytes());
                }
            }
        }
    }

    /// Reads what [`save`](Self::save) has written.
    #[must_use]
    pub fn restore(rest: &mut &[u8]) -> Option<Self> {
        let mut notes = Vec::new();
        for _ in 0..take_len(rest)? {
            let name = String::from_utf8(take(rest)?.to_vec()).ok()?;
            let note = match take_array::<1>(rest)? {
                [0] => Note::from(str::from_utf8(take(rest)?).ok()?),
                [1] => Note::Time(Duration::from_nanos(take_u64(rest)?)),
                _ => return None,
            };
            notes.push((Cow::Owned(name), note));
        }
        Some(Self(notes))
    }
}
