/// Threads that help with the work of one call.
pub trait Helpers: Sync {
    /// Calls `work` on this thread and, at the same time, on up to `others` idle threads.
    ///
    /// All calls have ended when this returns, so `work` may borrow from the caller.
    fn share(&self, others: usize, work: &(dyn Fn() + Sync));

    /// Reports that a run of records is sealed and may be sent; `None` if sealing it failed.
    ///
    /// Runs count from 0, in their order on the wire. The thread that sealed a run reports it once, before its `work`
    /// ends.
    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        let _ = (run, records);
    }
}
