//! Connections whose records the kernel seals or opens, or whose sends it stamps.

use super::conn::{Conn, InKernel, Phase};
use super::driver::Driver;
use super::poll::Poll;
use crate::kernel::{self, Info, Socket as _, Transmit, attach};
use crate::socket;
use crate::stamp::{self, Arrivals, Departures};
use crate::{Sink, Token};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::SendFlags;
use std::io;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Direction, TrafficKeys};

/// Sending state of the connections whose records the kernel seals, by index.
type Sealing = [Option<Box<Transmit>>];

/// Sends until the kernel has no room for more. Records that the kernel seals go without `flags`: `MSG_MORE` would
/// keep a record open.
#[inline(always)]
pub(super) fn send(
    conn: &Conn,
    token: Token,
    state: (&mut Sealing, &mut Departures),
    (buf, flags): (&mut Buf, SendFlags),
) -> io::Result<()> {
    if conn.kernel.has(InKernel::TRANSMIT | InKernel::STAMPED) {
        return send_otherwise(conn, token, state, (buf, flags));
    }
    Ok(socket::send(&conn.fd, buf, flags)?)
}

#[inline(never)]
fn send_otherwise(
    conn: &Conn,
    token: Token,
    (sealing, departures): (&mut Sealing, &mut Departures),
    (buf, flags): (&mut Buf, SendFlags),
) -> io::Result<()> {
    if conn.kernel.has(InKernel::TRANSMIT)
        && let Some(transmit) = transmit(sealing, token)
    {
        return transmit.send(&conn.fd.as_fd(), buf);
    }
    let before = buf.len();
    socket::send(&conn.fd, buf, flags)?;
    departures.add(token.index, before - buf.len());
    Ok(())
}

/// Receives as recv(2) does, or a frame if the kernel opens records.
pub(super) fn receive(conn: &mut Conn, arrivals: &mut Arrivals, buf: &mut [u8]) -> Result<usize, Errno> {
    if !conn.kernel.has(InKernel::RECEIVE) {
        return arrivals.receive(&conn.fd, buf);
    }
    if conn.kernel.has(InKernel::REFUSED) {
        // Later records stay in the kernel: only the end of the peer's direction can still be noticed.
        return if conn.behind.intersects(EventFlags::RDHUP | EventFlags::HUP) { Ok(0) } else { Err(Errno::AGAIN) };
    }
    arrivals.begin();
    let (len, opened) = kernel::receive(&conn.fd.as_fd(), buf)?;
    if conn.kernel.has(InKernel::RESTS) {
        // The next record may be shorter than the number of bytes that was waited for.
        kernel::report_from(conn.fd.as_fd(), 1)?;
        conn.kernel.remove(InKernel::RESTS);
    }
    if !opened {
        conn.kernel.add(InKernel::REFUSED);
    }
    Ok(len)
}

/// Has the socket report only new bytes if the beginning of a record lies there and nothing can be received. A
/// level-triggered [`Poll`] would otherwise report the beginning again and again.
pub(super) fn rest(conn: &mut Conn) -> Result<(), Errno> {
    if !conn.kernel.has(InKernel::RECEIVE) {
        return Ok(());
    }
    let there = ioctl_fionread(&conn.fd)?;
    if there > 0 {
        kernel::report_from(conn.fd.as_fd(), there.saturating_add(1))?;
        conn.kernel.add(InKernel::RESTS);
    }
    Ok(())
}

fn transmit(sealing: &mut Sealing, token: Token) -> Option<&mut Transmit> {
    sealing.get_mut(token.index as usize)?.as_deref_mut()
}

impl<P: Poll> Driver<P> {
    pub(super) fn take_keys(&mut self, token: Token, keys: &TrafficKeys) -> io::Result<bool> {
        let rekeys = kernel::probe()?.rekeys;
        let Some(conn) = self.slots.get_mut(token) else { return Ok(rekeys) };
        let info = Info::new(keys);
        match keys.direction {
            Direction::Transmit if conn.kernel.has(InKernel::TRANSMIT) => {
                if let Some(transmit) = transmit(&mut self.sealing, token) {
                    transmit.give(info);
                }
            }
            Direction::Transmit => {
                attach(conn.fd.as_fd())?;
                let transmit = Transmit::begin(info, &conn.fd.as_fd())?;
                let index = token.index as usize;
                if index >= self.sealing.len() {
                    self.sealing.resize_with(index + 1, || None);
                }
                self.sealing[index] = Some(Box::new(transmit));
                conn.kernel.add(InKernel::TRANSMIT);
            }
            Direction::Receive if conn.kernel.has(InKernel::RECEIVE) => {
                if let Err(errno) = conn.fd.as_fd().set(&info) {
                    let why = format!("the kernel refuses the peer's new keys: {errno}");
                    self.fail_later(token, io::Error::new(errno.kind(), why));
                }
            }
            Direction::Receive => {
                attach(conn.fd.as_fd())?;
                conn.fd.as_fd().set(&info)?;
                conn.kernel.add(InKernel::RECEIVE);
                // Bytes that are there already were reported before the kernel looked at them as records.
                conn.readable = true;
                if !conn.paused {
                    self.enqueue(token);
                }
            }
        }
        Ok(rekeys)
    }

    /// Sends stamped bytes of an open connection on which nothing is pending. Returns the number of the last byte if the
    /// kernel took all of them.
    pub(super) fn send_all_stamped(&mut self, token: Token, buf: &mut Buf) -> Option<u32> {
        let conn = self.slots.get_mut(token).filter(|_| P::EDGES)?;
        // The kernel counts bytes of records that it seals itself.
        if conn.phase != Phase::Open || !conn.pending.is_empty() || conn.kernel.has(InKernel::TRANSMIT) {
            return None;
        }
        if !conn.kernel.has(InKernel::STAMPED) {
            if !self.departures.begin(token.index, &conn.fd) {
                return None;
            }
            conn.kernel.add(InKernel::STAMPED);
        }
        self.departures.send(token.index, &conn.fd, buf)
    }

    /// Reports stamps, which the kernel announces like an error. Returns `flags` without the error, if there is no other.
    pub(super) fn report_departures(&mut self, token: Token, flags: EventFlags, sink: &mut dyn Sink) -> EventFlags {
        loop {
            let Some(conn) = self.slots.get(token).filter(|conn| conn.kernel.has(InKernel::STAMPED)) else {
                return flags;
            };
            let Some(departure) = stamp::next_departure(conn.fd.as_fd()) else {
                let mut socket = [PollFd::new(&conn.fd, PollFlags::empty())];
                let is_polled = poll(&mut socket, Some(&Timespec::default())).is_ok();
                let has_error = !is_polled || socket[0].revents().contains(PollFlags::ERR);
                return if has_error { flags } else { flags.difference(EventFlags::ERR) };
            };
            sink.departed(self, token, departure.number, departure.nanos);
        }
    }

    pub(super) fn forget_keys(&mut self, token: Token, kernel: InKernel) {
        if kernel.has(InKernel::TRANSMIT)
            && let Some(sealing) = self.sealing.get_mut(token.index as usize)
        {
            *sealing = None;
        }
    }
}
