//! Counters, and histograms of how handshakes and connections went.
//!
//! Every part counts what it does. [`Totals`](crate::Totals) are the sums of all shards.

pub(crate) mod counters;
pub(crate) mod outcomes;
pub(crate) mod totals;
