/// Threads that take a share of one call's work.
pub trait Team {
    /// Calls `work` on this thread, and meanwhile on up to `others` threads that have time for it. Every call has ended when
    /// this returns, so `work` may borrow what the caller owns.
    fn share(&self, others: usize, work: &(dyn Fn() + Sync));
}
