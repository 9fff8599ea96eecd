use super::class::{Class, Direction};
use super::measure::{self, Table};
use super::provider::{PROVIDERS, Provider};
use crate::schedule::Suite;
use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// The choice of the AEAD's provider, for the whole process.
///
/// All providers make the same bytes and verify every tag, so the choice changes only the speed. It concerns records that
/// are opened and sealed in place, by the engine `fused` and others of that name. Handshakes, TLS 1.2 and the engine
/// `rustls` always use AWS-LC.
///
/// [`Auto`](Self::Auto) measures at most 2 ms, when the first engine is made, and takes the fastest provider for each
/// cipher suite, direction and class of sizes.
///
/// A program that must use a validated module calls `AeadChoice::AwsLc.set()` before it makes an engine. Or it is built
/// without the feature `ring`, and then contains no other provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AeadChoice {
    /// The fastest, by a measurement.
    #[default]
    Auto,
    /// AWS-LC for all records.
    AwsLc,
    /// ring for all records.
    #[cfg(feature = "ring")]
    Ring,
}

impl AeadChoice {
    /// All choices of this build.
    pub const ALL: &[Self] = &[
        Self::Auto,
        Self::AwsLc,
        #[cfg(feature = "ring")]
        Self::Ring,
    ];

    /// The choice's name in configuration: `auto`, `aws-lc`, `ring`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.provider() {
            Some(provider) => provider.name(),
            None => "auto",
        }
    }

    /// Makes this the choice of the process, for all records from now on, also of established connections.
    ///
    /// Without a call, the choice is [`Auto`](Self::Auto).
    pub fn set(self) {
        let plan = match self.provider() {
            Some(provider) => Plan::of(|_, _, _| provider),
            None => Plan::fastest(),
        };
        plan.log();
        PLAN.store(plan.0 | (self as u64) << CHOICE, Ordering::Relaxed);
    }

    /// The choice of the process.
    #[must_use]
    pub fn current() -> Self {
        let number = PLAN.load(Ordering::Relaxed) >> CHOICE & 3;
        Self::ALL.iter().copied().find(|choice| *choice as u64 == number).unwrap_or_default()
    }

    const fn provider(self) -> Option<Provider> {
        match self {
            Self::Auto => None,
            Self::AwsLc => Some(Provider::AwsLc),
            #[cfg(feature = "ring")]
            Self::Ring => Some(Provider::Ring),
        }
    }
}

impl fmt::Display for AeadChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AeadChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(choice) = Self::ALL.iter().find(|choice| choice.name() == name) {
            return Ok(*choice);
        }
        let names: Vec<_> = Self::ALL.iter().map(|choice| choice.name()).collect();
        let advice = if name == "ring" { ": build it with the feature `ring`" } else { "" };
        Err(format!("no AEAD {name:?}; this build has {}{advice}", names.join(", ")))
    }
}

/// The providers of the process; 0 before they are decided.
static PLAN: AtomicU64 = AtomicU64::new(0);

/// A provider for each suite, class and direction, two bits each.
#[derive(Clone, Copy)]
struct Plan(u64);

/// The names of a suite's providers if there are two.
const BOTH: &str = "aws-lc, ring";

/// The bit of a plan that is decided.
const DECIDED: u64 = 1 << 62;

/// The bit of a plan with other providers than AWS-LC. Without it, a record needs no look at the rest of the plan.
const OTHERS: u64 = 1 << 63;

/// The lowest bit of the choice that a plan comes from.
const CHOICE: u32 = 56;

impl Plan {
    fn of(provider: impl Fn(Suite, Class, Direction) -> Provider) -> Self {
        let mut plan = DECIDED;
        for suite in Suite::ALL {
            for class in Class::ALL {
                for direction in Direction::ALL {
                    let provider = provider(suite, class, direction);
                    plan |= (provider as u64) << place(suite, class, direction);
                    plan |= if provider == Provider::AwsLc { 0 } else { OTHERS };
                }
            }
        }
        Self(plan)
    }

    fn fastest() -> Self {
        if PROVIDERS == 1 {
            return Self::of(|_, _, _| Provider::AwsLc);
        }
        let table = measured();
        Self::of(|suite, class, direction| table.fastest(suite, class, direction))
    }

    #[inline]
    const fn provider(self, suite: Suite, class: Class, direction: Direction) -> Provider {
        match self.0 >> place(suite, class, direction) & 3 {
            #[cfg(feature = "ring")]
            1 => Provider::Ring,
            _ => Provider::AwsLc,
        }
    }

    /// The names of all providers of a suite.
    fn names(self, suite: Suite) -> &'static str {
        let every = |provider| {
            let all = Class::ALL.into_iter().flat_map(|class| Direction::ALL.map(|direction| (class, direction)));
            all.into_iter().all(|(class, direction)| self.provider(suite, class, direction) == provider)
        };
        match Provider::ALL.into_iter().find(|provider| every(*provider)) {
            Some(provider) => provider.name(),
            None => BOTH,
        }
    }

    /// One name, or those of all classes, the smallest first, for sealing and for opening.
    fn summary(self, suite: Suite) -> String {
        let by = |direction| Class::ALL.map(|class| self.provider(suite, class, direction).name()).join("/");
        match self.names(suite) {
            BOTH => format!("seals {}, opens {}", by(Direction::Seal), by(Direction::Open)),
            one => one.to_owned(),
        }
    }

    fn log(self) {
        for suite in Suite::ALL {
            log::info!("AEAD of {}: {}", suite.aead_name(), self.summary(suite));
        }
    }
}

/// The lowest bit of a provider in a plan.
#[inline]
const fn place(suite: Suite, class: Class, direction: Direction) -> u32 {
    (suite as u32 - Suite::Aes128Gcm as u32) * 12 + class as u32 * 4 + direction as u32 * 2
}

/// Decides the providers of the process, if they are not decided yet. It can take 2 ms, so engines call it at the start.
pub fn settle() {
    if PLAN.load(Ordering::Relaxed) == 0 {
        let plan = Plan::fastest();
        // A choice that was set in the meantime stays.
        if PLAN.compare_exchange(0, plan.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            plan.log();
        }
    }
}

/// The measurement of all providers, made at the first call.
pub fn measured() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(measure::run)
}

/// The provider that seals or opens records of a suite with `len` bytes of content; AWS-LC before it is decided.
#[must_use]
#[inline]
pub fn provider(suite: Suite, len: usize, direction: Direction) -> Provider {
    let plan = PLAN.load(Ordering::Relaxed);
    if plan & OTHERS == 0 {
        return Provider::AwsLc;
    }
    Plan(plan).provider(suite, Class::of(len), direction)
}

/// The provider of a suite, or those of each class and direction: `seals aws-lc/aws-lc/ring, opens aws-lc/ring/ring`.
#[must_use]
pub fn summary(suite: Suite) -> String {
    Plan(PLAN.load(Ordering::Relaxed)).summary(suite)
}

/// The names of the providers that seal and open records of a suite: `aws-lc`, `ring`, or `aws-lc, ring`.
#[must_use]
pub fn names(suite: Suite) -> &'static str {
    Plan(PLAN.load(Ordering::Relaxed)).names(suite)
}

#[cfg(test)]
mod tests;
