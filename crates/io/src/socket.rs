//! Sockets of the kernel's stack, as every driver over it makes them: close-on-exec and non-blocking.

mod sys;

use crate::{Address, ListenOptions, Source};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tautline_buf::Buf;

/// Flags of every socket that a driver makes or accepts.
pub(crate) const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Most bytes that the kernel takes for a connection beyond those that the peer has room for (`TCP_NOTSENT_LOWAT`).
///
/// The rest stays with the driver, whose user counts it. Otherwise each peer that reads nothing has the kernel hold up to
/// 4 MiB (`net.ipv4.tcp_wmem`). A thousand of them exhaust the memory of all TCP connections of the machine
/// (`net.ipv4.tcp_mem`): the kernel then drops what others receive. Bytes on their way do not count, so that a fast
/// connection is not slowed down. With much less, bursts of answers wait in our queues, where each takes memory, and
/// messages of 1 MiB take up to twice the time.
const MOST_UNSENT: u32 = 1 << 20;

/// This bound for a connection that is accepted while [`MANY_WAIT`].
const LEAST_UNSENT: u32 = 256 << 10;

/// More connections of a driver than this have bytes that wait for their peers to read: a crowd that reads nothing may
/// be on its way. The copies into the kernel's memory, new to the caches, would take the time of all others.
const MANY_WAIT: usize = 64;

/// Most receives that follow a failed send. The kernel holds a bounded rest, as nothing more arrives on a connection
/// that cannot be sent on; the number only guards against one that can still be received on.
pub(crate) const LAST_RECEIVES: usize = 64;

/// A listening socket; dropping it closes it and removes its file.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) fd: OwnedFd,
    /// Where it listens, with a port of 0 resolved.
    pub(crate) address: Address,
    /// Others may accept from it too.
    pub(crate) is_shared: bool,
    file: Option<SocketFile>,
}

impl Listening {
    /// Leaves the file of a Unix socket to another process that has the socket too.
    pub(crate) fn leave_file(&mut self) {
        if let Some(mut file) = self.file.take() {
            // Its drop removes the file at this path.
            file.path.clear();
        }
    }
}

/// Makes a listening socket.
pub(crate) fn listen(address: &Address, options: &ListenOptions) -> io::Result<Listening> {
    match address {
        Address::Tcp(at) => listen_tcp(*at, options),
        Address::Unix(path) => listen_unix(path, options),
        Address::UnixUnnamed => Err(no_name()),
    }
}

/// Prepares a listening socket that something else has made.
pub(crate) fn listen_on(fd: OwnedFd) -> io::Result<Listening> {
    if sockopt::socket_type(&fd)? != SocketType::STREAM {
        return Err(refused("no stream socket"));
    }
    if !sockopt::socket_acceptconn(&fd)? {
        return Err(refused("not listening: with systemd, leave out `Accept=yes`, or adopt the connection"));
    }
    let address = local(fd.as_fd())?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    // Connections inherit the options. Unix sockets do not have them.
    let _ = tune(fd.as_fd());
    Ok(Listening { fd, address, is_shared: true, file: None })
}

/// Makes a socket that can be connected to `address`, over TCP from `source`.
pub(crate) fn stream(address: &Address, source: &Source) -> io::Result<OwnedFd> {
    let family = match address {
        Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Address::Unix(_) => AddressFamily::UNIX,
        Address::UnixUnnamed => return Err(no_name()),
    };
    #[cfg(test)]
    crate::faults::Call::Socket.may_fail()?;
    let fd = net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
    if matches!(address, Address::Tcp(_)) {
        tune(fd.as_fd())?;
        source.tcp.apply(&fd, family == AddressFamily::INET6)?;
        if let Some(interface) = &source.interface {
            sys::bind_to_interface(fd.as_fd(), interface).map_err(|error| of_interface(interface, &error))?;
        }
        if let Some(source) = source.address {
            sys::choose_port_at_connect(fd.as_fd())?;
            net::bind(&fd, &SocketAddr::new(source, 0))?;
        }
    }
    Ok(fd)
}

/// The error of a connection from an interface that cannot be used.
fn of_interface(name: &str, error: &io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "there is none of this name; see `ip link`",
        io::ErrorKind::PermissionDenied => "before Linux 5.7 this takes CAP_NET_RAW",
        _ => "see `ip link`",
    };
    io::Error::new(error.kind(), format!("cannot connect from the interface {name:?}: {error}; {remedy}"))
}

/// Starts to connect. [`Errno::AGAIN`] means that a Unix listener's queue is full; the attempt can be repeated.
pub(crate) fn connect(fd: impl AsFd, address: &Address) -> Result<(), Errno> {
    #[cfg(test)]
    crate::faults::Call::Connect.may_fail()?;
    let result = match address {
        Address::Tcp(to) => net::connect(fd, to),
        Address::Unix(path) => net::connect(fd, &SocketAddrUnix::new(path.as_path())?),
        Address::UnixUnnamed => Err(Errno::INVAL),
    };
    match result {
        // An interrupted connect goes on by itself, like one in progress.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        other => other,
    }
}

/// Sends until the kernel's buffer is full. A short write says that it is: more is possible once there is room.
pub(crate) fn send(fd: impl AsFd, buf: &mut Buf, flags: SendFlags) -> Result<(), Errno> {
    if buf.is_empty() {
        return Ok(());
    }
    loop {
        match send_once(fd.as_fd(), buf.filled(), SendFlags::NOSIGNAL | flags) {
            Ok(sent) => {
                buf.take(sent);
                return Ok(());
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sends what the kernel has room for.
pub(crate) fn send_some(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match send_once(fd, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Sends bytes of a file, of which the kernel takes what it has room for.
pub(crate) fn send_file(fd: BorrowedFd<'_>, file: BorrowedFd<'_>, at: &mut u64, most: u64) -> Result<u64, Errno> {
    /// The kernel sends no more at once (sendfile(2)).
    const MOST: u64 = 0x7fff_f000;
    let most = usize::try_from(most.min(MOST)).unwrap_or(0);
    // sendfile(2) has no `MSG_NOSIGNAL`, and the program that this library is part of may not ignore the signal.
    sys::without_sigpipe(|| {
        loop {
            match rustix::fs::sendfile(fd, file, Some(at), most) {
                Err(Errno::INTR) => {}
                other => return other.map(|sent| sent as u64),
            }
        }
    })
}

fn send_once(fd: BorrowedFd<'_>, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
    #[cfg(test)]
    crate::faults::strike()?;
    #[cfg(test)]
    crate::faults::Call::Send.may_fail()?;
    net::send(fd, bytes, flags)
}

/// Takes the next connection of a listening socket, with the address of its other end.
pub(crate) fn accept(fd: impl AsFd) -> Result<(OwnedFd, Address), Errno> {
    #[cfg(test)]
    crate::faults::strike()?;
    #[cfg(test)]
    crate::faults::Call::Accept.may_fail()?;
    let (fd, from) = net::acceptfrom_with(fd, FLAGS)?;
    Ok((fd, from.and_then(|any| address_of(&any)).unwrap_or(Address::UnixUnnamed)))
}

/// Prepares a connection that something else has accepted.
pub(crate) fn adopt(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd();
    if sockopt::socket_type(fd)? != SocketType::STREAM {
        return Err(refused("no stream socket"));
    }
    if sockopt::socket_acceptconn(fd)? {
        return Err(refused("listening: adopt the connections that it accepts"));
    }
    if net::getpeername(fd).is_err() {
        return Err(refused("not connected"));
    }
    rustix::io::ioctl_fionbio(fd, true)?;
    // Unix sockets do not have the options.
    let _ = tune(fd);
    Ok(())
}

/// Sets the options of every TCP socket: nothing is delayed, and the kernel holds little for a peer that does not read.
fn tune(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_tcp_nodelay(fd, true)?;
    sys::limit_unsent(fd, MOST_UNSENT)
}

/// Prepares an accepted connection. `waiting` is the number of the driver's connections that have bytes to send which the
/// kernel does not take.
pub(crate) fn accepted(fd: impl AsFd, waiting: usize) {
    if waiting > MANY_WAIT {
        // Unix sockets do not have the option, and the other bound holds without it.
        let _ = sys::limit_unsent(fd.as_fd(), LEAST_UNSENT);
    }
}

/// The error for a socket that something else has made, and that cannot be used.
fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("the socket is {why}"))
}

/// The address of this end.
pub(crate) fn local(fd: BorrowedFd<'_>) -> io::Result<Address> {
    address_of(&net::getsockname(fd)?).ok_or_else(|| refused("of no family that is known here: neither TCP nor Unix"))
}

/// Whether there was no descriptor for a call.
pub(crate) const fn lacks_descriptors(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE)
}

/// Whether a connection waits at a listening socket.
pub(crate) fn has_waiting(listening: impl AsFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(listening.as_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Whether the kernel had no memory for a call, and may have some in a moment: it does not tell when.
pub(crate) const fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::NOMEM)
}

/// Finishes our direction.
pub(crate) fn finish(fd: impl AsFd) {
    // Fails only where the connection is broken already, which other calls report.
    let _ = net::shutdown(fd, Shutdown::Write);
}

/// The address of the other end, while the kernel still knows it.
pub(crate) fn peer(fd: impl AsFd) -> Option<Address> {
    let any = net::getpeername(fd).ok()?;
    any.and_then(|any| address_of(&any)).or(Some(Address::UnixUnnamed))
}

/// Whether `errno` from `accept(2)` concerns only the connection that would have been accepted.
///
/// Linux passes errors that are already pending on the new connection (`accept(2)`, "Error handling").
pub(crate) fn concerns_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::PERM
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::TIMEDOUT
    )
}

fn listen_tcp(at: SocketAddr, options: &ListenOptions) -> io::Result<Listening> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if at.is_ipv6() {
        // One address, one family: 0.0.0.0 and [::] can be listened on side by side, whatever bindv6only says.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    // Linux hands the options down to every accepted connection, which saves system calls for each.
    tune(fd.as_fd())?;
    options.tcp.apply(&fd, at.is_ipv6())?;
    net::bind(&fd, &at)?;
    net::listen(&fd, options.backlog)?;
    let address = address_of(&net::getsockname(&fd)?).unwrap_or(Address::Tcp(at));
    Ok(Listening { fd, address, is_shared: false, file: None })
}

fn listen_unix(path: &Path, options: &ListenOptions) -> io::Result<Listening> {
    let name = SocketAddrUnix::new(path)?;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    let mode = options.unix_mode.map(Mode::from_raw_mode);
    if let Some(mode) = mode {
        // Linux makes the file with this mode, less the bits of the process' mask.
        rustix::fs::fchmod(&fd, mode)?;
    }
    match net::bind(&fd, &name) {
        // Two programs that start at the same instant can both see the same stale file; the later one wins the path.
        Err(Errno::ADDRINUSE) if options.replace_stale && is_stale(path, &name) => {
            fs::remove_file(path)?;
            net::bind(&fd, &name)?;
        }
        Err(Errno::ADDRINUSE) if is_other_file(path) => {
            let what = "there is a file that is no socket: remove it, or choose another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        other => other?,
    }
    let file = SocketFile::new(path)?;
    if let Some(mode) = mode {
        // The bits of the mask too. Nobody can connect yet.
        rustix::fs::chmod(path, mode)?;
    }
    net::listen(&fd, options.backlog)?;
    Ok(Listening { fd, address: Address::Unix(path.to_owned()), is_shared: false, file: Some(file) })
}

/// Whether `path` is a socket that nobody listens on any more.
fn is_stale(path: &Path, name: &SocketAddrUnix) -> bool {
    // connect(2) also refuses on files that are no sockets: those are not ours to remove.
    let is_socket = !is_other_file(path);
    let refused = || {
        let probe = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        net::connect(&probe, name)
    };
    is_socket && refused() == Err(Errno::CONNREFUSED)
}

/// Whether `path` is a file, and no socket.
fn is_other_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket())
}

fn address_of(any: &SocketAddrAny) -> Option<Address> {
    if let Ok(tcp) = SocketAddr::try_from(any.clone()) {
        return Some(Address::Tcp(tcp));
    }
    let unix = SocketAddrUnix::try_from(any.clone()).ok()?;
    Some(match unix.path_bytes() {
        Some(path) => Address::Unix(PathBuf::from(OsStr::from_bytes(path))),
        None => Address::UnixUnnamed,
    })
}

fn no_name() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a Unix socket without a path cannot be listened on or connected to")
}

/// The file of a Unix socket, removed on drop if it is still the same one.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let file = fs::symlink_metadata(&path)?;
        Ok(Self { path, device: file.dev(), inode: file.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|file| file.dev() == self.device && file.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::warn!("cannot remove the socket's file {}: {error}", self.path.display());
        }
    }
}
