//! Cost of connections, and the effect of a storm of them on open ones.

mod report;
mod rows;

use super::row;
use super::{Lab, Outcome, Servers};
use crate::Error;
use std::time::Duration;

/// Time for the rounds of connections, and for those of storms.
const BUDGETS: [Duration; 2] = [Duration::from_secs(270), Duration::from_secs(90)];

/// Rounds of storms for each round of connections, because a p99 needs many.
const STORM_ROUNDS: usize = 3;

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let driver = lab.drivers[0];
    let mut connects = rows::connects(driver, lab.effort);
    let mut storms = rows::storms(driver);
    let servers = Servers::start(lab, connects.iter().chain(&storms).filter_map(|row| row.subject.kind()))?;
    row::measure(lab, &mut connects, &lab.plan(BUDGETS[0]), 0.0..0.7, |lab, load, _| load.run(lab, &servers))?;
    let plan = lab.plan_times(STORM_ROUNDS, BUDGETS[1]);
    row::measure(lab, &mut storms, &plan, 0.7..1.0, |lab, load, _| load.run(lab, &servers))?;
    report::report(outcome, &connects, &storms);
    Ok(())
}
