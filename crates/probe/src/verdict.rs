//! Judgements over facts: what is wrong, and what to do about it.

mod connection;
mod http;
mod judgement;
mod session;
mod staple;
mod trust;

use super::facts::Facts;
use super::slo::Slo;
use judgement::fault;
pub use judgement::{Level, Verdict};

/// All judgements over the facts, the gravest first.
pub fn judge(facts: &Facts, slos: &[Slo]) -> Vec<Verdict> {
    let mut verdicts = connection::judge(facts);
    verdicts.extend(trust::judge(facts));
    verdicts.extend(http::judge(facts));
    verdicts.extend(http::judge_http2(facts));
    verdicts.extend(session::judge(facts));
    let missed = slos.iter().filter_map(|slo| slo.check(facts));
    verdicts.extend(missed.map(|missed| fault("threshold", missed.title, missed.remedy)));
    verdicts.sort_by_key(|verdict| verdict.level);
    verdicts
}

/// Whether the endpoint did what its URL promises.
pub fn is_usable(facts: &Facts) -> bool {
    let answered = |http: &super::facts::Http| http.status.is_some_and(|status| status < 500);
    facts.http.as_ref().is_some_and(|http| if facts.websocket { http.upgraded } else { answered(http) })
}

#[cfg(test)]
mod tests;
