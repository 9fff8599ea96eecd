//! The XDP program. It redirects the TCP segments of the endpoints in its map to our sockets, and routers' messages about
//! such segments that are too long. It passes all else to the kernel.
//!
//! The program is assembled here, instruction by instruction (RFC 9669). It needs no compiler to build and no file to run.
//! The verifier accepts its few dozen instructions on every kernel that has links for XDP (5.9).

use crate::sys::{HashMap, Program, SocketMap};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

/// A local endpoint in the program's map: the address, IPv4 mapped into IPv6, and the port, in network order.
pub(crate) type Key = [u8; 20];

/// The map of endpoints whose frames are ours.
pub(crate) type Endpoints = HashMap<20>;

pub(crate) fn key(endpoint: SocketAddr) -> Key {
    let mut key = [0; 20];
    let address = match endpoint.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    key[..16].copy_from_slice(&address.octets());
    key[16..18].copy_from_slice(&endpoint.port().to_be_bytes());
    key
}

/// Number of bytes of the stamp in front of a frame, see [`Frames::Stamped`].
pub(crate) const STAMP: usize = 16;
const STAMP_BYTES: i32 = 16;

/// Marks a stamp, because not every device has room for one.
const STAMPED: [u8; 8] = *b"arrived:";

/// The way in which our frames are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    Plain,
    /// The arrival time precedes each frame.
    Stamped,
}

/// Takes the stamp in front of a frame: the nanoseconds of `CLOCK_MONOTONIC` at which the program saw the frame.
///
/// The stamp is erased, so that a later frame in the same place does not inherit it.
pub(crate) fn take_stamp(before: &mut [u8; STAMP]) -> Option<u64> {
    let (&mut stamp, mark) = before.split_first_chunk_mut::<8>()?;
    let is_there = *mark == STAMPED;
    mark.fill(0);
    is_there.then_some(u64::from_ne_bytes(stamp))
}

/// Loads the program.
///
/// # Errors
/// The error number and the verifier's log.
pub(crate) fn load(endpoints: &Endpoints, sockets: &SocketMap, frames: Frames) -> Result<Program, (Errno, String)> {
    let code = assemble(endpoints.as_fd().as_raw_fd(), sockets.as_fd().as_raw_fd(), frames);
    Program::load(&code, c"MIT", b"tautline_xdp\0\0\0\0")
}

// Classes, sizes and operations of instructions (RFC 9669 section 3).
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const STORE_LONG: u8 = 0x7b;
const STORE_WORD_OF: u8 = 0x62;
const MOVE: u8 = 0xbf;
const MOVE_OF: u8 = 0xb7;
const ADD_OF: u8 = 0x07;
const AND_OF: u8 = 0x57;
const JUMP: u8 = 0x05;
const JUMP_EQUAL_OF: u8 = 0x15;
const JUMP_NOT_EQUAL_OF: u8 = 0x55;
const JUMP_ABOVE: u8 = 0x2d;
const LOAD_LONG_OF: u8 = 0x18;
/// Requires [`MAP_FD`] as source.
const LOAD_MAP: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `BPF_PSEUDO_MAP_FD`: the number is the descriptor of a map.
const MAP_FD: u8 = 1;

// Helpers of the kernel.
const MAP_LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;
const TIME: i32 = 5;
const ADJUST_METADATA: i32 = 54;

/// `XDP_PASS`: the frame goes to the kernel.
const PASS: i32 = 2;

/// Offset of the key in the stack frame.
const KEY: i16 = -20;

/// The offset of jumps to the exit that passes the frame, until that exit's place is known.
const TO_PASS: i16 = i16::MIN;

struct Assembler(Vec<u64>);

impl Assembler {
    fn put(&mut self, op: u8, to: u8, from: u8, offset: i16, number: i32) {
        let [a, b] = offset.to_le_bytes();
        let [c, d, e, f] = number.to_le_bytes();
        self.0.push(u64::from_ne_bytes([op, from << 4 | to, a, b, c, d, e, f]));
    }

    /// Sets the target of the jump at `jump` to the next instruction.
    fn land_here(&mut self, jump: usize) {
        let distance = i16::try_from(self.0.len() - jump - 1).unwrap_or(0);
        self.set_offset(jump, distance);
    }

    fn set_offset(&mut self, jump: usize, distance: i16) {
        let mut bytes = self.0[jump].to_ne_bytes();
        bytes[2..4].copy_from_slice(&distance.to_le_bytes());
        self.0[jump] = u64::from_ne_bytes(bytes);
    }
}

/// A number in network order, as a load in host order reads it.
fn big_endian(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

/// Assembles the program. Register 6 is the context, 7 the frame's start, 8 its end.
fn assemble(endpoints: i32, sockets: i32, frames: Frames) -> Vec<u64> {
    let mut asm = Assembler(Vec::new());
    asm.put(MOVE, 6, 1, 0, 0);
    asm.put(LOAD_WORD, 7, 6, 0, 0);
    asm.put(LOAD_WORD, 8, 6, 4, 0);
    // Ethernet, IPv4 and TCP headers without options have 54 bytes.
    pass_if_shorter(&mut asm, 54);
    asm.put(LOAD_HALF, 2, 7, 12, 0);
    asm.put(STORE_WORD_OF, 10, 0, KEY, 0);
    asm.put(STORE_WORD_OF, 10, 0, KEY + 4, 0);
    let ipv6 = asm.0.len();
    asm.put(JUMP_NOT_EQUAL_OF, 2, 0, 0, big_endian(0x0800));
    // IPv4: a header without options, no fragment (no more fragments, no offset), TCP.
    pass_unless(&mut asm, LOAD_BYTE, 14, 0x45);
    asm.put(LOAD_HALF, 2, 7, 20, 0);
    asm.put(AND_OF, 2, 0, 0, big_endian(0x3fff));
    asm.put(JUMP_NOT_EQUAL_OF, 2, 0, TO_PASS, 0);
    asm.put(STORE_WORD_OF, 10, 0, KEY + 8, i32::from_ne_bytes([0, 0, 0xff, 0xff]));
    asm.put(LOAD_BYTE, 2, 7, 23, 0);
    let quoted = too_big_v4(&mut asm);
    asm.put(LOAD_WORD, 2, 7, 30, 0);
    asm.put(STORE_WORD, 10, 2, KEY + 12, 0);
    asm.put(LOAD_HALF, 2, 7, 36, 0);
    let found = asm.0.len();
    asm.put(JUMP, 0, 0, 0, 0);
    // IPv6: TCP without extension headers before it.
    asm.land_here(ipv6);
    asm.put(JUMP_NOT_EQUAL_OF, 2, 0, TO_PASS, big_endian(0x86dd));
    pass_if_shorter(&mut asm, 74);
    asm.put(LOAD_BYTE, 2, 7, 20, 0);
    let quoted_v6 = too_big_v6(&mut asm);
    store_v6(&mut asm, 38);
    asm.put(LOAD_HALF, 2, 7, 56, 0);
    asm.land_here(found);
    asm.land_here(quoted);
    asm.land_here(quoted_v6);
    // The port and the zeros after it.
    asm.put(STORE_WORD, 10, 2, KEY + 16, 0);
    asm.put(MOVE, 2, 10, 0, 0);
    asm.put(ADD_OF, 2, 0, 0, i32::from(KEY));
    asm.put(LOAD_MAP, 1, MAP_FD, 0, endpoints);
    asm.put(0, 0, 0, 0, 0);
    asm.put(CALL, 0, 0, 0, MAP_LOOKUP);
    asm.put(JUMP_EQUAL_OF, 0, 0, TO_PASS, 0);
    if frames == Frames::Stamped {
        stamp(&mut asm);
    }
    // Frames of a queue without a socket go to the kernel.
    asm.put(LOAD_MAP, 1, MAP_FD, 0, sockets);
    asm.put(0, 0, 0, 0, 0);
    asm.put(LOAD_WORD, 2, 6, 16, 0);
    asm.put(MOVE_OF, 3, 0, 0, PASS);
    asm.put(CALL, 0, 0, 0, REDIRECT_MAP);
    asm.put(EXIT, 0, 0, 0, 0);
    let pass = asm.0.len();
    asm.put(MOVE_OF, 0, 0, 0, PASS);
    asm.put(EXIT, 0, 0, 0, 0);
    for at in 0..pass {
        let [_, _, a, b, ..] = asm.0[at].to_ne_bytes();
        if i16::from_le_bytes([a, b]) == TO_PASS {
            asm.set_offset(at, i16::try_from(pass - at - 1).unwrap_or(0));
        }
    }
    asm.0
}

/// Puts the time in front of the frame, if there is room. This invalidates the verifier's knowledge of the frame's bounds.
fn stamp(asm: &mut Assembler) {
    let [a, b, c, d, rest @ ..] = STAMPED;
    asm.put(MOVE, 1, 6, 0, 0);
    asm.put(MOVE_OF, 2, 0, 0, -STAMP_BYTES);
    asm.put(CALL, 0, 0, 0, ADJUST_METADATA);
    let no_room = asm.0.len();
    asm.put(JUMP_NOT_EQUAL_OF, 0, 0, 0, 0);
    // Register 9 is the start of the room, which ends at the frame's start, as the verifier must see.
    asm.put(LOAD_WORD, 9, 6, 8, 0);
    asm.put(LOAD_WORD, 7, 6, 0, 0);
    asm.put(MOVE, 1, 9, 0, 0);
    asm.put(ADD_OF, 1, 0, 0, STAMP_BYTES);
    let too_short = asm.0.len();
    asm.put(JUMP_ABOVE, 1, 7, 0, 0);
    asm.put(CALL, 0, 0, 0, TIME);
    asm.put(STORE_LONG, 9, 0, 0, 0);
    asm.put(LOAD_LONG_OF, 1, 0, 0, i32::from_ne_bytes([a, b, c, d]));
    asm.put(0, 0, 0, 0, i32::from_ne_bytes(rest));
    asm.put(STORE_LONG, 9, 1, 8, 0);
    asm.land_here(no_room);
    asm.land_here(too_short);
}

/// Continues with TCP, or with "fragmentation needed" (RFC 792) about a TCP segment without IP options.
///
/// Register 2 has the protocol number. All else is passed.
fn too_big_v4(asm: &mut Assembler) -> usize {
    too_big(asm, 1, 70, |asm| {
        pass_unless(asm, LOAD_HALF, 34, big_endian(0x0304));
        pass_unless(asm, LOAD_BYTE, 42, 0x45);
        pass_unless(asm, LOAD_BYTE, 51, 6);
        asm.put(LOAD_WORD, 2, 7, 54, 0);
        asm.put(STORE_WORD, 10, 2, KEY + 12, 0);
        asm.put(LOAD_HALF, 2, 7, 62, 0);
    })
}

/// Continues with TCP, or with "packet too big" (RFC 4443 section 3.2) about a TCP segment.
fn too_big_v6(asm: &mut Assembler) -> usize {
    too_big(asm, 58, 110, |asm| {
        pass_unless(asm, LOAD_HALF, 54, big_endian(0x0200));
        pass_unless(asm, LOAD_BYTE, 68, 6);
        store_v6(asm, 70);
        asm.put(LOAD_HALF, 2, 7, 102, 0);
    })
}

/// Continues with TCP, or with the protocol `number` if the frame has `len` bytes.
///
/// In the second case `find` puts the quoted segment's source address into the key and its port into register 2. A jump
/// follows, whose place is returned. Register 2 has the protocol number; all other protocols are passed.
fn too_big(asm: &mut Assembler, number: i32, len: i32, find: impl FnOnce(&mut Assembler)) -> usize {
    let tcp = asm.0.len();
    asm.put(JUMP_EQUAL_OF, 2, 0, 0, 6);
    asm.put(JUMP_NOT_EQUAL_OF, 2, 0, TO_PASS, number);
    pass_if_shorter(asm, len);
    find(asm);
    let quoted = asm.0.len();
    asm.put(JUMP, 0, 0, 0, 0);
    asm.land_here(tcp);
    quoted
}

/// Passes the frame to the kernel unless it has `value` at `offset`.
fn pass_unless(asm: &mut Assembler, load: u8, offset: i16, value: i32) {
    asm.put(load, 2, 7, offset, 0);
    asm.put(JUMP_NOT_EQUAL_OF, 2, 0, TO_PASS, value);
}

/// Puts the IPv6 address at `offset` into the key.
fn store_v6(asm: &mut Assembler, offset: i16) {
    for word in 0..4 {
        asm.put(LOAD_WORD, 2, 7, offset + 4 * word, 0);
        asm.put(STORE_WORD, 10, 2, KEY + 4 * word, 0);
    }
}

/// Passes frames that are shorter than `bytes` to the kernel.
fn pass_if_shorter(asm: &mut Assembler, bytes: i32) {
    asm.put(MOVE, 1, 7, 0, 0);
    asm.put(ADD_OF, 1, 0, 0, bytes);
    asm.put(JUMP_ABOVE, 1, 8, TO_PASS, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_addresses_and_ports_apart() {
        let keys = ["10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "[::1]:80", "[fe80::1]:80"];
        let mut keys: Vec<_> = keys.iter().map(|text| key(text.parse().unwrap())).collect();
        assert_eq!(keys[0], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01\0\x50\0\0");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 5);
    }

    #[test]
    fn every_jump_target_is_inside_the_program() {
        for frames in [Frames::Plain, Frames::Stamped] {
            let code = assemble(3, 4, frames);
            for (at, instruction) in code.iter().enumerate() {
                let [op, _, a, b, ..] = instruction.to_ne_bytes();
                let offset = i64::from(i16::from_le_bytes([a, b]));
                if op & 7 == 5 && op != CALL && op != EXIT {
                    let target = i64::try_from(at).unwrap() + 1 + offset;
                    assert!(offset >= 0 && target < i64::try_from(code.len()).unwrap(), "{at}: {instruction:#018x}");
                }
            }
        }
    }

    #[test]
    fn a_stamp_is_taken_once() {
        let mut before = [0; STAMP];
        assert_eq!(take_stamp(&mut before), None);
        before[..8].copy_from_slice(&77_u64.to_ne_bytes());
        before[8..].copy_from_slice(&STAMPED);
        assert_eq!([take_stamp(&mut before), take_stamp(&mut before)], [Some(77), None]);
    }
}
