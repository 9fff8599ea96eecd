//! The device: an interface with our XDP program, and a socket on each of its receive queues.

use crate::config::{Attach, Config, Copies};
use crate::frame::Mac;
use crate::netlink::{Link, Netlink};
use crate::program::{self, Endpoints, Frames};
use crate::sys::{Attached, Frame, Mode, Program, Sizes, SocketMap, Xsk};
use crate::wire::{CHECK_INTERVAL, Wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::array;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// `XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE`.
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Most receive queues that are served.
const MAX_QUEUES: u32 = 64;

/// Bytes that the kernel reserves in a chunk in front of a frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;

/// Longest time for the kernel to release a queue.
const RELEASE: Duration = Duration::from_millis(500);

/// Most frames that one busy poll takes from the device.
const BUSY_POLL_BUDGET: u16 = 64;

/// Properties of the interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceInfo {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    /// Most bytes of an IP packet.
    pub(crate) mtu: usize,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// Whether frames never leave this machine, so that checksums may be left out.
    pub(crate) is_virtual: bool,
}

/// The interface with the program and its sockets.
pub struct Port {
    /// Detached first, so that frames go to the kernel while the other fields are dropped.
    attached: Attached,
    endpoints: Endpoints,
    sockets: SocketMap,
    queues: Vec<Xsk>,
    /// The index of the queue from which the next frame is received.
    next: usize,
    /// Takes the bytes of frames that find no room.
    overflow: Vec<u8>,
    name: String,
    pub(crate) zero_copy: bool,
    pub(crate) native: bool,
}

/// A received frame, and the index of its queue.
pub struct Received {
    frame: Frame,
    queue: usize,
}

impl Port {
    /// Opens the interface of `config`.
    ///
    /// # Errors
    /// The text names the remedy.
    pub(crate) fn open(config: &Config, netlink: &mut Netlink) -> io::Result<(Self, InterfaceInfo)> {
        let (info, queues) = inspect(config, netlink)?;
        let name = &info.name;
        let loaded = Endpoints::new(config.connections.saturating_add(1024)).and_then(|endpoints| {
            let sockets = SocketMap::new(queues)?;
            Ok((endpoints, sockets))
        });
        let (endpoints, sockets) = loaded.map_err(|errno| explain_bpf(name, "cannot make a BPF map", errno))?;
        let program = load(name, &endpoints, &sockets, Frames::Plain)?;
        let (attached, native) = attach(config, &info, &program)?;
        let chunk = if info.mtu + 18 <= (2048 - HEADROOM) as usize { 2048 } else { 4096 };
        let sizes =
            Sizes { chunk, chunks: config.frames.next_power_of_two(), ring: config.frames.next_power_of_two() / 4 };
        let mut made = Vec::new();
        for queue in 0..queues {
            let socket = match retry_while_busy(|| bind(config, &info, queue, sizes)) {
                Ok(socket) => socket,
                // The kernel reports the most queues that there could be. Binding to unused ones fails.
                Err((Errno::INVAL, _)) if queue > 0 => break,
                Err((_, error)) => return Err(error),
            };
            let set = sockets.set(queue, socket.as_fd());
            set.map_err(|errno| explain_bpf(name, "cannot hand frames to the socket", errno))?;
            if let Some(time) = config.busy_poll
                && let Err(errno) = socket.busy_poll(time, BUSY_POLL_BUDGET)
            {
                log::warn!("{name}: the kernel does not busy-poll: {errno}");
            }
            made.push(socket);
        }
        let zero_copy = made.iter().all(Xsk::is_zero_copy);
        let how = if zero_copy { "without copies" } else { "copying" };
        let mode = if native { "native" } else { "generic" };
        log::info!("{name}: XDP {mode}, {how}, {} queue(s)", made.len());
        let (overflow, name) = (vec![0; chunk as usize], name.clone());
        Ok((Self { attached, endpoints, sockets, queues: made, next: 0, overflow, name, zero_copy, native }, info))
    }

    /// The error that ends the driver: the interface is gone, and with it the program and all connections.
    fn interface_gone(&self, errno: Errno) -> io::Error {
        let name = &self.name;
        with_advice(
            errno,
            format!("{name}: the interface is gone, or was set down: {errno}"),
            &format!("`ip link set {name} up`, and start again"),
        )
    }

    /// Number of frames that the kernel dropped: they were too long, no frame was free, or the ring was full.
    pub(crate) fn dropped(&self) -> u64 {
        let of = |queue: &Xsk| {
            let counted = queue.statistics().ok()?;
            Some(counted.rx_dropped + counted.rx_ring_full.unwrap_or(0))
        };
        self.queues.iter().filter_map(of).sum()
    }
}

fn load(name: &str, endpoints: &Endpoints, sockets: &SocketMap, frames: Frames) -> io::Result<Program> {
    program::load(endpoints, sockets, frames).map_err(|(errno, log)| {
        let log = if log.is_empty() { String::new() } else { format!("; the verifier says: {log}") };
        explain_bpf(name, &format!("cannot load the XDP program{log}"), errno)
    })
}

fn inspect(config: &Config, netlink: &mut Netlink) -> io::Result<(InterfaceInfo, u32)> {
    let name = &config.interface;
    let link = netlink.link(name).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("there is no interface {name:?} ({error}); `ip link` lists those there are"),
        )
    })?;
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: {what}")));
    let Link { index, mac: Some(mac), mtu, queues, is_up, kind } = link else {
        return wrong("it has no Ethernet address; XDP needs an Ethernet device".into());
    };
    if !is_up {
        return wrong(format!("it is down; `ip link set {name} up` first"));
    }
    if mtu + 18 > 4096 - HEADROOM {
        let most = 4096 - HEADROOM - 18;
        return wrong(format!("its MTU of {mtu} leaves no room for a frame; `ip link set {name} mtu {most}` or less"));
    }
    if queues > MAX_QUEUES {
        return wrong(format!("it has {queues} receive queues; `ethtool -L {name} combined {MAX_QUEUES}` or fewer"));
    }
    let addresses = netlink.addresses(index)?;
    if addresses.is_empty() {
        return wrong(format!("it has no address yet; `ip address add ADDRESS/BITS dev {name}`"));
    }
    let is_virtual = kind == "veth";
    let info = InterfaceInfo { name: name.clone(), index, mac, mtu: mtu as usize, addresses, is_virtual };
    Ok((info, queues))
}

/// Attaches the program to the interface: in the device's driver if possible, else in generic mode if that is allowed.
fn attach(config: &Config, info: &InterfaceInfo, program: &Program) -> io::Result<(Attached, bool)> {
    let name = &info.name;
    if config.attach != Attach::Generic {
        match retry_while_busy(|| Attached::new(program, info.index, NATIVE).map_err(|errno| (errno, errno))) {
            Ok(attached) => return Ok((attached, true)),
            Err((Errno::OPNOTSUPP, _)) if config.attach == Attach::Auto => {
                log::warn!(
                    "{name}: its driver has no XDP; generic mode is slower and loses what the sender's kernel joins: \
                     `ethtool -K {name} gro off lro off` here, and on a virtual interface `tso off gso off` at its peer"
                );
            }
            Err((errno, _)) => return Err(explain_attach(info, errno)),
        }
    }
    match retry_while_busy(|| Attached::new(program, info.index, GENERIC).map_err(|errno| (errno, errno))) {
        Ok(attached) => Ok((attached, false)),
        Err((errno, _)) => Err(explain_attach(info, errno)),
    }
}

/// Tries again for a moment while a resource is busy. The kernel releases resources of an ended process with a delay.
fn retry_while_busy<T, E>(mut attempt: impl FnMut() -> Result<T, (Errno, E)>) -> Result<T, (Errno, E)> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err((Errno::BUSY, _)) if start.elapsed() < RELEASE => std::thread::sleep(RELEASE / 50),
            result => return result,
        }
    }
}

fn bind(config: &Config, info: &InterfaceInfo, queue: u32, sizes: Sizes) -> Result<Xsk, (Errno, io::Error)> {
    let open = |mode| Xsk::new(info.index, queue, mode, sizes);
    let opened = match config.copies {
        Copies::Never => open(Mode::ZeroCopy),
        Copies::Always => open(Mode::Copy),
        Copies::Auto => open(Mode::ZeroCopy).or_else(|errno| match errno {
            Errno::OPNOTSUPP | Errno::INVAL => open(Mode::Copy),
            other => Err(other),
        }),
    };
    opened.map_err(|errno| {
        let name = &info.name;
        let advice = match errno {
            Errno::PERM | Errno::ACCESS => {
                "it takes root or CAP_NET_RAW: `setcap cap_net_raw,cap_net_admin,cap_bpf+ep`"
            }
            Errno::NOBUFS | Errno::NOMEM => {
                "the frames exceed the limit on locked memory: raise `ulimit -l`, or CAP_IPC_LOCK"
            }
            Errno::BUSY => "another AF_XDP socket has this queue; stop that program",
            Errno::OPNOTSUPP => "its driver cannot do without copies; allow them",
            Errno::AFNOSUPPORT => "this kernel is built without AF_XDP (CONFIG_XDP_SOCKETS)",
            _ => "",
        };
        (errno, with_advice(errno, format!("{name}: no AF_XDP socket on queue {queue}: {errno}"), advice))
    })
}

fn explain_bpf(name: &str, what: &str, errno: Errno) -> io::Error {
    let advice = match errno {
        Errno::PERM | Errno::ACCESS => "it takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW",
        Errno::NOSYS => "this kernel is built without bpf(2)",
        _ => "",
    };
    with_advice(errno, format!("{name}: {what}: {errno}"), advice)
}

fn explain_attach(info: &InterfaceInfo, errno: Errno) -> io::Error {
    let name = &info.name;
    let advice = match errno {
        Errno::PERM | Errno::ACCESS => "it takes root or CAP_NET_ADMIN".to_owned(),
        Errno::BUSY => format!("another XDP program is there; `ip link show {name}` names it, stop its owner"),
        Errno::RANGE | Errno::INVAL => {
            format!("its MTU of {} may be too large for its driver: `ip link set {name} mtu 1500`", info.mtu)
        }
        Errno::OPNOTSUPP => "its driver has no XDP; allow generic mode".to_owned(),
        _ => String::new(),
    };
    with_advice(errno, format!("{name}: cannot attach the XDP program: {errno}"), &advice)
}

fn with_advice(errno: Errno, what: String, advice: &str) -> io::Error {
    let text = if advice.is_empty() { what } else { format!("{what}; {advice}") };
    io::Error::new(io::Error::from(errno).kind(), text)
}

impl Wire for Port {
    type Frame = Received;

    #[inline]
    fn receive(&mut self) -> Option<Received> {
        for _ in 0..self.queues.len() {
            let queue = self.next;
            self.next = if queue + 1 == self.queues.len() { 0 } else { queue + 1 };
            if let Some(frame) = self.queues[queue].receive() {
                return Some(Received { frame, queue });
            }
        }
        None
    }

    fn bytes<'f>(&self, frame: &'f Received) -> &'f [u8] {
        frame.frame.bytes()
    }

    fn stamp(&mut self) -> io::Result<()> {
        let program = load(&self.name, &self.endpoints, &self.sockets, Frames::Stamped)?;
        let replaced = self.attached.replace(&program);
        replaced.map_err(|errno| explain_bpf(&self.name, "cannot replace the XDP program", errno))
    }

    fn arrival(&self, frame: &mut Received) -> Option<u64> {
        program::take_stamp(frame.frame.before_mut()?)
    }

    fn give_back(&mut self, frame: Received) {
        self.queues[frame.queue].give_back(frame.frame);
    }

    fn recycle(&mut self) {
        self.queues.iter_mut().for_each(Xsk::recycle);
    }

    // All frames are sent through the first queue, because one thread fills one ring.

    fn has_room(&mut self) -> bool {
        self.queues.first_mut().is_some_and(Xsk::has_room)
    }

    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let frame = self.queues.first_mut().and_then(|queue| Some((queue.allocate()?, queue)));
        if let Some((mut frame, queue)) = frame {
            let bytes = frame.bytes_mut(len);
            if bytes.len() == len {
                let result = fill(bytes);
                queue.transmit(frame);
                return result;
            }
            queue.discard(frame);
        }
        if self.overflow.len() < len {
            self.overflow.resize(len, 0);
        }
        fill(&mut self.overflow[..len])
    }

    fn flush(&mut self) {
        if let Some(queue) = self.queues.first_mut() {
            queue.flush();
        }
    }

    fn is_readable(&mut self) -> bool {
        self.queues.iter_mut().any(Xsk::is_readable)
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
        let mut fds: [_; 1 + MAX_QUEUES as usize] = array::from_fn(|_| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let unsent = self.queues.first().is_some_and(|queue| !queue.is_flushed());
        for (number, (fd, queue)) in fds[1..].iter_mut().zip(&self.queues).enumerate() {
            let out = if number == 0 && unsent { PollFlags::OUT } else { PollFlags::empty() };
            *fd = PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN | out);
        }
        let fds = &mut fds[..=self.queues.len()];
        let mut left = timeout;
        loop {
            // poll(2) does not return when the interface is removed, so the wait has slices.
            let slice = left.map_or(CHECK_INTERVAL, |left| left.min(CHECK_INTERVAL));
            let at_most =
                Timespec { tv_sec: slice.as_secs().try_into().unwrap_or(0), tv_nsec: slice.subsec_nanos().into() };
            match poll(fds, Some(&at_most)) {
                Ok(0) if slice == CHECK_INTERVAL => self.check()?,
                Ok(0) | Err(Errno::INTR) => return Ok(()),
                Ok(_) => break,
                Err(errno) => return Err(errno.into()),
            }
            left = left.map(|left| left - slice);
        }
        // An error of a socket persists, so that waiting on would spin.
        let broken = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        if fds.iter().any(broken) { Err(self.interface_gone(Errno::NODEV)) } else { Ok(()) }
    }

    fn check(&self) -> io::Result<()> {
        self.queues.iter().try_for_each(Xsk::check).map_err(|errno| self.interface_gone(errno))
    }

    fn claim(&mut self, local: SocketAddr, ours: bool) -> io::Result<()> {
        let key = program::key(local);
        let changed = if ours { self.endpoints.insert(&key) } else { self.endpoints.remove(&key) };
        changed.map_err(Into::into)
    }
}
