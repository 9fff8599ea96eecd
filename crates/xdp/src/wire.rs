//! What the driver asks of the device, so that it can be tested over memory as well.

use rustix::fd::BorrowedFd;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// How often it is [checked](Wire::check) that the device is still there.
pub(crate) const CHECK: Duration = Duration::from_secs(1);

/// Frames in and out.
pub trait Wire {
    /// A frame on loan.
    type Frame;

    /// The next received frame.
    fn receive(&mut self) -> Option<Self::Frame>;

    /// What lies in a frame.
    fn bytes<'f>(&self, frame: &'f Self::Frame) -> &'f [u8];

    /// From now on, received frames are stamped.
    ///
    /// # Errors
    /// They cannot be.
    fn stamp(&mut self) -> io::Result<()>;

    /// When a frame reached this machine, in nanoseconds of `CLOCK_MONOTONIC`, if it was stamped. To be asked once.
    fn arrival(&self, frame: &mut Self::Frame) -> Option<u64>;

    /// A received frame is done with.
    fn give_back(&mut self, frame: Self::Frame);

    /// All that was received in this turn is given back.
    fn settle(&mut self);

    /// Whether a frame can be sent.
    fn has_room(&mut self) -> bool;

    /// Sends a frame of `len` bytes that `fill` writes; where there is no room, it writes into the void.
    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Hands the device what was sent.
    fn flush(&mut self);

    /// Whether a frame waits to be received.
    fn is_readable(&mut self) -> bool;

    /// Waits until a frame or something at `wake` waits to be read, or `timeout` has passed.
    ///
    /// # Errors
    /// The device is useless from now on.
    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()>;

    /// Asks whether the device is still there: nothing else tells.
    ///
    /// # Errors
    /// It is not, and will not come back.
    fn check(&self) -> io::Result<()>;

    /// Takes the frames for a local endpoint away from the kernel (`true`), or leaves them to it.
    ///
    /// # Errors
    /// There are too many endpoints.
    fn claim(&mut self, local: SocketAddr, ours: bool) -> io::Result<()>;
}
