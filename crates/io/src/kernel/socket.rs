use super::info::Info;
use rustix::io::Errno;

/// Operations on a socket whose records the kernel seals and opens. Tests implement it without a kernel.
pub(crate) trait Socket {
    /// Sends the beginning of `content`, as one or several records of this type.
    fn send(&self, kind: u8, content: &[u8]) -> Result<usize, Errno>;

    /// Receives data records, or one record of another type. Returns the type and the length; no type at the end.
    fn receive(&self, content: &mut [u8]) -> Result<(Option<u8>, usize), Errno>;

    /// Gives the kernel keys.
    fn set(&self, keys: &Info) -> Result<(), Errno>;

    /// Clears a pending error, which the socket would report to the next call.
    fn clear_error(&self);

    /// The number of the next record that is sealed.
    fn sequence(&self, keys: &Info) -> Option<u64>;
}
