//! Kernel TLS: the kernel seals and opens the records of established connections (Documentation/networking/tls.rst).
//!
//! A readiness driver uses it for connections whose session gives [keys](crate::Driver::give_keys). Software kTLS costs
//! about as much as sealing in user space. It is meant for network cards that do the cryptography themselves.
//!
//! The kernel's TLS accepts data before its TCP has room for it. Data that it still holds when our direction ends
//! (shutdown(2), close(2)) is lost. A final alert prevents that: the kernel accepts it only once there is room again,
//! and sends the data before it first.

mod choice;
mod info;
mod receive;
mod socket;
mod support;
mod sys;
mod transmit;

pub use choice::KernelTls;
pub use support::{Support, probe};

pub(crate) use info::Info;
pub(crate) use receive::receive;
pub(crate) use socket::Socket;
pub(crate) use transmit::Transmit;

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Puts a TCP socket under the kernel's TLS, without any keys yet (`TCP_ULP`). A second call does nothing.
pub(crate) fn attach(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match sys::attach(fd) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Has a socket reported as readable only once `bytes` bytes or a whole record are there (`SO_RCVLOWAT`, socket(7)).
pub(crate) fn report_from(fd: BorrowedFd<'_>, bytes: u64) -> Result<(), Errno> {
    sys::set_receive_low_water(fd, i32::try_from(bytes).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests;
