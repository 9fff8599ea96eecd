/// Threads that take a share of one call's work.
pub trait Team: Sync {
    /// Calls `work` on this thread, and meanwhile on up to `others` threads that have time for it. Every call has ended when
    /// this returns, so `work` may borrow what the caller owns.
    fn share(&self, others: usize, work: &(dyn Fn() + Sync));

    /// Told by whoever has sealed it that a run of records is whole, so that it may leave; `None` where it was not sealed.
    /// Runs count from 0 and follow each other on the wire. Each is told of once, before that thread's `work` has ended.
    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        let _ = (run, records);
    }
}
