//! The Autobahn|Testsuite: every case of RFC 6455 and RFC 7692 against our server and our client, over ws and wss.

mod install;
mod job;
mod report;

pub(crate) use install::install;
pub(crate) use job::{client, fuzz_elsewhere, http2, in_c, proxied, proxied_some, python, server, tokio, uring};

/// The cases to run.
#[derive(Clone, Debug)]
pub(crate) enum Cases {
    /// Groups 1 to 10, and 12 and 13 with messages of up to 8 KiB.
    Usual,
    /// All.
    Full,
    /// These patterns.
    These(Vec<String>),
}

impl Cases {
    /// The patterns, divided into runs so that every core has work.
    fn runs(&self) -> Vec<(String, Vec<String>)> {
        let named = |name: &str, patterns: Vec<String>| (name.to_owned(), patterns);
        let groups = |range: &[u32]| range.iter().map(|group| format!("{group}.*")).collect::<Vec<_>>();
        let deflate = |group: u32, parts: u32| match self {
            Self::Full => vec![format!("{group}.*")],
            _ => (1..=parts).flat_map(|part| UP_TO_8_KIB.map(|size| format!("{group}.{part}.{size}"))).collect(),
        };
        if let Self::These(patterns) = self {
            return vec![named("cases", patterns.clone())];
        }
        vec![
            named("deflate-offers", deflate(13, 7)),
            named("deflate-data", deflate(12, 5)),
            named("limits", groups(&[9, 10])),
            named("base", groups(&[1, 2, 3, 4, 5, 6, 7, 8])),
        ]
    }
}

/// Last numbers of the cases of groups 12 and 13 whose messages have at most 8 KiB: whole, and in fragments of 256 B.
const UP_TO_8_KIB: [u32; 7] = [1, 2, 3, 4, 5, 6, 11];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_cases_are_the_base_and_84_of_deflate() {
        let runs = Cases::Usual.runs();
        assert_eq!(
            runs.iter().filter(|(name, _)| name.starts_with("deflate")).map(|(_, cases)| cases.len()).sum::<usize>(),
            84
        );
        assert!(runs.iter().any(|(_, cases)| cases.contains(&"9.*".to_owned())));
    }
}
