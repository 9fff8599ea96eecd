//! smoltcp as the TCP/IP stack: one set of one socket per connection, so that no packet and no poll costs more with more
//! connections.
//!
//! What it lacks is made up for outside, as it stays an unmodified dependency:
//! - Its shortest retransmission timeout is one second. Its clock, which we set, therefore runs faster than ours by
//!   `1 s / Config::retransmit`, and all its times shrink by that factor. Round trips are measured by the same clock.
//! - Its sequence numbers begin with a number from a generator that is not for cryptography. Each connection is opened by
//!   an interface of its own, seeded with 64 bits from the kernel (RFC 6528 asks for numbers nobody can guess).
//! - With a window that needs scaling, both sides can wait for each other for ever; `Config::receive_buffer` is kept below.
//! - When a window that was closed opens again, but not beyond what is under way, it stops its timer and forgets to repeat
//!   what the peer threw away ([`Due::Stuck`]). A probe then asks for the acknowledgement once more, and
//!   [`Stack::insist`] makes the stack repeat.
//! - A reset anywhere in the window closes. [`Driver`](crate::Driver) passes only exact ones on (RFC 5961 section 3.2).

use crate::config::Config;
use crate::frame::{self, ETHERNET, Ethernet};
use crate::port::Facts;
use crate::wire::Wire;
use smoltcp::iface::{self, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as Virtual;
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The only socket of a connection, and the set that smoltcp wants it in.
pub(crate) struct Tcp {
    set: SocketSet<'static>,
    handle: SocketHandle,
    /// Most bytes of a packet on its way, where that is less than the interface takes.
    mtu: Option<usize>,
}

impl Tcp {
    /// One that has been, and needs no memory any more.
    pub(crate) fn over() -> Self {
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

/// When a connection has something to do.
pub(crate) enum Due {
    At(Instant),
    /// It waits for its peer.
    Never,
    /// It waits for its peer with bytes to send, and would for ever.
    Stuck,
}

pub(crate) struct Stack {
    interface: Interface,
    /// Those that send what goes narrow ways, by the most bytes of a packet there.
    narrow: BTreeMap<usize, Interface>,
    /// For segments that belong to no connection: smoltcp answers them with a reset.
    strays: SocketSet<'static>,
    capabilities: DeviceCapabilities,
    addresses: Vec<IpCidr>,
    start: Instant,
    /// The latest time that was asked for, and what the stack calls it.
    latest: (Instant, Virtual),
    /// How many times faster than ours the stack's clock runs, in parts of 1024.
    rate: u64,
    receive_buffer: usize,
    send_buffer: usize,
    silence: smoltcp::time::Duration,
    tick: Duration,
    congestion_control: bool,
}

/// What every host takes (RFC 791 section 3.1).
const LEAST_MTU: usize = 576;

/// What every link takes (RFC 8200 section 5).
const LEAST_MTU_V6: usize = 1280;

/// Most addresses of an interface that smoltcp, as it is compiled, takes.
const MOST_ADDRESSES: usize = 8;

impl Stack {
    pub(crate) fn new(config: &Config, facts: &Facts, start: Instant) -> io::Result<Self> {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        let mtu = config.mtu.map_or(facts.mtu, |mtu| usize::from(mtu).max(LEAST_MTU));
        capabilities.max_transmission_unit = mtu.min(facts.mtu);
        if facts.is_virtual {
            // Between two virtual interfaces the kernel leaves checksums out: nothing can be damaged on the way.
            capabilities.checksum.tcp = Checksum::Tx;
            capabilities.checksum.ipv4 = Checksum::Tx;
        }
        if facts.addresses.len() > MOST_ADDRESSES {
            log::warn!("{}: only the first {MOST_ADDRESSES} of its addresses are served", facts.name);
        }
        let addresses: Vec<_> = facts
            .addresses
            .iter()
            .take(MOST_ADDRESSES)
            .map(|&(address, bits)| IpCidr::new(address.into(), bits))
            .collect();
        let rate = 1024 * 1_000_000 / u64::try_from(config.retransmit.as_micros()).unwrap_or(1).max(1);
        Ok(Self {
            interface: fresh(&capabilities, &addresses)?,
            narrow: BTreeMap::new(),
            strays: SocketSet::new(Vec::new()),
            capabilities,
            addresses,
            start,
            latest: (start, Virtual::ZERO),
            rate,
            receive_buffer: config.receive_buffer,
            send_buffer: config.send_buffer,
            silence: smoltcp::time::Duration::from_micros(scale(config.silence, rate).unsigned_abs()),
            tick: config.retransmit / 4,
            congestion_control: config.congestion_control,
        })
    }

    /// The addresses that packets can come to.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = std::net::IpAddr> {
        self.addresses.iter().map(|cidr| cidr.address().into())
    }

    /// A socket that waits for the segment which opens a connection to `local`.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn passive(&mut self, local: SocketAddr) -> io::Result<Tcp> {
        let mut tcp = self.socket()?;
        tcp.get_mut().listen(local).map_err(io::Error::other)?;
        Ok(tcp)
    }

    /// A socket that connects.
    ///
    /// # Errors
    /// The kernel gives no random numbers, or the addresses cannot be those of a connection.
    pub(crate) fn active(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Tcp> {
        let mut tcp = self.socket()?;
        tcp.get_mut().connect(self.interface.context(), remote, local).map_err(io::Error::other)?;
        tcp.get_mut().set_timeout(Some(self.silence));
        Ok(tcp)
    }

    fn socket(&mut self) -> io::Result<Tcp> {
        self.interface = fresh(&self.capabilities, &self.addresses)?;
        let buffer = |len| tcp::SocketBuffer::new(vec![0; len]);
        let mut socket = tcp::Socket::new(buffer(self.receive_buffer), buffer(self.send_buffer));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        // Said either way: by itself it takes what it is compiled with.
        let control = if self.congestion_control { tcp::CongestionControl::Reno } else { tcp::CongestionControl::None };
        socket.set_congestion_control(control);
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Ok(Tcp { set, handle, mtu: None })
    }

    /// Gives a received packet to its connection, or to nobody.
    pub(crate) fn ingress<W: Wire>(
        &mut self,
        wire: &mut W,
        now: Instant,
        packet: &[u8],
        back: Ethernet,
        tcp: Option<&mut Tcp>,
    ) {
        let now = self.at(now);
        let mut device = Adaptor { wire, packet: Some(packet), header: back, capabilities: &self.capabilities };
        let set = tcp.map_or(&mut self.strays, |tcp| &mut tcp.set);
        self.interface.poll_ingress_single(now, &mut device, set);
    }

    /// Gives an acknowledgement to a connection that is [`Due::Stuck`] as often as it takes to make it repeat what is not
    /// acknowledged: three duplicates (RFC 5681 section 3.2), counted from the one before, whose window differs.
    pub(crate) fn insist<W: Wire>(&mut self, wire: &mut W, now: Instant, packet: &[u8], back: Ethernet, tcp: &mut Tcp) {
        let mut other = packet.to_vec();
        frame::change_window(&mut other);
        self.ingress(wire, now, &other, back, Some(tcp));
        for _ in 0..4 {
            self.ingress(wire, now, packet, back, Some(tcp));
        }
    }

    /// Sends what a connection has to send, at most `most` segments. Says whether anything was sent.
    pub(crate) fn egress<W: Wire>(
        &mut self,
        wire: &mut W,
        now: Instant,
        to: Ethernet,
        tcp: &mut Tcp,
        most: usize,
    ) -> bool {
        let now = self.at(now);
        // Silence counts only while an answer is due: smoltcp would cut idle connections too.
        let socket = tcp.get_mut();
        let due = socket.send_queue() > 0 || !matches!(socket.state(), tcp::State::Established | tcp::State::CloseWait);
        let silence = if due { Some(self.silence) } else { None };
        socket.set_timeout(silence);
        let mut sent = false;
        for _ in 0..most {
            let mut device = Adaptor { wire, packet: None, header: to, capabilities: &self.capabilities };
            let narrow = tcp.mtu.and_then(|mtu| self.narrow.get_mut(&mtu));
            match narrow.unwrap_or(&mut self.interface).poll_egress(now, &mut device, &mut tcp.set) {
                PollResult::None => break,
                PollResult::SocketStateChanged => sent = true,
            }
        }
        sent
    }

    /// Lets a connection send no packets of more than `mtu` bytes, nor of the least that every way takes: RFC 1191 section 3,
    /// RFC 8201 section 4. Says how many, if they are less than before.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn narrow(&mut self, tcp: &mut Tcp, is_ipv4: bool, mtu: usize) -> io::Result<Option<usize>> {
        let mtu = mtu.max(if is_ipv4 { LEAST_MTU } else { LEAST_MTU_V6 });
        if mtu >= tcp.mtu.unwrap_or(self.capabilities.max_transmission_unit) {
            return Ok(None);
        }
        // Few different ones, so that there are few interfaces.
        let mtu = mtu & !15;
        if let Entry::Vacant(vacant) = self.narrow.entry(mtu) {
            let mut capabilities = self.capabilities.clone();
            capabilities.max_transmission_unit = mtu;
            vacant.insert(fresh(&capabilities, &self.addresses)?);
        }
        tcp.mtu = Some(mtu);
        Ok(Some(mtu))
    }

    /// When a connection has something to do next by itself; the past where that is now.
    pub(crate) fn due(&mut self, now: Instant, tcp: &mut Tcp) -> Due {
        let waits = tcp.get().send_queue() > 0 && tcp.get().may_send();
        let silence = tcp.get().timeout();
        if waits {
            // To see whether anything but the end of patience is set.
            tcp.get_mut().set_timeout(None);
        }
        let now = self.at(now);
        let at = self.interface.poll_at(now, &tcp.set);
        tcp.get_mut().set_timeout(silence);
        let Some(at) = at else { return if waits { Due::Stuck } else { Due::Never } };
        let micros = u64::try_from(at.total_micros()).unwrap_or(0);
        let micros = u128::from(micros) * 1024 / u128::from(self.rate);
        Due::At(self.start + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// Asks the peer for an acknowledgement, with the next [`egress`](Self::egress) and then about every
    /// `Config::retransmit`, until [`stop_probing`](Self::stop_probing).
    pub(crate) fn probe(tcp: &mut Tcp) {
        tcp.get_mut().set_keep_alive(Some(smoltcp::time::Duration::from_secs(1)));
    }

    pub(crate) fn stop_probing(tcp: &mut Tcp) {
        if tcp.get().keep_alive().is_some() {
            tcp.get_mut().set_keep_alive(None);
        }
    }

    /// The next of few times that connections are looked at together: one wait for all whose timers end about now.
    pub(crate) fn coarse(&self, at: Instant) -> Instant {
        let tick = self.tick.as_nanos().max(1);
        let ticks = at.saturating_duration_since(self.start).as_nanos().div_ceil(tick);
        self.start + Duration::from_nanos(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
    }

    fn at(&mut self, now: Instant) -> Virtual {
        if self.latest.0 != now {
            let since = now.saturating_duration_since(self.start);
            self.latest = (now, Virtual::from_micros_const(scale(since, self.rate)));
        }
        self.latest.1
    }
}

/// Microseconds of the stack in `time`, which pass `rate / 1024` times as fast.
fn scale(time: Duration, rate: u64) -> i64 {
    let scaled = time.as_micros() * u128::from(rate) / 1024;
    i64::try_from(scaled).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// An interface with a generator of numbers that nobody else knows.
fn fresh(capabilities: &DeviceCapabilities, addresses: &[IpCidr]) -> io::Result<Interface> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    let mut config = iface::Config::new(HardwareAddress::Ip);
    config.random_seed = u64::from_ne_bytes(seed);
    let mut interface = Interface::new(config, &mut Nowhere(capabilities), Virtual::ZERO);
    interface.update_ip_addrs(|list| {
        for &address in addresses {
            // There are no more than fit.
            let _ = list.push(address);
        }
    });
    Ok(interface)
}

/// What smoltcp sees of the device while one connection is served.
struct Adaptor<'a, W> {
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

impl<W: Wire> Device for Adaptor<'_, W> {
    type RxToken<'b>
        = Packet<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Slot<'b, W>
    where
        Self: 'b;

    fn receive(&mut self, _: Virtual) -> Option<(Packet<'_>, Slot<'_, W>)> {
        let packet = self.packet.take()?;
        Some((Packet(packet), Slot { wire: self.wire, header: self.header }))
    }

    fn transmit(&mut self, _: Virtual) -> Option<Slot<'_, W>> {
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

/// A device that only says what it can do.
struct Nowhere<'a>(&'a DeviceCapabilities);

struct Never(std::convert::Infallible);

impl Device for Nowhere<'_> {
    type RxToken<'b>
        = Never
    where
        Self: 'b;
    type TxToken<'b>
        = Never
    where
        Self: 'b;

    fn receive(&mut self, _: Virtual) -> Option<(Never, Never)> {
        None
    }

    fn transmit(&mut self, _: Virtual) -> Option<Never> {
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
