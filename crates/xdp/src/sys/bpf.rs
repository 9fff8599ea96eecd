//! The commands of bpf(2) that an XDP program needs.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::ffi::CStr;

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_XSKMAP: u32 = 17;
const F_NO_PREALLOC: u32 = 1;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;

/// Most bytes that are kept of the verifier's log.
const LOG: usize = 1 << 16;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapElement {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// Calls bpf(2).
///
/// # Safety
/// `attr` is the part of `union bpf_attr` that `command` reads, and the addresses in it are valid for the call.
unsafe fn bpf<T>(command: libc::c_long, attr: &mut T) -> Result<RawFd, Errno> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes at `attr`, which is borrowed for the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, core::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(code));
    }
    RawFd::try_from(result).map_err(|_| Errno::BADF)
}

/// Calls bpf(2) for a command that returns a new descriptor.
///
/// # Safety
/// The requirements of [`bpf`].
unsafe fn bpf_fd<T>(command: libc::c_long, attr: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: as promised by the caller.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just made this descriptor for us, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn create_map(attr: MapCreate) -> Result<OwnedFd, Errno> {
    let mut attr = attr;
    // SAFETY: the attribute of BPF_MAP_CREATE, which holds no addresses.
    unsafe { bpf_fd(MAP_CREATE, &mut attr) }
}

/// A hash map with keys of `K` bytes; the values mean nothing.
pub(crate) struct HashMap<const K: usize>(OwnedFd);

impl<const K: usize> HashMap<K> {
    /// Makes a map.
    ///
    /// # Errors
    /// The error of bpf(2): `EPERM` without `CAP_BPF`.
    pub(crate) fn new(max_entries: u32) -> Result<Self, Errno> {
        let key_size = u32::try_from(K).map_err(|_| Errno::INVAL)?;
        let attr =
            MapCreate { map_type: MAP_TYPE_HASH, key_size, value_size: 4, max_entries, map_flags: F_NO_PREALLOC };
        create_map(attr).map(Self)
    }

    /// Inserts a key.
    ///
    /// # Errors
    /// The map is full, or memory ran out.
    pub(crate) fn insert(&self, key: &[u8; K]) -> Result<(), Errno> {
        let value = 1_u32;
        let mut attr = MapElement {
            map_fd: number(&self.0),
            key: key.as_ptr() as u64,
            value: core::ptr::from_ref(&value) as u64,
            ..MapElement::default()
        };
        // SAFETY: the attribute of BPF_MAP_UPDATE_ELEM; `key` has the key's size, `value` the value's, both outlive it.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// The key is not there.
    pub(crate) fn remove(&self, key: &[u8; K]) -> Result<(), Errno> {
        let mut attr = MapElement { map_fd: number(&self.0), key: key.as_ptr() as u64, ..MapElement::default() };
        // SAFETY: the attribute of BPF_MAP_DELETE_ELEM; `key` has the key's size and outlives the call.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attr) }.map(drop)
    }
}

impl<const K: usize> AsFd for HashMap<K> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The map from receive queues to AF_XDP sockets.
pub(crate) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map for receive queues below `queues`.
    ///
    /// # Errors
    /// The error of bpf(2).
    pub(crate) fn new(queues: u32) -> Result<Self, Errno> {
        let attr =
            MapCreate { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: queues, map_flags: 0 };
        create_map(attr).map(Self)
    }

    /// Redirects the frames of receive queue `queue` to `socket`, which is bound to it.
    ///
    /// # Errors
    /// The map has no such queue.
    pub(crate) fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let value = number(&socket);
        let mut attr = MapElement {
            map_fd: number(&self.0),
            key: core::ptr::from_ref(&queue) as u64,
            value: core::ptr::from_ref(&value) as u64,
            ..MapElement::default()
        };
        // SAFETY: the attribute of BPF_MAP_UPDATE_ELEM; key and value have the sizes of the map and outlive the call.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A loaded program.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads `code`, instructions of 8 bytes.
    ///
    /// # Errors
    /// The error number and, if the verifier rejected the program, its log.
    pub(crate) fn load(code: &[u64], license: &CStr, name: &[u8; 16]) -> Result<Self, (Errno, String)> {
        let mut log = vec![0_u8; LOG];
        let mut attr = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            insn_cnt: u32::try_from(code.len()).unwrap_or(u32::MAX),
            insns: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 1,
            log_size: u32::try_from(LOG).unwrap_or(0),
            log_buf: log.as_mut_ptr() as u64,
            prog_name: *name,
            expected_attach_type: ATTACH_TYPE_XDP,
            ..ProgLoad::default()
        };
        // SAFETY: the attribute of BPF_PROG_LOAD; code, license (NUL-terminated) and log have the given sizes and outlive
        // the call, and nothing else borrows the log.
        unsafe { bpf_fd(PROG_LOAD, &mut attr) }.map(Self).map_err(|errno| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            (errno, String::from_utf8_lossy(&log[..end]).into_owned())
        })
    }
}

/// A program attached to an interface. The kernel detaches it when the descriptor is closed, even by a crash.
pub(crate) struct Attached(OwnedFd);

impl Attached {
    /// Attaches a program.
    ///
    /// # Errors
    /// `EBUSY` if another program is attached, `EOPNOTSUPP` if the interface's driver does not support the mode in `flags`.
    pub(crate) fn new(program: &Program, interface: u32, flags: u32) -> Result<Self, Errno> {
        let mut attr =
            LinkCreate { prog_fd: number(&program.0), target_ifindex: interface, attach_type: ATTACH_TYPE_XDP, flags };
        // SAFETY: the attribute of BPF_LINK_CREATE, which holds no addresses.
        unsafe { bpf_fd(LINK_CREATE, &mut attr) }.map(Self)
    }

    /// Replaces the program by another without a gap.
    ///
    /// # Errors
    /// The error of bpf(2): `EPERM` without `CAP_NET_ADMIN`.
    pub(crate) fn replace(&self, program: &Program) -> Result<(), Errno> {
        let mut attr =
            LinkUpdate { link_fd: number(&self.0), new_prog_fd: number(&program.0), ..LinkUpdate::default() };
        // SAFETY: the attribute of BPF_LINK_UPDATE, which holds no addresses.
        unsafe { bpf(LINK_UPDATE, &mut attr) }.map(drop)
    }
}
