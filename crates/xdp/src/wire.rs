//! The interface to the device, so that tests can run over memory.

use rustix::fd::BorrowedFd;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The interval of [checks](Wire::check) that the device is still there.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Sends and receives frames.
pub trait Wire: 'static {
    /// A received frame, lent by the device until [`give_back`](Self::give_back).
    type Frame;

    /// The next received frame.
    fn receive(&mut self) -> Option<Self::Frame>;

    /// The bytes of a frame.
    fn bytes<'f>(&self, frame: &'f Self::Frame) -> &'f [u8];

    /// Stamps the frames that are received from now on with their arrival time.
    ///
    /// # Errors
    /// The device cannot stamp frames.
    fn stamp(&mut self) -> io::Result<()>;

    /// Takes the arrival time of a stamped frame, in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// Must be called once per frame.
    fn arrival(&self, frame: &mut Self::Frame) -> Option<u64>;

    /// Returns a received frame to the device.
    fn give_back(&mut self, frame: Self::Frame);

    /// Hands the frames that were returned in this turn to the kernel.
    fn recycle(&mut self);

    /// Whether a frame can be sent.
    fn has_room(&mut self) -> bool;

    /// Sends a frame of `len` bytes that `fill` writes. Without room, `fill` writes into a discarded buffer.
    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Hands the sent frames to the device.
    fn flush(&mut self);

    /// Whether a frame waits to be received.
    fn is_readable(&mut self) -> bool;

    /// Waits until a frame or `wake` can be read, or `timeout` has passed.
    ///
    /// # Errors
    /// The device cannot be used any more.
    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()>;

    /// Checks whether the device is still there, which nothing else reports.
    ///
    /// # Errors
    /// The device is gone and will not come back.
    fn check(&self) -> io::Result<()>;

    /// Takes the frames of a local endpoint from the kernel if `ours`, else leaves them to the kernel.
    ///
    /// # Errors
    /// There are too many endpoints.
    fn claim(&mut self, local: SocketAddr, ours: bool) -> io::Result<()>;
}
