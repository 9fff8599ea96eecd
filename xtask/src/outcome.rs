//! The result of a stage, or of a part of one.

use std::io;

/// The reason why a stage did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not run; the text names what is missing.
    Skipped(String),
    /// It ran and failed.
    Failed(String),
}

impl Failure {
    /// The text.
    pub(crate) fn reason(self) -> String {
        let (Self::Skipped(reason) | Self::Failed(reason)) = self;
        reason
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<&str> for Failure {
    fn from(reason: &str) -> Self {
        Self::Failed(reason.to_owned())
    }
}

/// Fails with all findings, if there are any.
pub(crate) fn none_of(findings: &[String], between: &str) -> Outcome {
    if findings.is_empty() { Ok(()) } else { Err(findings.join(between).into()) }
}

/// The result of a stage.
pub(crate) type Outcome = Result<(), Failure>;
