//! Standard output and standard error as targets of lines.

use super::form::log_line;
use super::lines::Target;
use log::Level;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Standard error, which reports its own losses.
pub(super) struct Log;

/// Standard output, whose losses the log reports.
pub(super) struct Out;

impl Target for Log {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        // The lock of the library is not taken, since a thread that is stuck here would hold it for ever.
        write_all(io::stderr().as_fd(), lines)
    }

    fn report(&mut self, lost: u64, why: &str) -> bool {
        let line = log_line(Level::Warn, "taut", &format!("{lost} lines of the log were lost: {why}"));
        self.write(line.as_bytes()).is_ok()
    }
}

impl Target for Out {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        write_all(io::stdout().as_fd(), lines)
    }

    fn report(&mut self, lost: u64, why: &str) -> bool {
        log::warn!("cannot write to standard output: {why} (lines lost: {lost})");
        true
    }
}

/// Standard output of a command that goes on while its reader rests. The command gets errors, and counts lost lines itself.
pub(super) struct Results<F>(pub(super) F);

impl<F: FnMut(&io::Error) + Send + 'static> Target for Results<F> {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        write_all(io::stdout().as_fd(), lines).inspect_err(|error| (self.0)(error))
    }

    fn report(&mut self, _: u64, _: &str) -> bool {
        true
    }
}

/// Writes all bytes, also to a descriptor that another process has made non-blocking.
pub(crate) fn write_all(descriptor: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(descriptor, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&descriptor, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
