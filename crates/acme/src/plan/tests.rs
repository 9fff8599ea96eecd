use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Some moment.
const START: Time = Duration::from_secs(1_800_000_000);

const fn life(length: Duration) -> Life {
    Life { begin: START, end: START.saturating_add(length) }
}

#[test]
fn without_a_certificate_one_is_ordered_at_once() {
    assert_eq!(Plan::new(1).next(START), Next::Order);
}

#[test]
fn renewal_is_at_two_thirds_of_any_life() {
    for length in [10 * MINUTE, 6 * DAY, 90 * DAY] {
        let mut dues: Vec<Time> = (0..100)
            .map(|seed| {
                let mut plan = Plan::new(seed);
                plan.hold(Some(life(length)));
                plan.stop_asking();
                let due = plan.due().unwrap();
                assert_eq!(plan.next(START), Next::Wait(due));
                assert_eq!(plan.next(due), Next::Order);
                due - START
            })
            .collect();
        dues.sort_unstable();
        assert!(dues[99] <= length * 2 / 3 && dues[0] >= length * 19 / 30, "{length:?}: {dues:?}");
        // Many servers do not come at once.
        assert!(dues[99] - dues[0] > length / 60, "{length:?}: {dues:?}");
    }
}

#[test]
fn an_expired_certificate_is_due() {
    let mut plan = Plan::new(1);
    plan.hold(Some(life(DAY)));
    assert_eq!(plan.next(START + 2 * DAY), Next::Order);
}

#[test]
fn the_authority_chooses_the_time() {
    let mut plan = Plan::new(5);
    plan.hold(Some(life(90 * DAY)));
    assert_eq!(plan.next(START), Next::Ask);
    let window = Life { begin: START + 70 * DAY, end: START + 72 * DAY };
    plan.suggest(window, 6 * HOUR, START);
    let due = plan.due().unwrap();
    assert!((window.begin..=window.end).contains(&due), "{due:?}");
    assert_eq!(plan.next(START), Next::Wait(START + 6 * HOUR));
    assert_eq!(plan.next(START + 6 * HOUR), Next::Ask);
    // A lookup with this window leaves the moment as it is, and one with another window changes it.
    plan.suggest(window, HOUR, START + 6 * HOUR);
    assert_eq!(plan.due(), Some(due));
    let revoked = Life { begin: START - DAY, end: START - HOUR };
    plan.suggest(revoked, HOUR, START + 7 * HOUR);
    assert_eq!(plan.next(START + 7 * HOUR), Next::Order);
}

#[test]
fn suggestions_stay_within_reason() {
    let mut plan = Plan::new(5);
    plan.hold(Some(life(90 * DAY)));
    let usual = plan.due();
    plan.suggest(Life { begin: START + DAY, end: START + DAY }, Duration::ZERO, START);
    assert_eq!(plan.due(), usual, "an empty window");
    assert_eq!(plan.next(START), Next::Wait(START + MINUTE), "not asked again at once");
    plan.suggest(Life { begin: START + 200 * DAY, end: START + 300 * DAY }, 50 * DAY, START);
    assert_eq!(plan.due(), Some(START + 90 * DAY * 19 / 20), "after the end");
    assert_eq!(plan.next(START), Next::Wait(START + DAY), "asked at least once a day");
    plan.ask_later(START);
    assert_eq!(plan.next(START), Next::Wait(START + 6 * HOUR));
}

#[test]
fn failures_pause_longer_and_longer() {
    let attempts = |kind, time: Duration| {
        let (mut plan, mut now, mut count) = (Plan::new(9), START, 0);
        while now < START + time {
            match plan.next(now) {
                Next::Order => {
                    count += 1;
                    let pause = plan.fail(kind, now);
                    assert!(pause >= SHORTEST_PAUSE && pause <= kind.pauses().1 * 5 / 4, "{pause:?}");
                }
                Next::Wait(until) => now = until,
                Next::Ask => unreachable!("there is no certificate"),
            }
        }
        count
    };
    // The limits of Let's Encrypt are five failed validations per hour, and 300 orders in three hours.
    assert!((4..=6).contains(&attempts(FailureKind::Validation, HOUR)));
    assert!(attempts(FailureKind::RateLimit, DAY) <= 8);
    assert!((10..=20).contains(&attempts(FailureKind::Network, HOUR)));
}

#[test]
fn an_authority_says_how_long_to_wait() {
    let mut plan = Plan::new(9);
    let long = 3 * HOUR;
    assert_eq!(plan.fail_for(FailureKind::RateLimit, Some(long), START), long);
    assert_eq!(plan.next(START), Next::Wait(START + long));
    assert_eq!(plan.next(START + long), Next::Order);
    // A short one ends the long pause of its kind, and grows all the same.
    let mut plan = Plan::new(9);
    let pauses: Vec<_> =
        (0..20).map(|_| plan.fail_for(FailureKind::RateLimit, Some(Duration::from_secs(1)), START)).collect();
    assert!(pauses[0] < Duration::from_secs(7) && pauses[19] >= Duration::from_secs(600), "{pauses:?}");
    // No wait is longer than a day, for a longer one counts as a clock that was wrong.
    assert_eq!(plan.fail_for(FailureKind::RateLimit, Some(100 * DAY), START), DAY);
    assert_eq!(plan.next(START), Next::Wait(START + DAY));
}

#[test]
fn a_success_ends_the_pause() {
    let mut plan = Plan::new(9);
    for _ in 0..5 {
        let _ = plan.fail(FailureKind::Validation, START);
    }
    assert!(matches!(plan.next(START), Next::Wait(_)));
    plan.succeed();
    assert_eq!(plan.next(START), Next::Order);
    assert_eq!(plan.failures(), (0, Time::ZERO));
}

#[test]
fn an_authority_that_wants_each_renewal_at_once_gets_few_orders() {
    let (mut plan, mut now, mut orders) = (Plan::new(9), START, Vec::new());
    while now < START + 2 * DAY {
        match plan.next(now) {
            Next::Wait(until) => now = until,
            Next::Ask => plan.suggest(Life { begin: now - DAY, end: now - HOUR }, HOUR, now),
            Next::Order => {
                orders.push(now - START);
                plan.hold(Some(Life { begin: now, end: now + 90 * DAY }));
                plan.succeed();
            }
        }
    }
    // One is revoked soon after it came, and is replaced at once. Then the pauses grow.
    assert!(orders[1] == Duration::ZERO && (6..=12).contains(&orders.len()), "{orders:?}");
}

#[test]
fn a_clock_that_was_wrong_stops_no_question() {
    let mut plan = Plan::new(9);
    plan.hold(Some(life(90 * DAY)));
    plan.suggest(Life { begin: START + 60 * DAY, end: START + 61 * DAY }, 6 * HOUR, START + 30 * DAY);
    assert_eq!(plan.next(START), Next::Ask);
}

#[test]
fn a_new_process_keeps_the_pause_unless_the_clock_was_wrong() {
    let mut plan = Plan::new(9);
    let pause = plan.fail(FailureKind::Validation, START);
    let (failures, until) = plan.failures();
    let next = Plan::new(10).after(failures, until);
    assert_eq!(next.next(START), Next::Wait(START + pause));
    assert_eq!(next.next(START + pause), Next::Order);
    assert_eq!(Plan::new(10).after(7, START + 400 * DAY).next(START), Next::Order);
}

/// An authority in virtual time whose certificates live for ten minutes.
struct Authority {
    outage: core::ops::Range<Time>,
    orders: u32,
    issued: u32,
}

impl Authority {
    fn order(&mut self, now: Time) -> Result<Life, FailureKind> {
        if self.outage.contains(&now) {
            return Err(FailureKind::Network);
        }
        self.orders += 1;
        // Slow validation, rejected nonces and failed orders, in turn.
        match self.orders % 5 {
            1 => Err(FailureKind::Authority),
            3 => Err(FailureKind::Validation),
            _ => {
                self.issued += 1;
                Ok(Life { begin: now, end: now + 10 * MINUTE })
            }
        }
    }
}

#[test]
fn certificates_of_ten_minutes_for_two_hours_with_an_outage_of_one() {
    for seed in 0..50 {
        let outage = START + 30 * MINUTE..START + 90 * MINUTE;
        let mut authority = Authority { outage: outage.clone(), orders: 0, issued: 0 };
        let (mut plan, mut now, mut held) = (Plan::new(seed), START, None::<Life>);
        let mut replaced_after_the_outage = None;
        while now < START + 2 * HOUR {
            let is_valid = held.is_some_and(|held| now < held.end);
            let had_time = now >= START + MINUTE;
            let is_outage = now >= outage.start && now < outage.end + MINUTE;
            assert!(is_valid || !had_time || is_outage, "seed {seed}: no certificate at {:?}", now - START);
            match plan.next(now) {
                Next::Wait(until) => now = until.min(now + SECOND).max(now + SECOND / 10),
                Next::Ask => plan.stop_asking(),
                Next::Order => match authority.order(now) {
                    Ok(life) => {
                        if now >= outage.end && replaced_after_the_outage.is_none() {
                            replaced_after_the_outage = Some(now - outage.end);
                        }
                        held = Some(life);
                        plan.hold(held);
                        plan.succeed();
                    }
                    Err(kind) => _ = plan.fail(kind, now),
                },
            }
        }
        let replaced = replaced_after_the_outage.unwrap();
        assert!(replaced <= 80 * SECOND, "seed {seed}: {replaced:?} after the outage");
        // An hour without an outage has nine lives of two thirds of ten minutes, and each order may fail twice.
        assert!((9..=12).contains(&authority.issued), "seed {seed}: {} certificates", authority.issued);
        assert!(authority.orders <= 30, "seed {seed}: {} orders", authority.orders);
    }
}

#[test]
fn a_revoked_certificate_is_replaced_at_once_and_a_second_one_after_a_pause() {
    let mut plan = Plan::new(1);
    let held = life(DAY * 90);
    plan.hold(Some(held));
    assert_ne!(plan.next(held.begin + DAY), Next::Order);
    assert_eq!(plan.revoke(held.begin + DAY), Duration::ZERO);
    assert_eq!(plan.next(held.begin + DAY), Next::Order);
    plan.succeed();
    plan.hold(Some(held));
    let now = held.begin + DAY;
    let pause = plan.revoke(now);
    assert!(
        pause >= Duration::from_secs(15 * 60),
        "an authority that revokes all is not asked all the time: {pause:?}"
    );
    assert_eq!(plan.next(now), Next::Wait(now + pause));
    assert_eq!(plan.next(now + pause), Next::Order);
    plan.succeed();
    plan.hold(Some(held));
    plan.confirm();
    assert_eq!(plan.revoke(now), Duration::ZERO);
}
