use super::{BUFFER, Poll};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Key of the listening socket; connections have their index in the table.
const LISTENER: usize = usize::MAX;

/// How soon a request to stop is seen.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A connection, with what its socket did not take yet.
struct Connection {
    socket: OwnedFd,
    unsent: Vec<u8>,
}

/// Listens at `address` with a backlog that fits many connections at once.
///
/// # Errors
/// What `socket(2)`, `bind(2)` and `listen(2)` say.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, 4096)?;
    Ok(TcpListener::from(socket))
}

/// Sends back what arrives on every connection, until `stop` is set.
///
/// # Errors
/// Accepting or waiting failed; what happens to a connection ends that connection alone.
pub fn serve(listener: TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let listener = OwnedFd::from(listener);
    poll.add(&listener, LISTENER, EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free = Vec::new();
    let mut buffer = vec![0; BUFFER];
    while !stop.load(Ordering::Relaxed) {
        poll.wait(STOP_CHECK)?;
        for i in 0..poll.events.len() {
            let key = poll.key(i);
            if key == LISTENER {
                accept(&poll, &listener, &mut connections, &mut free)?;
            } else if let Some(slot) = connections.get_mut(key)
                && let Some(connection) = slot
                && echo(&poll, key, connection, &mut buffer).is_err()
            {
                *slot = None;
                free.push(key);
            }
        }
    }
    Ok(())
}

fn accept(
    poll: &Poll,
    listener: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
    free: &mut Vec<usize>,
) -> Result<(), Errno> {
    loop {
        let socket = match net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error),
        };
        sockopt::set_tcp_nodelay(&socket, true)?;
        let index = free.pop().unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        poll.add(&socket, index, EventFlags::IN)?;
        connections[index] = Some(Connection { socket, unsent: Vec::new() });
    }
}

/// One `recv`, one `send`. What the socket does not take is kept, and nothing more is read until it is gone.
fn echo(poll: &Poll, index: usize, connection: &mut Connection, buffer: &mut [u8]) -> Result<(), Errno> {
    if !connection.unsent.is_empty() {
        let sent = send(&connection.socket, &connection.unsent)?;
        connection.unsent.drain(..sent);
        if connection.unsent.is_empty() {
            poll.modify(&connection.socket, index, EventFlags::IN)?;
        }
        return Ok(());
    }
    let received = match net::recv(&connection.socket, &mut *buffer, RecvFlags::empty()) {
        Ok((0, _)) => return Err(Errno::PIPE),
        Ok((received, _)) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
        Err(error) => return Err(error),
    };
    let sent = send(&connection.socket, &buffer[..received])?;
    if sent < received {
        connection.unsent.extend_from_slice(&buffer[sent..received]);
        poll.modify(&connection.socket, index, EventFlags::OUT)?;
    }
    Ok(())
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    match net::send(socket, bytes, SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}
