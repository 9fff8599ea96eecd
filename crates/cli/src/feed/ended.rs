//! News for the main thread.

use super::tally::Tally;
use crate::failure::Failure;

pub(super) enum Ended {
    Signal,
    Output(Failure),
    Tally(Box<Tally>),
}
