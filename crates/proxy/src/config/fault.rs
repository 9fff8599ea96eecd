use super::remedy;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// One thing that is wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, counted from 1; `None` if the whole file is meant.
    pub line: Option<usize>,
    /// The fault and its remedy.
    pub what: String,
}

/// All that is wrong in a configuration, in the order of its lines.
#[derive(Clone, PartialEq, Eq)]
pub struct Faults {
    path: PathBuf,
    faults: Vec<Fault>,
}

impl Faults {
    /// The faults.
    #[must_use]
    pub fn list(&self) -> &[Fault] {
        &self.faults
    }
}

/// One line for each fault: `taut.toml:3: …`.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for (at, Fault { line, what }) in self.faults.iter().enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            match line {
                Some(line) => write!(f, "{end}{path}:{line}: {what}")?,
                None => write!(f, "{end}{path}: {what}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Faults {}

/// Gathers the faults of one file.
#[derive(Debug)]
pub(super) struct Finder<'t> {
    path: &'t Path,
    text: &'t str,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

impl<'t> Finder<'t> {
    pub(super) const fn new(path: &'t Path, text: &'t str) -> Self {
        Self { path, text, faults: Vec::new(), warnings: Vec::new() }
    }

    /// Adds a fault at this place in the text.
    pub(super) fn add(&mut self, span: Range<usize>, what: impl Into<String>) {
        let line = Some(self.line(&span));
        self.faults.push(Fault { line, what: what.into() });
    }

    /// Adds a warning, which [`Self::finish`] logs unless there is a fault.
    pub(super) fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// The warnings to log. A fault may be their cause, so there are none beside one.
    fn due(&self) -> &[String] {
        if self.faults.is_empty() { &self.warnings } else { &[] }
    }

    /// The value, or a fault at this place.
    pub(super) fn take<T>(&mut self, span: Range<usize>, result: Result<T, String>) -> Option<T> {
        result.map_err(|what| self.add(span, what)).ok()
    }

    /// A number that is not 0.
    pub(super) fn positive<T: Copy + Default + PartialEq>(&mut self, given: Option<&Spanned<T>>) -> Option<T> {
        let given = given?;
        if *given.get_ref() == T::default() {
            self.add(given.span(), "0 is too few: write a number from 1 on, or leave the key out");
            return None;
        }
        Some(*given.get_ref())
    }

    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or(self.text.as_bytes());
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Adds what the parser says.
    pub(super) fn add_parsed(&mut self, error: &toml::de::Error) {
        let (span, what) = remedy::of(error, self.text);
        match span {
            Some(span) => self.add(span, what),
            None => self.faults.push(Fault { line: None, what }),
        }
    }

    pub(super) fn finish<T>(mut self, value: T) -> Result<T, Faults> {
        self.due().iter().for_each(|what| log::warn!("{what}"));
        if self.faults.is_empty() {
            return Ok(value);
        }
        self.faults.sort_by_key(|fault| fault.line);
        Err(Faults { path: self.path.to_owned(), faults: self.faults })
    }

    pub(super) fn fail(mut self) -> Faults {
        self.faults.sort_by_key(|fault| fault.line);
        Faults { path: self.path.to_owned(), faults: self.faults }
    }
}

/// The faults of a file that cannot be read.
pub(super) fn unreadable(path: &Path, what: String) -> Faults {
    Faults { path: path.to_owned(), faults: vec![Fault { line: None, what }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_not_due_beside_a_fault() {
        let mut finder = Finder::new(Path::new("t"), "");
        finder.warn("backend \"a\" has no route".to_owned());
        assert_eq!(finder.due().len(), 1);
        finder.add(0..0, "there is no backend \"b\"");
        assert!(finder.due().is_empty());
    }
}
