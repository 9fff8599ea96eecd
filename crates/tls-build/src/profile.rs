//! The profile, as cargo tells build scripts.

use std::env;

/// The level of optimisation for a library most of whose cryptography is assembly: `usual`, or 0 in a program that is not
/// optimised either, since compiling it then takes half of the time.
#[must_use]
pub fn opt_level(usual: u32) -> u32 {
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "0") { 0 } else { usual }
}

/// How many compilers may run at once.
#[must_use]
pub fn jobs() -> String {
    env::var("NUM_JOBS").unwrap_or_else(|_| "2".to_owned())
}
