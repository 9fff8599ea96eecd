//! smoltcp as the TCP/IP stack.
//!
//! Each connection has a set with one socket. So the cost of a packet or a poll does not grow with their number.
//!
//! smoltcp is unmodified. The driver makes up for what it lacks:
//! - Its shortest retransmission timeout is one second. So its clock, which we set, runs faster than ours by
//!   `1 s / Config::retransmit`, and all its times shrink by that factor. It measures round trips by the same clock.
//! - Its initial sequence numbers come from a generator that is not cryptographic. So each connection is opened by an
//!   interface of its own, seeded with 64 bits from the kernel (RFC 6528 asks for unpredictable numbers).
//! - With window scaling, both sides can wait for each other for ever. So `Config::receive_buffer` is too small for it.
//! - A closed window may open again, but not beyond the bytes under way. smoltcp then stops its timer and does not
//!   retransmit what the peer dropped ([`Due::Stuck`]). A probe asks for the acknowledgement once more, and
//!   [`Stack::force_retransmit`] makes the stack retransmit.
//! - It accepts a reset anywhere in the window. [`Driver`](crate::Driver) passes only exact ones on (RFC 5961 section 3.2).

use crate::config::Config;
use crate::frame::{self, ETHERNET, Ethernet};
use crate::port::InterfaceInfo;
use crate::wire::Wire;
use smoltcp::iface::{self, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The socket of a connection, in the set that smoltcp requires.
pub(crate) struct Tcp {
    set: SocketSet<'static>,
    handle: SocketHandle,
    /// Most bytes of a packet on its path, if that is less than the interface's MTU.
    mtu: Option<usize>,
}

impl Tcp {
    /// A closed socket without buffers.
    pub(crate) fn closed() -> Self {
        let nothing = || tcp::SocketBuffer::new(Vec::new());
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(tcp::Socket::new(nothing(), nothing()));
        Self { set, handle, mtu: None }
    }

    pub(crate) fn get(&self) -> &tcp::Socket<'static> {
        self.set.get(self.handle)
    }

    pub(crate) fn get_mut(&mut self) -> &mut tcp::Socket<'static> {
        self.set.get_mut(self.handle)
    }
}

/// The time at which a connection has something to do.
pub(crate) enum Due {
    At(Instant),
    /// The connection waits for its peer.
    Never,
    /// The connection has bytes to send, but waits for its peer for ever.
    Stuck,
}

pub(crate) struct Stack {
    interface: Interface,
    /// Interfaces with a lower MTU, for connections with a lower path MTU.
    narrow_interfaces: BTreeMap<usize, Interface>,
    /// An empty set for segments without a connection, which smoltcp answers with a reset.
    strays: SocketSet<'static>,
    capabilities: DeviceCapabilities,
    addresses: Vec<IpCidr>,
    start: Instant,
    /// The latest time that was converted, and its value on the stack's clock.
    latest: (Instant, StackInstant),
    /// The speed of the stack's clock relative to ours, in parts of 1024.
    rate: u64,
    receive_buffer: usize,
    send_buffer: usize,
    silence: smoltcp::time::Duration,
    tick: Duration,
    congestion_control: bool,
}

/// The packet length that every host accepts (RFC 791 section 3.1).
const MIN_MTU: usize = 576;

/// The packet length that every link carries (RFC 8200 section 5).
const MIN_MTU_V6: usize = 1280;

/// Most addresses of an interface; smoltcp's feature in Cargo.toml sets it.
const MAX_ADDRESSES: usize = 8;

impl Stack {
    pub(crate) fn new(config: &Config, info: &InterfaceInfo, start: Instant) -> io::Result<Self> {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        let mtu = config.mtu.map_or(info.mtu, |mtu| usize::from(mtu).max(MIN_MTU));
        capabilities.max_transmission_unit = mtu.min(info.mtu);
        if info.is_virtual {
            // Between virtual interfaces the kernel leaves checksums out, because frames stay in memory.
            capabilities.checksum.tcp = Checksum::Tx;
            capabilities.checksum.ipv4 = Checksum::Tx;
        }
        if info.addresses.len() > MAX_ADDRESSES {
            log::warn!("{}: only the first {MAX_ADDRESSES} of its addresses are served", info.name);
        }
        let addresses: Vec<_> = info
            .addresses
            .iter()
            .take(MAX_ADDRESSES)
            .map(|&(address, bits)| IpCidr::new(address.into(), bits))
            .collect();
        let rate = 1024 * 1_000_000 / u64::try_from(config.retransmit.as_micros()).unwrap_or(1).max(1);
        Ok(Self {
            interface: new_interface(&capabilities, &addresses)?,
            narrow_interfaces: BTreeMap::new(),
            strays: SocketSet::new(Vec::new()),
            capabilities,
            addresses,
            start,
            latest: (start, StackInstant::ZERO),
            rate,
            receive_buffer: config.receive_buffer,
            send_buffer: config.send_buffer,
            silence: smoltcp::time::Duration::from_micros(scale(config.silence, rate).unsigned_abs()),
            tick: config.retransmit / 4,
            congestion_control: config.congestion_control,
        })
    }

    /// The addresses that the stack accepts packets for.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = std::net::IpAddr> {
        self.addresses.iter().map(|cidr| cidr.address().into())
    }

    /// Makes a socket that waits for the segment which opens a connection to `local`.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn passive(&mut self, local: SocketAddr) -> io::Result<Tcp> {
        let mut tcp = self.socket()?;
        tcp.get_mut().listen(local).map_err(io::Error::other)?;
        Ok(tcp)
    }

    /// Makes a socket that connects.
    ///
    /// # Errors
    /// The kernel gives no random numbers, or the addresses are not valid for a connection.
    pub(crate) fn active(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Tcp> {
        let mut tcp = self.socket()?;
        tcp.get_mut().connect(self.interface.context(), remote, local).map_err(io::Error::other)?;
        tcp.get_mut().set_timeout(Some(self.silence));
        Ok(tcp)
    }

    fn socket(&mut self) -> io::Result<Tcp> {
        self.interface = new_interface(&self.capabilities, &self.addresses)?;
        let buffer = |len| tcp::SocketBuffer::new(vec![0; len]);
        let mut socket = tcp::Socket::new(buffer(self.receive_buffer), buffer(self.send_buffer));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        // Set in any case: the default depends on smoltcp's features.
        let control = if self.congestion_control { tcp::CongestionControl::Reno } else { tcp::CongestionControl::None };
        socket.set_congestion_control(control);
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Ok(Tcp { set, handle, mtu: None })
    }

    /// Gives a received packet to its connection, or to no connection.
    pub(crate) fn ingress<W: Wire>(
        &mut self,
        wire: &mut W,
        now: Instant,
        packet: &[u8],
        reply_header: Ethernet,
        tcp: Option<&mut Tcp>,
    ) {
        let now = self.stack_time(now);
        let mut device =
            ConnDevice { wire, packet: Some(packet), header: reply_header, capabilities: &self.capabilities };
        let set = tcp.map_or(&mut self.strays, |tcp| &mut tcp.set);
        self.interface.poll_ingress_single(now, &mut device, set);
    }

    /// Makes a connection that is [`Due::Stuck`] retransmit, by repeating an acknowledgement.
    ///
    /// Three duplicates cause a retransmission (RFC 5681 section 3.2). They count from an acknowledgement with another window.
    pub(crate) fn force_retransmit<W: Wire>(
        &mut self,
        wire: &mut W,
        now: Instant,
        packet: &[u8],
        reply_header: Ethernet,
        tcp: &mut Tcp,
    ) {
        let mut other = packet.to_vec();
        frame::change_window(&mut other);
        self.ingress(wire, now, &other, reply_header, Some(tcp));
        for _ in 0..4 {
            self.ingress(wire, now, packet, reply_header, Some(tcp));
        }
    }

    /// Sends at most `most` segments of a connection. Returns whether it sent any.
    pub(crate) fn egress<W: Wire>(
        &mut self,
        wire: &mut W,
        now: Instant,
        to: Ethernet,
        tcp: &mut Tcp,
        most: usize,
    ) -> bool {
        let now = self.stack_time(now);
        // The timeout applies only while an answer is due. Otherwise smoltcp would close idle connections.
        let socket = tcp.get_mut();
        let due = socket.send_queue() > 0 || !matches!(socket.state(), tcp::State::Established | tcp::State::CloseWait);
        let silence = if due { Some(self.silence) } else { None };
        socket.set_timeout(silence);
        let mut sent = false;
        for _ in 0..most {
            let mut device = ConnDevice { wire, packet: None, header: to, capabilities: &self.capabilities };
            let narrow = tcp.mtu.and_then(|mtu| self.narrow_interfaces.get_mut(&mtu));
            match narrow.unwrap_or(&mut self.interface).poll_egress(now, &mut device, &mut tcp.set) {
                PollResult::None => break,
                PollResult::SocketStateChanged => sent = true,
            }
        }
        sent
    }

    /// Lowers a connection's MTU to `mtu`, but not below the minimum of RFC 1191 section 3 or RFC 8201 section 4.
    ///
    /// Returns the new MTU if it is lower than before.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn lower_mtu(&mut self, tcp: &mut Tcp, is_ipv4: bool, mtu: usize) -> io::Result<Option<usize>> {
        let mtu = mtu.max(if is_ipv4 { MIN_MTU } else { MIN_MTU_V6 });
        if mtu >= tcp.mtu.unwrap_or(self.capabilities.max_transmission_unit) {
            return Ok(None);
        }
        // Rounded down, so that there are few different MTUs and few interfaces.
        let mtu = mtu & !15;
        if let Entry::Vacant(vacant) = self.narrow_interfaces.entry(mtu) {
            let mut capabilities = self.capabilities.clone();
            capabilities.max_transmission_unit = mtu;
            vacant.insert(new_interface(&capabilities, &self.addresses)?);
        }
        tcp.mtu = Some(mtu);
        Ok(Some(mtu))
    }

    /// The next time at which a connection has something to do; a past time if that is now.
    pub(crate) fn due(&mut self, now: Instant, tcp: &mut Tcp) -> Due {
        let waits = tcp.get().send_queue() > 0 && tcp.get().may_send();
        let silence = tcp.get().timeout();
        if waits {
            // Without the timeout, only other timers remain.
            tcp.get_mut().set_timeout(None);
        }
        let now = self.stack_time(now);
        let at = self.interface.poll_at(now, &tcp.set);
        tcp.get_mut().set_timeout(silence);
        let Some(at) = at else { return if waits { Due::Stuck } else { Due::Never } };
        let micros = u64::try_from(at.total_micros()).unwrap_or(0);
        let micros = u128::from(micros) * 1024 / u128::from(self.rate);
        Due::At(self.start + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// Asks the peer for an acknowledgement with the next [`egress`](Self::egress).
    ///
    /// It repeats about every `Config::retransmit` until [`stop_probing`](Self::stop_probing).
    pub(crate) fn probe(tcp: &mut Tcp) {
        tcp.get_mut().set_keep_alive(Some(smoltcp::time::Duration::from_secs(1)));
    }

    pub(crate) fn stop_probing(tcp: &mut Tcp) {
        if tcp.get().keep_alive().is_some() {
            tcp.get_mut().set_keep_alive(None);
        }
    }

    /// Rounds a time up to the next tick, so that one wait serves many timers.
    pub(crate) fn round_up(&self, at: Instant) -> Instant {
        let tick = self.tick.as_nanos().max(1);
        let ticks = at.saturating_duration_since(self.start).as_nanos().div_ceil(tick);
        self.start + Duration::from_nanos(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }

    fn stack_time(&mut self, now: Instant) -> StackInstant {
        if self.latest.0 != now {
            let since = now.saturating_duration_since(self.start);
            self.latest = (now, StackInstant::from_micros_const(scale(since, self.rate)));
        }
        self.latest.1
    }
}

/// Converts `time` to microseconds of the stack, which runs at `rate / 1024` times our speed.
fn scale(time: Duration, rate: u64) -> i64 {
    let scaled = time.as_micros() * u128::from(rate) / 1024;
    i64::try_from(scaled).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// Makes an interface with a secret random seed.
fn new_interface(capabilities: &DeviceCapabilities, addresses: &[IpCidr]) -> io::Result<Interface> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    let mut config = iface::Config::new(HardwareAddress::Ip);
    config.random_seed = u64::from_ne_bytes(seed);
    let mut interface = Interface::new(config, &mut NoDevice(capabilities), StackInstant::ZERO);
    interface.update_ip_addrs(|list| {
        for &address in addresses {
            // `Stack::new` has limited their number, so all fit.
            let _ = list.push(address);
        }
    });
    Ok(interface)
}

/// smoltcp's view of the device while one connection is served.
struct ConnDevice<'a, W> {
    wire: &'a mut W,
    packet: Option<&'a [u8]>,
    header: Ethernet,
    capabilities: &'a DeviceCapabilities,
}

struct Packet<'a>(&'a [u8]);

struct Slot<'a, W> {
    wire: &'a mut W,
    header: Ethernet,
}

impl<W: Wire> Device for ConnDevice<'_, W> {
    type RxToken<'b>
        = Packet<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Slot<'b, W>
    where
        Self: 'b;

    fn receive(&mut self, _: StackInstant) -> Option<(Packet<'_>, Slot<'_, W>)> {
        let packet = self.packet.take()?;
        Some((Packet(packet), Slot { wire: self.wire, header: self.header }))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Slot<'_, W>> {
        self.wire.has_room().then_some(Slot { wire: self.wire, header: self.header })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

impl RxToken for Packet<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl<W: Wire> TxToken for Slot<'_, W> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let header = self.header;
        self.wire.send(ETHERNET + len, |frame| {
            let (ethernet, packet) = frame.split_at_mut(ETHERNET);
            ethernet.copy_from_slice(&header.0);
            f(packet)
        })
    }
}

/// A device that only reports its capabilities.
struct NoDevice<'a>(&'a DeviceCapabilities);

struct Never(std::convert::Infallible);

impl Device for NoDevice<'_> {
    type RxToken<'b>
        = Never
    where
        Self: 'b;
    type TxToken<'b>
        = Never
    where
        Self: 'b;

    fn receive(&mut self, _: StackInstant) -> Option<(Never, Never)> {
        None
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Never> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.0.clone()
    }
}

impl RxToken for Never {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, _: F) -> R {
        match self.0 {}
    }
}

impl TxToken for Never {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, _: usize, _: F) -> R {
        match self.0 {}
    }
}
