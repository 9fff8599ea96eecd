//! One AF_XDP socket on one receive queue.

use super::option;
use super::ring::{Consumer, Producer, Ring};
use super::umem::{Frame, Umem};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::sockopt;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::rc::Rc;
use std::time::Duration;

/// Most system calls of one flush. In copy mode the kernel sends 32 frames per call.
const KICKS: u32 = 128;

/// Number of frames that prefetching runs ahead, so that it takes about as long as the work on these frames.
const AHEAD: u32 = 2;

/// The way of frames between the device and our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The device reads and writes our memory.
    ZeroCopy,
    /// The kernel copies.
    Copy,
}

/// Sizes of a socket's memory and rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a chunk: 2048 or 4096.
    pub(crate) chunk: u32,
    /// Number of chunks. Half of them are for receiving, or the number of a ring's entries if that is less.
    pub(crate) chunks: u32,
    /// Entries of each ring, a power of two.
    pub(crate) ring: u32,
}

/// A bound socket with its memory.
pub(crate) struct Xsk {
    receive: Consumer<XdpDesc>,
    fill: Producer<u64>,
    transmit: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// Closed before `umem` is unmapped, because fields are dropped in this order.
    fd: OwnedFd,
    free: Vec<Frame>,
    /// Frames that were returned and are not in the fill ring yet.
    returned: Vec<Frame>,
    umem: Rc<Umem>,
    /// Whether the transmit ring has entries that are not published.
    unflushed: bool,
}

impl Xsk {
    /// Makes a socket and binds it to a queue of an interface, with or without copies.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENOBUFS` if the memory exceeds `RLIMIT_MEMLOCK`, `EBUSY` if another socket has the
    /// queue, `EOPNOTSUPP` if the device's driver lacks zero copy.
    pub(crate) fn new(interface: u32, queue: u32, mode: Mode, sizes: Sizes) -> Result<Self> {
        // Made first, so that it is unmapped last, even after an error below.
        let (umem, free) = Umem::new(sizes.chunk, sizes.chunks)?;
        let fd = net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let registration = XdpUmemReg {
            addr: umem.address(),
            len: umem.len(),
            chunk_size: sizes.chunk,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&fd, registration)?;
        sockopt::set_xdp_umem_fill_ring_size(&fd, sizes.ring)?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, sizes.ring)?;
        sockopt::set_xdp_rx_ring_size(&fd, sizes.ring)?;
        sockopt::set_xdp_tx_ring_size(&fd, sizes.ring)?;
        let offsets = sockopt::xdp_mmap_offsets(&fd)?;
        // SAFETY: offset, size and type of descriptor are those of the socket's ring, as set and queried above.
        let receive = unsafe { Ring::map(&fd, XDP_PGOFF_RX_RING, offsets.rx, sizes.ring) }?;
        // SAFETY: likewise.
        let fill = unsafe { Ring::map(&fd, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, sizes.ring) }?;
        // SAFETY: likewise.
        let transmit = unsafe { Ring::map(&fd, XDP_PGOFF_TX_RING, offsets.tx, sizes.ring) }?;
        // SAFETY: likewise.
        let completion = unsafe { Ring::map(&fd, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, sizes.ring) }?;
        let mut xsk = Self {
            receive: Consumer(receive),
            fill: Producer(fill),
            transmit: Producer(transmit),
            completion: Consumer(completion),
            fd,
            free,
            returned: Vec::new(),
            umem,
            unflushed: false,
        };
        for _ in 0..(sizes.chunks / 2).min(sizes.ring) {
            let Some(frame) = xsk.free.pop() else { break };
            xsk.give_back(frame);
        }
        xsk.refill();
        let how = match mode {
            Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
            Mode::Copy => SocketAddrXdpFlags::XDP_COPY,
        };
        let flags = how | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        net::bind(&xsk.fd, &SocketAddrXdp::new(flags, interface, queue))?;
        Ok(xsk)
    }

    /// Whether the device reads and writes our memory, as the kernel reports.
    pub(crate) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.fd).is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Has system calls on this socket poll the device for `time` instead of waiting for its interrupt.
    ///
    /// # Errors
    /// The kernel is older than 5.11, or does not allow it.
    pub(crate) fn busy_poll(&self, time: Duration, budget: u16) -> Result<()> {
        let micros = libc::c_int::try_from(time.as_micros()).map_err(|_| Errno::INVAL)?;
        option::set(&self.fd, libc::SO_PREFER_BUSY_POLL, 1)?;
        option::set(&self.fd, libc::SO_BUSY_POLL, micros)?;
        option::set(&self.fd, libc::SO_BUSY_POLL_BUDGET, budget.into())
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// The kernel is older than 5.9.
    pub(crate) fn statistics(&self) -> Result<XdpStatistics> {
        sockopt::xdp_statistics(&self.fd)
    }

    /// The next received frame.
    #[inline]
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        while let Some(descriptor) = self.receive.pop() {
            if let Some(later) = self.receive.peek(AHEAD) {
                self.umem.prefetch(later.addr, later.len);
            }
            // SAFETY: the kernel has just given up this descriptor's chunk, which it got through the fill ring.
            if let Some(frame) = unsafe { self.umem.take_back(descriptor.addr, descriptor.len) } {
                return Some(frame);
            }
        }
        None
    }

    /// Whether a frame was received.
    pub(crate) fn is_readable(&mut self) -> bool {
        self.receive.ready()
    }

    /// Returns a frame. The kernel may receive into it again after [`recycle`](Self::recycle).
    pub(crate) fn give_back(&mut self, frame: Frame) {
        self.returned.push(frame);
    }

    /// Puts the returned frames into the fill ring, all at once.
    ///
    /// The ring's lines are in the cache of the receiving processor, and to fetch one delays later stores.
    fn refill(&mut self) {
        for mut frame in self.returned.drain(..) {
            frame.clear(0);
            if !frame.is_of(&self.umem) || !self.fill.push(frame.address()) {
                self.free.push(frame);
            }
        }
        self.fill.publish();
    }

    /// Hands the ring entries and frames that were returned to the kernel.
    pub(crate) fn recycle(&mut self) {
        self.receive.release();
        self.refill();
        if self.fill.0.needs_wakeup() {
            // An error does no harm: the flag stays set, and the next call tries again.
            let _ = net::recv(&self.fd, &mut [0_u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Takes a frame to send, if the rings have room.
    pub(crate) fn allocate(&mut self) -> Option<Frame> {
        if self.free.is_empty() {
            self.reap();
        }
        let mut frame = if self.transmit.room() == 0 { None } else { self.free.pop() }?;
        frame.clear(0);
        Some(frame)
    }

    /// Whether [`allocate`](Self::allocate) would return a frame.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reap();
        }
        !self.free.is_empty() && self.transmit.room() > 0
    }

    /// Queues a frame for the next [`flush`](Self::flush).
    pub(crate) fn transmit(&mut self, frame: Frame) {
        let descriptor = XdpDesc { addr: frame.address(), len: frame.len(), options: XdpDescOptions::empty() };
        if frame.is_of(&self.umem) && self.transmit.push(descriptor) {
            self.unflushed = true;
        } else {
            self.free.push(frame);
        }
    }

    /// Returns an allocated frame without sending it.
    pub(crate) fn discard(&mut self, frame: Frame) {
        self.free.push(frame);
    }

    /// Hands the queued frames to the kernel.
    pub(crate) fn flush(&mut self) {
        if self.unflushed {
            self.unflushed = false;
            self.transmit.publish();
        } else if self.transmit.unconsumed() == 0 {
            return;
        }
        for _ in 0..KICKS {
            if !self.transmit.0.needs_wakeup() {
                break;
            }
            match net::send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) => {}
                // The device's queue is full: TCP retransmits, and the next flush tries again. Or it is gone: see `check`.
                Err(_) => break,
            }
            self.reap();
            if self.transmit.unconsumed() == 0 {
                break;
            }
        }
    }

    /// Whether the kernel has taken all queued frames.
    pub(crate) fn is_flushed(&self) -> bool {
        self.transmit.unconsumed() == 0
    }

    /// Checks that the interface is still there.
    ///
    /// # Errors
    /// `ENXIO` if it is gone, `ENETDOWN` if it was set down.
    pub(crate) fn check(&self) -> Result<()> {
        match net::recv(&self.fd, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Err(errno @ (Errno::NXIO | Errno::NODEV | Errno::NETDOWN)) => Err(errno),
            _ => Ok(()),
        }
    }

    fn reap(&mut self) {
        while let Some(address) = self.completion.pop() {
            // SAFETY: the kernel has just given up this address's chunk, which it got through the transmit ring.
            if let Some(frame) = unsafe { self.umem.take_back(address, 0) } {
                self.free.push(frame);
            }
        }
        self.completion.release();
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
