/// A line of the report.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) what: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    pub(super) meaning: String,
}

/// Verdict on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    Note,
    Fix,
}

impl Verdict {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Fix => "fix",
        }
    }
}

/// Makes a line of the report.
pub(super) fn finding(
    what: &'static str,
    verdict: Verdict,
    found: impl Into<String>,
    meaning: impl Into<String>,
) -> Finding {
    Finding { what, verdict, found: found.into(), meaning: meaning.into() }
}

/// Makes a line that is good and means `good`, or that has the verdict and the meaning of `bad`.
pub(super) fn judged(
    what: &'static str,
    is_good: bool,
    found: impl Into<String>,
    good: impl Into<String>,
    bad: (Verdict, impl Into<String>),
) -> Finding {
    if is_good { finding(what, Verdict::Good, found, good) } else { finding(what, bad.0, found, bad.1) }
}
