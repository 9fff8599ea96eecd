//! The unsafe part: options that no library names, and the signal of broken connections.
#![expect(unsafe_code, reason = "setsockopt(2) with options that no library names, and the mask of signals")]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// Makes a call that raises SIGPIPE at the calling thread if a connection is broken, and removes that signal.
///
/// A SIGPIPE that was pending before the call is the program's own, and stays pending.
pub(super) fn without_sigpipe<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let pipe = only_sigpipe();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets live during the call, which writes all of the second one.
    if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, before.as_mut_ptr()) } != 0 {
        return call();
    }
    let waited = sigpipe_waits();
    let result = call();
    if matches!(result, Err(Errno::PIPE)) && !waited {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time live during the call, which accepts a null pointer for details.
        unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now) };
    }
    // SAFETY: the first call has filled the set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}

fn only_sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was filled, and the signal exists.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    // SAFETY: it was filled above.
    unsafe { set.assume_init() }
}

/// Whether a SIGPIPE is pending for this thread.
fn sigpipe_waits() -> bool {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it fills the set.
    unsafe { libc::sigpending(set.as_mut_ptr()) };
    // SAFETY: it was filled above.
    unsafe { libc::sigismember(set.as_ptr(), libc::SIGPIPE) == 1 }
}

/// Has the kernel choose the port of a bound socket when the socket connects (`IP_BIND_ADDRESS_NO_PORT`).
///
/// The kernel knows the peer by then, so connections to different peers can share a port. A port that is chosen earlier
/// serves one connection.
pub(super) fn choose_port_at_connect(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Sockets of either family take the option at the level of IPv4 (ip(7)).
    let on: libc::c_int = 1;
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &on.to_ne_bytes())
}

/// Has the socket take no more bytes once this many wait to be sent (`TCP_NOTSENT_LOWAT`, tcp(7)).
pub(super) fn limit_unsent(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Has the socket send and receive through this interface alone (`SO_BINDTODEVICE`).
pub(super) fn bind_to_interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    if name.is_empty() {
        // The kernel would take it for no interface at all.
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    set(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the socket is open, and the kernel reads `len` bytes of `value`.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    /// Sends a file to a peer that has closed.
    fn send_to_nobody() -> Result<u64, Errno> {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        crate::socket::send_file(near.as_fd(), file.as_fd(), &mut 0, 1000)
    }

    /// The next test runs this in a process of its own, which does not ignore the signal, like a program in C.
    #[test]
    #[ignore = "the next test runs it, in a process of its own, since it changes what SIGPIPE does"]
    fn in_a_process_of_its_own() {
        // SAFETY: no other thread depends on the signal.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(send_to_nobody(), Err(Errno::PIPE));
        assert!(!sigpipe_waits());
        // A signal of the program's own is not taken.
        let pipe = only_sigpipe();
        // SAFETY: the set lives during the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, ptr::null_mut()) };
        assert_eq!(send_to_nobody(), Err(Errno::PIPE));
        assert!(!sigpipe_waits(), "ours is taken back under a mask, too");
        // SAFETY: the signal is blocked.
        unsafe { libc::raise(libc::SIGPIPE) };
        assert_eq!(send_to_nobody(), Err(Errno::PIPE));
        assert!(sigpipe_waits());
    }

    #[test]
    fn a_broken_connection_does_not_end_a_process_that_heeds_sigpipe() {
        let test = "socket::sys::tests::in_a_process_of_its_own";
        let run = Command::new(std::env::current_exe().unwrap()).args(["--exact", test, "--ignored"]).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{} {said}", run.status);
    }
}
