//! The answers of an application.

use crate::rules::{Identity, grants, is_user};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a reason.
const MOST_REASON: usize = 120;
/// The time for which a user counts whose answer names none, and the longest one.
const USUAL: u64 = 24 * 3_600;
const LONGEST: u64 = 30 * 24 * 3_600;

/// The decision about a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Allowed(Allowed),
    /// The status of a request to connect, and the reason.
    Refused(u16, Box<str>),
    /// The application did not answer, or not in this form.
    Unanswered(&'static str),
}

/// The answer that allows something.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Allowed {
    /// The user of a connection, its rights and its end.
    pub(crate) identity: Option<Arc<Identity>>,
    /// Data in place of those of a message.
    pub(crate) data: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    allow: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    user: Option<String>,
    /// Seconds.
    #[serde(default)]
    expires: Option<u64>,
    #[serde(default)]
    topics: Option<BTreeMap<String, Vec<String>>>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

const FORM: Verdict = Verdict::Unanswered("the application's answer has another form (docs/hub.md)");

impl Verdict {
    /// Understands an answer at a time since 1970.
    pub(super) fn read(body: &[u8], now: Duration) -> Self {
        // An array of the members' values would do for the parser, too.
        if !body.trim_ascii_start().starts_with(b"{") {
            return FORM;
        }
        let Ok(Answer { allow, reason, status, user, expires, topics, data }) = serde_json::from_slice(body) else {
            return FORM;
        };
        if !allow {
            let status = status.unwrap_or(403);
            let reason =
                reason.filter(|reason| is_reason(reason)).unwrap_or_else(|| "the application refuses it".into());
            return if (400..600).contains(&status) { Self::Refused(status, reason.into()) } else { FORM };
        }
        let mut identity = None;
        if user.is_some() || expires.is_some() || topics.is_some() {
            let Ok(grants) = grants(&topics.unwrap_or_default()) else { return FORM };
            let seconds = expires.unwrap_or(USUAL);
            if user.as_deref().is_some_and(|user| !is_user(user)) || !(1..=LONGEST).contains(&seconds) {
                return FORM;
            }
            let expires = now.saturating_add(Duration::from_secs(seconds));
            let user = user.map(Into::into);
            identity = Some(Arc::new(Identity { user, id: None, grants, expires, issued: Some(now) }));
        }
        Self::Allowed(Allowed { identity, data: data.map(|data| data.get().into()) })
    }

    /// The reason of a refusal.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Allowed(_) => None,
            Self::Refused(_, reason) => Some(reason),
            Self::Unanswered(reason) => Some(reason),
        }
    }

    /// Its memory, in bytes, beside itself.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Allowed(Allowed { identity, data }) => {
                identity.as_ref().map_or(0, |identity| identity.memory()) + data.as_ref().map_or(0, |data| data.len())
            }
            Self::Refused(_, reason) => reason.len(),
            Self::Unanswered(_) => 0,
        }
    }
}

fn is_reason(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_REASON && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::{FORM, Verdict};
    use std::time::Duration;

    #[test]
    fn answers_of_another_form_allow_nothing() {
        let now = Duration::from_secs(1_000);
        let read = |text: &str| Verdict::read(text.as_bytes(), now);
        let bad = [
            "",
            "{}",
            "true",
            "[true]",
            r#"{"allow":1}"#,
            r#"{"allow":"true"}"#,
            r#"{"allow":true,"alow":true}"#,
            r#"{"allow":true}{}"#,
            r#"{"allow":true,"allow":true}"#,
            r#"{"allow":true,"user":""}"#,
            r#"{"allow":true,"user":"a\u0000"}"#,
            r#"{"allow":true,"expires":0}"#,
            r#"{"allow":true,"expires":2592001}"#,
            r#"{"allow":true,"topics":{"a*b":["publish"]}}"#,
            r#"{"allow":true,"topics":{"$x":["publish"]}}"#,
            r#"{"allow":true,"topics":{"a":["everything"]}}"#,
            r#"{"allow":false,"status":200}"#,
            r#"{"allow":false,"status":101}"#,
        ];
        for text in bad {
            assert_eq!(read(text), FORM, "{text}");
        }
        let many: Vec<String> = (0..65).map(|number| format!(r#""t{number}":["publish"]"#)).collect();
        assert_eq!(read(&format!(r#"{{"allow":true,"topics":{{{}}}}}"#, many.join(","))), FORM);
    }

    #[test]
    fn answers_name_a_user_data_or_a_reason() {
        let now = Duration::from_secs(1_000);
        let read = |text: &str| Verdict::read(text.as_bytes(), now);
        let Verdict::Allowed(allowed) =
            read(r#"{"allow":true,"user":"ann","expires":60,"topics":{"a:*":["publish"]}}"#)
        else {
            unreachable!("it is allowed")
        };
        let identity = allowed.identity.unwrap();
        assert_eq!((identity.user.as_deref(), identity.expires.as_secs()), (Some("ann"), 1_060));
        let Verdict::Allowed(allowed) = read(r#"{"allow":true,"data":{"n": 1}}"#) else {
            unreachable!("it is allowed")
        };
        assert_eq!((allowed.identity, allowed.data.as_deref()), (None, Some(r#"{"n": 1}"#)));
        assert_eq!(read(r#"{"allow":false,"status":402,"reason":"pay"}"#), Verdict::Refused(402, "pay".into()));
        let long = "x".repeat(121);
        for reason in ["", "a\\nb", &long] {
            let refused = read(&format!(r#"{{"allow":false,"reason":"{reason}"}}"#));
            assert_eq!(refused, Verdict::Refused(403, "the application refuses it".into()));
        }
    }
}
