//! When to fetch an OCSP response, without a clock, a network or randomness of its own.

use crate::plan::{Life, Time};
use crate::random::Random;
use std::time::Duration;

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum NextResponse {
    /// Fetch a response.
    Fetch,
    /// Nothing is due before this time.
    Wait(Time),
}

/// The shortest time between two requests, even if responses live for seconds.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of the pause after a failure. A responder serves many certificates, and most outages are short.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60 * 60));

/// The plan of the responses for one server's certificate.
///
/// ```text
///           fetched                     half of the validity
///   none ─────────────► held ────────────────────────────────► fetching ── fetched ──► held
///    │                                                            │
///    └── due at once                                              └── failed: pause, longer with each failure, then again
/// ```
///
/// A response that is held serves until its end, whatever fails.
#[derive(Clone, Debug)]
pub struct Responses {
    random: Random,
    /// When to fetch the next response; `None` if the certificate names no responder.
    due: Option<Time>,
    held: Option<Life>,
    failures: u32,
    /// No request is sent before this time.
    paused_until: Time,
}

impl Responses {
    /// A plan without a certificate. `seed` spreads the requests of many servers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), due: None, held: None, failures: 0, paused_until: Time::ZERO }
    }

    /// Plans for a new certificate, which may name a responder. Failures are forgotten.
    pub fn begin(&mut self, names_responder: bool, held: Option<Life>, now: Time) {
        (self.failures, self.paused_until) = (0, Time::ZERO);
        self.due = names_responder.then_some(Time::ZERO);
        self.held = None;
        if let Some(held) = held.filter(|_| names_responder) {
            self.hold(held, now);
        }
    }

    /// Plans the request after this response, for the same certificate.
    ///
    /// It is due at half of the validity, up to a tenth earlier. Responders may repeat an old response until shortly before its
    /// end. The next request then comes when a quarter of the rest is over.
    pub fn hold(&mut self, response: Life, now: Time) {
        let half = response.begin + response.length() / 2;
        let planned = half.saturating_sub(self.random.up_to(response.length() / 10));
        let rest = response.end.saturating_sub(now);
        let soonest = now + if planned <= now { rest / 4 } else { Duration::ZERO };
        self.due = Some(planned.max(soonest).max(now + SHORTEST_PAUSE));
        self.held = Some(response);
        (self.failures, self.paused_until) = (0, Time::ZERO);
    }

    /// A request has failed. Returns the pause before the next one.
    pub fn fail(&mut self, now: Time) -> Duration {
        let (mut first, mut longest) = PAUSES;
        if let Some(held) = self.held {
            // Responses of minutes need faster requests than those of days.
            first = first.min(held.length() / 60);
            longest = longest.min(held.length() / 12);
        }
        let doubled = 1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX);
        let pause = first.saturating_mul(doubled).clamp(SHORTEST_PAUSE, longest.max(SHORTEST_PAUSE));
        let pause = pause + self.random.up_to(pause / 4);
        self.failures = self.failures.saturating_add(1);
        self.paused_until = now + pause;
        pause
    }

    /// The certificate was revoked: nothing is fetched until there is another one.
    pub const fn stop(&mut self) {
        self.due = None;
        self.held = None;
    }

    /// The failures since the last response.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The next step.
    pub fn next(&self, now: Time) -> NextResponse {
        let Some(due) = self.due else { return NextResponse::Wait(Time::MAX) };
        // A clock that was wrong must not stop requests for years.
        let longest = PAUSES.1 * 2;
        let paused_until = if self.paused_until > now + longest { Time::ZERO } else { self.paused_until };
        let at = due.max(paused_until);
        if now >= at { NextResponse::Fetch } else { NextResponse::Wait(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Time = Time::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn life(begin: Time, length: Duration) -> Life {
        Life { begin, end: begin + length }
    }

    #[test]
    fn without_a_responder_nothing_is_fetched() {
        let mut plan = Responses::new(1);
        plan.begin(false, None, BEGIN);
        assert_eq!(plan.next(BEGIN), NextResponse::Wait(Time::MAX));
        plan.begin(true, None, BEGIN);
        assert_eq!(plan.next(BEGIN), NextResponse::Fetch);
        plan.stop();
        assert_eq!(plan.next(BEGIN + DAY), NextResponse::Wait(Time::MAX));
    }

    #[test]
    fn a_response_is_renewed_at_half_of_its_validity() {
        let mut moments = Vec::new();
        for seed in 0..200 {
            let mut plan = Responses::new(seed);
            plan.begin(true, Some(life(BEGIN, DAY * 7)), BEGIN);
            let NextResponse::Wait(at) = plan.next(BEGIN) else { panic!("it is new") };
            assert!(at <= BEGIN + DAY * 7 / 2 && at >= BEGIN + DAY * 7 / 2 - DAY * 7 / 10, "{at:?}");
            assert_eq!(plan.next(at), NextResponse::Fetch);
            moments.push(at);
        }
        moments.sort_unstable();
        moments.dedup();
        assert!(moments.len() > 150, "servers do not all ask at once");
    }

    #[test]
    fn a_repeated_response_is_asked_for_again_and_never_in_a_rush() {
        let mut plan = Responses::new(7);
        let old = life(BEGIN, DAY * 4);
        let (mut now, mut requests) = (BEGIN + DAY * 3, 0);
        while now < old.end {
            plan.hold(old, now);
            let NextResponse::Wait(at) = plan.next(now) else { panic!("not at once") };
            assert!(at >= now + SHORTEST_PAUSE);
            (now, requests) = (at, requests + 1);
        }
        assert!(requests < 60, "{requests}");
    }

    #[test]
    fn an_outage_of_days_is_met_with_pauses_that_grow() {
        let mut plan = Responses::new(3);
        plan.begin(true, Some(life(BEGIN, DAY * 7)), BEGIN);
        let (mut now, end, mut attempts) = (BEGIN, BEGIN + DAY * 9, 0);
        while now < end {
            now = match plan.next(now) {
                NextResponse::Wait(at) => at,
                NextResponse::Fetch => {
                    attempts += 1;
                    let pause = plan.fail(now);
                    assert!(pause >= PAUSES.0 && pause <= PAUSES.1 * 5 / 4, "{pause:?}");
                    now
                }
            };
        }
        assert!((100..250).contains(&attempts), "{attempts}");
        plan.hold(life(now, DAY * 7), now);
        assert_eq!(plan.failures(), 0);
    }

    #[test]
    fn responses_of_minutes_are_renewed_in_time() {
        let mut plan = Responses::new(9);
        let length = Duration::from_secs(600);
        plan.begin(true, None, BEGIN);
        let (mut now, mut end, mut fetched, mut requests) = (BEGIN, BEGIN, 0, 0);
        while now < BEGIN + DAY {
            match plan.next(now) {
                NextResponse::Wait(at) => now = at,
                NextResponse::Fetch => {
                    assert!(now <= end, "{:?} without a response", now - end);
                    requests += 1;
                    // Every third request fails.
                    if requests % 3 == 0 {
                        let _ = plan.fail(now);
                    } else {
                        (end, fetched) = (now + length, fetched + 1);
                        plan.hold(life(now, length), now);
                    }
                }
            }
        }
        assert!((280..500).contains(&fetched), "{fetched}");
    }

    #[test]
    fn a_clock_that_was_wrong_stops_nothing() {
        let mut plan = Responses::new(5);
        plan.begin(true, None, BEGIN);
        let _ = plan.fail(BEGIN + DAY * 3650);
        assert_eq!(plan.next(BEGIN), NextResponse::Fetch);
        plan.begin(true, None, BEGIN + DAY * 3650);
        assert_eq!(plan.next(BEGIN), NextResponse::Fetch);
    }
}
