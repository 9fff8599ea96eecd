//! The state that threads share, under shuttle, a scheduler that tries thousands of interleavings of their threads.
//!
//! `cargo xtask interleavings` runs them. A failure prints a schedule, which `shuttle::replay` repeats. The code is that of
//! crates/engine, over the locks and atomics of [`sync`]. Each check also runs with a bug planted in these, and must find it.
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

#[path = "../../../crates/engine/src/admission.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod admission;
#[path = "../../../crates/engine/src/command_queue.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod command_queue;
#[path = "../../../crates/engine/src/counters.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod counters;
#[path = "../../../crates/engine/src/offload/job_queue.rs"]
mod job_queue;
#[path = "../../../crates/engine/src/memory_budget.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod memory_budget;
#[path = "../../../crates/engine/src/ticket.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod ticket;
#[path = "../../../crates/engine/src/totals.rs"]
#[allow(dead_code, reason = "the files under test need its types")]
mod totals;
#[path = "../../../crates/engine/src/waiting.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod waiting;
#[path = "../../../crates/engine/src/wanted.rs"]
#[allow(dead_code, reason = "the tests use a part of it")]
mod wanted;

use engine::{answer, command, config, content, link, remote, reply, timer};
use shuttle::{check_pct, check_random};

/// Interleavings of each test, at random and with few switches at the worst places.
const TIMES: usize = 10_000;
const SWITCHES: usize = 3;

fn everywhere(test: impl Fn() + Send + Sync + Clone + 'static) {
    check_random(test.clone(), TIMES);
    check_pct(test, TIMES, SWITCHES);
}
