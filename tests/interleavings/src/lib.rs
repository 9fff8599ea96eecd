//! The state that threads share, under shuttle, a scheduler that tries thousands of interleavings of their threads.
//!
//! `cargo xtask interleavings` runs them. A failure prints a schedule, which `shuttle::replay` repeats. The code is that of
//! crates/engine and crates/conn, over the locks and atomics of [`sync`]. Each check also runs with a bug planted in these, and must find it.
#![forbid(unsafe_code)]
#![cfg(test)]

mod admissions;
mod budgets;
mod commands;
#[allow(dead_code, reason = "the files under test need its types, and the tests use a part of them")]
mod engine;
mod offload;
mod sync;
mod tickets;

// The modules of the engine have their places, so that its files find each other.
#[path = "."]
mod accept {
    #[path = "../../../crates/engine/src/accept/admission.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod admission;
    #[path = "../../../crates/engine/src/accept/waiting.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod waiting;
}

#[path = "."]
mod counts {
    #[path = "../../../crates/engine/src/counts/counters.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod counters;
    #[path = "../../../crates/engine/src/counts/totals.rs"]
    #[allow(dead_code, reason = "the files under test need its types")]
    pub(crate) mod totals;
}

#[path = "."]
mod http {
    pub(crate) use crate::engine::{content, late_reply, push, reply};

    #[path = "../../../crates/engine/src/http/ticket.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod ticket;
    #[path = "../../../crates/engine/src/http/wanted.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod wanted;
}

#[path = "../../../crates/engine/src/offload/job_queue.rs"]
mod job_queue;

mod link {
    pub(crate) use crate::engine::state;
}

#[path = "."]
mod memory {
    #[path = "../../../crates/engine/src/memory/budget.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod budget;
}

#[path = "../../../crates/conn/src/sized.rs"]
#[allow(dead_code, reason = "the files under test use a part of it")]
mod sized;

#[path = "."]
mod threads {
    pub(crate) use crate::engine::{command, remote};
    pub(crate) use crate::sync;

    #[path = "../../../crates/engine/src/threads/command_queue.rs"]
    #[allow(dead_code, reason = "the tests use a part of it")]
    pub(crate) mod command_queue;
}

mod turn {
    pub(crate) use crate::engine::timer;
}

use engine::{config, ids};
use shuttle::{check_pct, check_random};

/// Interleavings of each test, at random and with few switches at the worst places.
const TIMES: usize = 10_000;
const SWITCHES: usize = 3;

fn everywhere(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), TIMES);
    check_pct(test, TIMES, SWITCHES);
}
