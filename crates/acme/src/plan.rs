//! When to order a certificate, without a clock, a network or randomness of its own.

use crate::random::Random;
use std::time::Duration;

/// A point in time, since 1970.
pub type Time = Duration;

/// The time during which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The first moment at which it is valid.
    pub begin: Time,
    /// The moment at which it expires.
    pub end: Time,
}

impl Life {
    /// The time from the begin to the end.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.end.saturating_sub(self.begin)
    }
}

/// Kinds of failures, by who has to act. A metric counts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The authority cannot be reached.
    Network,
    /// The authority answers with an error of its own, or not in time.
    Authority,
    /// The authority permits no further order for now.
    RateLimit,
    /// The authority could not validate a name: its address, a firewall, or another server at it is wrong.
    Validation,
    /// The authority does not accept the order or the account: a name, the contact or the binding is wrong.
    Rejected,
    /// The folder cannot be read or written.
    Folder,
    /// The certificate that came cannot be used.
    Certificate,
    /// The authority has revoked the certificate in use.
    Revoked,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Network,
        Self::Authority,
        Self::RateLimit,
        Self::Validation,
        Self::Rejected,
        Self::Folder,
        Self::Certificate,
        Self::Revoked,
    ];

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Authority => "authority",
            Self::RateLimit => "rate_limit",
            Self::Validation => "validation",
            Self::Rejected => "rejected",
            Self::Folder => "folder",
            Self::Certificate => "certificate",
            Self::Revoked => "revoked",
        }
    }

    /// The pause after the first failure, and the longest one.
    ///
    /// Let's Encrypt permits five failed validations per name and hour, and many more requests that never become an order.
    const fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Network | Self::Authority | Self::Folder => (Duration::from_secs(5), Duration::from_secs(10 * 60)),
            Self::Validation | Self::Rejected | Self::Certificate => {
                (Duration::from_secs(60), Duration::from_secs(6 * 60 * 60))
            }
            Self::RateLimit | Self::Revoked => (Duration::from_secs(15 * 60), Duration::from_secs(12 * 60 * 60)),
        }
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Order a certificate.
    Order,
    /// Ask the authority when it wants the certificate to be renewed (RFC 9773).
    Ask,
    /// Nothing is due before this time.
    Wait(Time),
}

/// The shortest pause between two orders, even if certificates live for seconds.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// The bounds of the time between two questions about renewal (RFC 9773, section 4.3.3).
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));

/// The time to the next question if one was not answered.
const ASK_LATER: Duration = Duration::from_secs(6 * 60 * 60);

/// The plan of one server's certificate.
///
/// ```text
///              installed                    due: suggested by the authority, or two thirds of the life
///   none ──────────────────► held ─────────────────────► ordering ── installed ──► held
///    │                        ▲ │ asks now and then          │
///    └── due at once          └─┘                            └── failed: pause, longer with each failure, then again
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    random: Random,
    held: Option<Held>,
    failures: u32,
    /// No order begins before this time.
    paused_until: Time,
    /// Certificates in a row that were revoked.
    revoked: u32,
    /// Certificates in a row that the authority wanted to be renewed at once.
    hurried: u32,
}

/// A certificate in use.
#[derive(Clone, Copy, Debug)]
struct Held {
    life: Life,
    due: Time,
    /// The window from which `due` was chosen.
    window: Option<Life>,
    /// That window was over.
    is_hurried: bool,
    /// When to ask the authority again; `None` if it has no suggestions.
    ask: Option<Time>,
}

impl Plan {
    /// A plan without a certificate. `seed` spreads the renewals of many servers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), held: None, failures: 0, paused_until: Time::ZERO, revoked: 0, hurried: 0 }
    }

    /// Goes on with the failures of an earlier process, so that one which is started again and again orders no faster.
    #[must_use]
    pub const fn after(mut self, failures: u32, paused_until: Time) -> Self {
        self.failures = failures;
        self.paused_until = paused_until;
        self
    }

    /// Plans the renewal of this certificate; `None` if there is none for the server's names.
    pub fn hold(&mut self, life: Option<Life>) {
        let Some(life) = life else {
            self.held = None;
            return;
        };
        let third = life.length() / 3;
        // Up to a thirtieth earlier: three days of ninety.
        let due = life.begin + third * 2 - self.random.up_to(life.length() / 30);
        self.held = Some(Held { life, due, window: None, is_hurried: false, ask: Some(Time::ZERO) });
    }

    /// Forgets all failures: an order has succeeded, here or in another process.
    pub const fn succeed(&mut self) {
        self.failures = 0;
        self.paused_until = Time::ZERO;
    }

    /// Takes the window in which the authority wants the renewal, and the time after which it wants to be asked again.
    ///
    /// The renewal is at a random moment in the window (RFC 9773, section 4.2), and in any case before the last twentieth of the
    /// life. A window that ends before it begins is left aside. If a window is over, the renewal is at once. If that is so for
    /// one certificate after the other, the authority is wrong, and a pause is made, longer each time.
    pub fn suggest(&mut self, window: Life, again: Duration, now: Time) {
        let moment = window.begin + self.random.up_to(window.length());
        let Self { held: Some(held), hurried, .. } = self else { return };
        held.ask = Some(now + again.clamp(ASK_AGAIN.0, ASK_AGAIN.1));
        if window.begin < window.end && held.window != Some(window) {
            held.window = Some(window);
            let latest = held.life.end.saturating_sub(held.life.length() / 20);
            let is_over = moment.min(latest) <= now;
            if !is_over {
                held.due = moment.min(latest);
                *hurried = 0;
            } else if !held.is_hurried {
                *hurried = hurried.saturating_add(1);
                held.due = (now + hurry_pause(*hurried)).min(latest);
            }
            held.is_hurried = is_over;
        }
    }

    /// An order for the next certificate is in progress, which is gone on with at once.
    pub fn hasten(&mut self, now: Time) {
        if let Some(held) = &mut self.held {
            held.due = held.due.min(now);
        }
    }

    /// The authority has no suggestions.
    pub const fn stop_asking(&mut self) {
        if let Some(held) = &mut self.held {
            held.ask = None;
        }
    }

    /// A question was not answered.
    pub fn ask_later(&mut self, now: Time) {
        if let Some(held) = &mut self.held {
            held.ask = Some(now + ASK_LATER.min(held.life.length() / 10).max(SHORTEST_PAUSE));
        }
    }

    /// An order has failed. Returns the pause before the next one.
    pub fn fail(&mut self, kind: FailureKind, now: Time) -> Duration {
        self.fail_for(kind, None, now)
    }

    /// An order has failed, and the authority may have said how long to `wait` (RFC 8555, section 6.6). Returns the pause before
    /// the next order.
    ///
    /// That wait takes the place of the kind's pause. It counts as a day at most. The pause is never shorter than after other
    /// failures of an authority, so one that always says a second is not asked each second.
    pub fn fail_for(&mut self, kind: FailureKind, wait: Option<Duration>, now: Time) -> Duration {
        let (mut first, mut longest) = if wait.is_some() { FailureKind::Authority } else { kind }.pauses();
        if let Some(Held { life, .. }) = self.held {
            // Certificates of minutes need faster attempts than those of months.
            first = first.min(life.length() / 60);
            longest = longest.min(life.length() / 12);
        }
        let doubled = 1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX);
        let pause = first.saturating_mul(doubled).clamp(SHORTEST_PAUSE, longest.max(SHORTEST_PAUSE));
        let pause = pause + self.random.up_to(pause / 4);
        let pause = pause.max(wait.unwrap_or_default().min(longest_pause()));
        self.failures = self.failures.saturating_add(1);
        self.paused_until = now + pause;
        pause
    }

    /// The authority has revoked the certificate in use: another one is due. Returns the pause before the order.
    ///
    /// There is none, unless the certificate before it was revoked as well.
    pub fn revoke(&mut self, now: Time) -> Duration {
        self.revoked = self.revoked.saturating_add(1);
        if let Some(held) = &mut self.held {
            (held.due, held.ask) = (now, None);
        }
        if self.revoked < 2 { Duration::ZERO } else { self.fail(FailureKind::Revoked, now) }
    }

    /// The authority says that the certificate in use is good.
    pub const fn confirm(&mut self) {
        self.revoked = 0;
    }

    /// The failures since the last success, and the time before which no order begins, for [`after`](Self::after).
    #[must_use]
    pub const fn failures(&self) -> (u32, Time) {
        (self.failures, self.paused_until)
    }

    /// When the certificate is to be renewed; `None` if there is none.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.held.map(|held| held.due)
    }

    /// The next step.
    pub fn next(&self, now: Time) -> Next {
        let (due, ask) = self.held.map_or((Time::ZERO, None), |held| (held.due, held.ask));
        // A clock that was wrong must not pause orders for years.
        let paused_until = if self.paused_until > now + longest_pause() { Time::ZERO } else { self.paused_until };
        if now >= due {
            return if now >= paused_until { Next::Order } else { Next::Wait(paused_until) };
        }
        match ask {
            // A question that is planned later than any was planned before the clock went back.
            Some(ask) if now >= ask || ask > now + ASK_AGAIN.1 => Next::Ask,
            Some(ask) => Next::Wait(ask.min(due)),
            None => Next::Wait(due),
        }
    }
}

/// A pause that is longer was stored by a clock that was wrong.
pub(crate) fn longest_pause() -> Duration {
    FailureKind::RateLimit.pauses().1 * 2
}

/// The pause before the renewal of this certificate of those that the authority wanted to be renewed at once.
fn hurry_pause(hurried: u32) -> Duration {
    let (first, longest) = FailureKind::RateLimit.pauses();
    let Some(doublings) = hurried.checked_sub(2) else { return Duration::ZERO };
    first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(longest)
}

#[cfg(test)]
mod tests;
