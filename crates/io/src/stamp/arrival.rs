/// When bytes reached this machine, as the kernel, the network card or an XDP program saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The clock of `nanos`.
    pub clock: Clock,
    /// Nanoseconds since the clock's beginning.
    pub nanos: u64,
}

/// A clock of the kernel (`clock_gettime(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_REALTIME`, for packets that the kernel stamped (`SO_TIMESTAMPNS`). It can be set.
    Realtime,
    /// `CLOCK_MONOTONIC`, for packets that an XDP program stamped (`bpf_ktime_get_ns`).
    Monotonic,
}
