//! Kernel TLS: the kernel seals and opens the records of established connections (Documentation/networking/tls.rst).
//!
//! A driver over readiness uses it where a session gives it [keys](crate::Driver::give_keys). Software kTLS costs about what
//! sealing in user space does; network cards that do the cryptography themselves are what it is for.
//!
//! The kernel's TLS takes data that its TCP has no room for yet, and what it still has when our direction ends (shutdown(2),
//! close(2)) is lost. An alert goes last, though: it is taken only when there is room again, and what was taken before goes
//! first.

mod choice;
mod info;
mod receive;
mod support;
mod sys;
mod transmit;

pub use choice::KernelTls;
pub use support::{Support, probe};

pub(crate) use info::Info;
pub(crate) use receive::receive;
pub(crate) use transmit::Transmit;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// A socket whose records are the kernel's, as far as it is made use of here. Tests have another.
pub(crate) trait Socket {
    /// Sends the beginning of `content`, as one or several records of this type.
    fn send(&self, kind: u8, content: &[u8]) -> Result<usize, Errno>;

    /// Receives records of one type, data or a single other one: the type and the length; no type at the end.
    fn receive(&self, content: &mut [u8]) -> Result<(Option<u8>, usize), Errno>;

    /// Gives the kernel keys.
    fn set(&self, keys: &Info) -> Result<(), Errno>;

    /// Takes an error that the socket would report of every call.
    fn clear_error(&self);

    /// The number of the next record that is sealed.
    fn sequence(&self, keys: &Info) -> Option<u64>;
}

/// Has the kernel's TLS take a TCP socket over, without any keys yet (`TCP_ULP`). Done twice it does nothing.
pub(crate) fn attach(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match sys::attach(fd) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Has a socket told of as readable only where so many bytes are there, or a whole record (`SO_RCVLOWAT`, socket(7)).
pub(crate) fn tell_from(fd: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    sys::receive_from(fd, i32::try_from(bytes).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests;
