//! The form of a judgement.

use serde::Serialize;

/// A judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Its weight.
    pub level: Level,
    /// A name for programs, such as `certificate.expired`.
    pub id: &'static str,
    /// The finding, in a line.
    pub title: String,
    /// Steps that help.
    pub remedy: String,
}

/// The weight of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Something fails, or will.
    Fault,
    /// It works, but costs time or safety.
    Warning,
    /// Worth knowing.
    Note,
}

pub(super) fn fault(id: &'static str, title: impl Into<String>, remedy: impl Into<String>) -> Verdict {
    Verdict { level: Level::Fault, id, title: title.into(), remedy: remedy.into() }
}

pub(super) fn warning(id: &'static str, title: impl Into<String>, remedy: impl Into<String>) -> Verdict {
    Verdict { level: Level::Warning, ..fault(id, title, remedy) }
}

pub(super) fn note(id: &'static str, title: impl Into<String>, remedy: impl Into<String>) -> Verdict {
    Verdict { level: Level::Note, ..fault(id, title, remedy) }
}
