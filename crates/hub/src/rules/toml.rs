//! Tables of a TOML file. Every fault names the file, the line and the remedy.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A fault in a file of rules.
pub struct RulesError {
    file: PathBuf,
    line: Option<usize>,
    what: String,
}

impl RulesError {
    pub(super) fn of_file(file: &Path, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, what: what.into() }
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl fmt::Debug for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for RulesError {}

/// A file.
#[derive(Clone, Copy)]
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl Document<'_> {
    fn error(&self, span: Range<usize>, what: impl Into<String>) -> RulesError {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = Some(before.matches('\n').count() + 1);
        RulesError { file: self.path.to_owned(), line, what: what.into() }
    }

    /// Parses it.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'_>>, RulesError> {
        DeTable::parse(self.text).map_err(|error| {
            let message = error.message().to_owned();
            self.error(error.span().unwrap_or(0..0), message)
        })
    }
}

/// A table whose keys are known.
pub(super) struct Table<'a> {
    document: Document<'a>,
    entries: &'a DeTable<'a>,
    span: Range<usize>,
}

impl<'a> Table<'a> {
    /// # Errors
    /// If it has a key that is none of these.
    pub(super) fn new(
        document: Document<'a>,
        (entries, span): (&'a DeTable<'a>, Range<usize>),
        known: &[&str],
    ) -> Result<Self, RulesError> {
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let nearest = nearest(name, known.iter().copied());
                return Err(document.error(key.span(), format!("unknown key `{name}`; did you mean `{nearest}`?")));
            }
        }
        Ok(Self { document, entries, span })
    }

    pub(super) fn error(&self, key: &str, what: impl Into<String>) -> RulesError {
        let span = self.entries.get(key).map_or_else(|| self.span.clone(), Spanned::span);
        self.document.error(span, what)
    }

    fn wrong(&self, key: &str, wanted: &str) -> RulesError {
        self.error(key, format!("`{key}` is {wanted}"))
    }

    pub(super) fn table(&self, key: &str, known: &[&str]) -> Result<Option<Self>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        let table = value.get_ref().as_table().ok_or_else(|| self.wrong(key, &format!("a table: write [{key}]")))?;
        Self::new(self.document, (table, value.span()), known).map(Some)
    }

    pub(super) fn tables(&self, key: &str, known: &[&str], most: usize) -> Result<Vec<Self>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(key, &format!("a list of tables: write [[{key}]]"));
        let list = value.get_ref().as_array().ok_or_else(wrong)?;
        if list.len() > most {
            return Err(self.error(key, format!("more than {most} {key}s")));
        }
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let table = value.get_ref().as_table().ok_or_else(wrong)?;
            Self::new(self.document, (table, value.span()), known)
        };
        list.iter().map(table).collect()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        value.get_ref().as_str().map(Some).ok_or_else(|| self.wrong(key, "a text in quotes"))
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(key, "a list of texts: write [\"…\", \"…\"]");
        let list = value.get_ref().as_array().ok_or_else(wrong)?;
        list.iter().map(|value| value.get_ref().as_str().ok_or_else(wrong)).collect()
    }

    /// The values that a list of texts names. `what` they are, for the fault of a name that is not known.
    pub(super) fn named<T: Copy>(&self, key: &str, what: &str, known: &[(&str, T)]) -> Result<Vec<T>, RulesError> {
        let value = |name: &str| {
            let unknown = || {
                let nearest = nearest(name, known.iter().map(|(own, _)| *own));
                self.error(key, format!("unknown {what} `{name}`; did you mean `{nearest}`?"))
            };
            known.iter().find_map(|(own, value)| (*own == name).then_some(*value)).ok_or_else(unknown)
        };
        self.texts(key)?.into_iter().map(value).collect()
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        value.get_ref().as_bool().map(Some).ok_or_else(|| self.wrong(key, "true or false"))
    }

    pub(super) fn number(&self, key: &str, allowed: RangeInclusive<u32>) -> Result<Option<u32>, RulesError> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        let wrong = || self.wrong(key, &format!("a number from {} to {}", allowed.start(), allowed.end()));
        let number = value.get_ref().as_integer().and_then(|number| {
            u32::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| allowed.contains(number))
        });
        number.map(Some).ok_or_else(wrong)
    }

    /// The value of a key that has to be there.
    pub(super) fn required(&self, key: &str) -> Result<&'a str, RulesError> {
        self.text(key)?.ok_or_else(|| self.document.error(self.span.clone(), format!("`{key}` is missing here")))
    }
}

/// The name that is most like this one.
fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> &'k str {
    known.min_by_key(|known| strsim::damerau_levenshtein(name, known)).unwrap_or_default()
}
