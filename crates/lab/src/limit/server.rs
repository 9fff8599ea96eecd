use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tautline::layers::buf::Buf;
use tautline_measure::poll::{self, Poll};

/// Bytes of the receive buffer, which also bounds the bytes moved by one event.
pub(super) const BUFFER: usize = 64 * 1024;

/// Key of the listening socket; connections have their index in the table.
const LISTENER: usize = usize::MAX;

/// Longest time until a request to stop is seen.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// A connection, with the bytes that its socket did not take yet.
struct Connection {
    socket: OwnedFd,
    unsent: Vec<u8>,
}

/// Sends received bytes back on every connection, until `stop` is set.
///
/// # Errors
/// Accepting or waiting failed. An error of a connection ends only that connection.
pub fn serve(listener: TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let listener = OwnedFd::from(listener);
    poll.add(&listener, LISTENER, EventFlags::IN)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free = Vec::new();
    // Aligned as our own receive buffers are: the limit has what they have.
    let mut memory = Buf::with_capacity(BUFFER);
    let buffer = memory.reserve(BUFFER);
    while !stop.load(Ordering::Relaxed) {
        poll.wait(STOP_CHECK)?;
        for i in 0..poll.events() {
            let key = poll.key(i);
            if key == LISTENER {
                accept(&poll, &listener, &mut connections, &mut free)?;
            } else if let Some(slot) = connections.get_mut(key)
                && let Some(connection) = slot
                && echo(&poll, key, connection, buffer).is_err()
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
    while let Some(socket) = poll::accept(listener)? {
        let index = free.pop().unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        poll.add(&socket, index, EventFlags::IN)?;
        connections[index] = Some(Connection { socket, unsent: Vec::new() });
    }
    Ok(())
}

/// Receives once and sends once. Bytes that the socket does not take are kept, and nothing is read until they are sent.
fn echo(poll: &Poll, index: usize, connection: &mut Connection, buffer: &mut [u8]) -> Result<(), Errno> {
    if !connection.unsent.is_empty() {
        let sent = poll::send(&connection.socket, &connection.unsent)?;
        connection.unsent.drain(..sent);
        if connection.unsent.is_empty() {
            poll.modify(&connection.socket, index, EventFlags::IN)?;
        }
        return Ok(());
    }
    let received = match poll::receive(&connection.socket, buffer)? {
        Some(0) => return Err(Errno::PIPE),
        Some(received) => received,
        None => return Ok(()),
    };
    let sent = poll::send(&connection.socket, &buffer[..received])?;
    if sent < received {
        connection.unsent.extend_from_slice(&buffer[sent..received]);
        poll.modify(&connection.socket, index, EventFlags::OUT)?;
    }
    Ok(())
}
