use io_uring::cqueue;
use rustix::io::Errno;

/// A completion as the kernel tells it.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

impl Entry {
    pub(super) fn new(entry: &cqueue::Entry) -> Self {
        Self { data: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }

    pub(super) fn result(&self) -> Result<u32, Errno> {
        u32::try_from(self.result).map_err(|_| Errno::from_raw_os_error(-self.result))
    }
}
