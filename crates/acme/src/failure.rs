use crate::plan::FailureKind;
use std::{fmt, io};

/// The reason why no certificate came.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The step that failed, with the authority's own text where it gave one, and what to do.
    pub(crate) what: String,
    /// The account is unknown to the authority, which is to be told of a new one.
    pub(crate) lost_account: bool,
    /// The consequence for the order.
    pub(crate) fate: Fate,
}

/// The consequence of a failure for an order. Authorities count orders, so that one is given up only if it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The next attempt goes on with it, until it is too old.
    Waits,
    /// A few attempts go on with it: its URL may be dead.
    Doubtful,
    /// It can never be completed.
    Over,
}

/// Most characters of an authority's text in a log line.
const LONGEST_TEXT: usize = 1000;

impl Failure {
    pub(crate) fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        let fate = match kind {
            FailureKind::Folder | FailureKind::RateLimit => Fate::Waits,
            FailureKind::Network | FailureKind::Authority => Fate::Doubtful,
            _ => Fate::Over,
        };
        Self { kind, what: what.into(), lost_account: false, fate }
    }

    /// This failure, which means this for the order.
    pub(crate) fn with_fate(self, fate: Fate) -> Self {
        Self { fate, ..self }
    }

    /// Whether the authority, which had too much to do, may have said when it wants to be asked again.
    pub(crate) const fn is_of_load(&self) -> bool {
        matches!(self.kind, FailureKind::RateLimit | FailureKind::Authority)
    }

    /// A failure at the folder.
    pub(crate) fn folder(doing: &str, error: &io::Error) -> Self {
        Self::new(FailureKind::Folder, format!("cannot {doing}: {error}"))
    }

    /// A failure of this step with the authority.
    pub(crate) fn of(step: &str, error: &instant_acme::Error) -> Self {
        use instant_acme::Error;
        match error {
            Error::Api(problem) => Self::problem(step, problem),
            Error::Timeout(_) => {
                Self::new(FailureKind::Authority, format!("{step}: the authority has not decided within five minutes"))
                    .with_fate(Fate::Waits)
            }
            Error::Json(error) => {
                let why = printable(&error.to_string());
                let what = format!(
                    "{step}: the authority's answer is not what RFC 8555 says ({why}): is the directory's URL right?"
                );
                Self::new(FailureKind::Authority, what)
            }
            Error::Crypto | Error::KeyRejected => {
                let what = format!("{step}: the key in account.json cannot be used ({error}); remove that file");
                Self::new(FailureKind::Folder, what)
            }
            Error::Other(other) => {
                Self::new(FailureKind::Network, format!("{step}: {}", printable(&other.to_string())))
            }
            other => Self::new(FailureKind::Authority, format!("{step}: {}", printable(&other.to_string()))),
        }
    }

    /// A problem that the authority reports (RFC 7807).
    pub(crate) fn problem(step: &str, problem: &instant_acme::Problem) -> Self {
        let name = problem.r#type.as_deref().unwrap_or_default();
        let kind = name.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(name);
        let status = problem.status.unwrap_or_default();
        let what = match kind {
            "rateLimited" => FailureKind::RateLimit,
            "serverInternal" | "badNonce" => FailureKind::Authority,
            _ if status == 429 => FailureKind::RateLimit,
            // A problem without a type is by something before the authority.
            _ if status >= 500 || name.is_empty() => FailureKind::Authority,
            "caa" | "connection" | "dns" | "incorrectResponse" | "tls" | "unauthorized" => FailureKind::Validation,
            _ => FailureKind::Rejected,
        };
        let text = printable(&text(problem));
        let mut failure = Self::new(what, format!("{step}: the authority says: {text}"));
        if what == FailureKind::Authority {
            failure.fate = Fate::Waits;
        }
        failure.lost_account = kind == "accountDoesNotExist";
        failure
    }
}

/// The text of a problem, with that of its parts.
fn text(problem: &instant_acme::Problem) -> String {
    let of = |detail: Option<&str>, kind: Option<&str>| match (detail, kind) {
        (Some(detail), Some(kind)) => format!("{detail} ({kind})"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => "nothing".to_owned(),
    };
    let parts: Vec<String> = problem.subproblems.iter().map(ToString::to_string).collect();
    let whole = of(problem.detail.as_deref(), problem.r#type.as_deref());
    let whole = match problem.status {
        Some(status) => format!("{whole}, status {status}"),
        None => whole,
    };
    if parts.is_empty() { whole } else { format!("{whole}: {}", parts.join("; ")) }
}

/// A text of others for the log: in one line, bounded, and without characters that command a terminal.
pub(crate) fn printable(text: &str) -> String {
    let is_harmless = |c: char| {
        !c.is_control() && !matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().take(LONGEST_TEXT).map(|c| if is_harmless(c) { c } else { '?' }).collect()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Failure {
        Failure::problem("order", &serde_json::from_str(json).unwrap())
    }

    #[test]
    fn problems_are_told_in_the_authoritys_words() {
        let said = problem(
            r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","status":400,"detail":"not for you",
                "subproblems":[{"type":"urn:ietf:params:acme:error:caa","detail":"CAA forbids","identifier":{"type":"dns","value":"a.example"}}]}"#,
        );
        assert_eq!(said.kind, FailureKind::Rejected);
        let words = ["order: the authority says: not for you", "status 400", "a.example", "CAA forbids"];
        assert!(words.iter().all(|word| said.what.contains(word)), "{said}");
    }

    #[test]
    fn kinds_follow_from_the_type() {
        for (name, status, kind) in [
            ("rateLimited", 429, FailureKind::RateLimit),
            ("connection", 400, FailureKind::Validation),
            ("unauthorized", 403, FailureKind::Validation),
            ("badNonce", 400, FailureKind::Authority),
            ("serverInternal", 500, FailureKind::Authority),
            ("somethingNew", 503, FailureKind::Authority),
            ("somethingNew", 429, FailureKind::RateLimit),
            ("invalidContact", 400, FailureKind::Rejected),
        ] {
            let json = format!(r#"{{"type":"urn:ietf:params:acme:error:{name}","status":{status},"detail":"x"}}"#);
            assert_eq!(problem(&json).kind, kind, "{name}");
        }
        let lost = problem(r#"{"type":"urn:ietf:params:acme:error:accountDoesNotExist","status":400}"#);
        assert!(lost.lost_account);
    }

    #[test]
    fn texts_of_others_stay_in_their_line() {
        let json = format!(r#"{{"type":"t","detail":"a\nERROR forged \u001b[2J{}"}}"#, "x".repeat(5000));
        let said = problem(&json).what;
        assert!(!said.contains('\n') && !said.contains('\u{1b}') && said.len() < 1100, "{said}");
    }
}
