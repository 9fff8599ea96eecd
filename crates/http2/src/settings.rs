//! SETTINGS (RFC 9113, section 6.5).

use crate::code::Fault;
use crate::frame::{MAX_FRAME, MAX_WINDOW, flag, kind, put};
use crate::limits::Limits;
use crate::role::Role;
use tautline_buf::Buf;

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// RFC 8441, section 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
/// RFC 9218, section 2.1.
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// The window of each stream and connection before any setting (RFC 9113, section 6.9.2).
pub(crate) const FIRST_WINDOW: u32 = 65_535;

/// The peer's settings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PeerSettings {
    /// Streams of ours at once (`SETTINGS_MAX_CONCURRENT_STREAMS`). Without the setting there is no bound.
    pub max_streams: u32,
    /// The window of a stream that begins (`SETTINGS_INITIAL_WINDOW_SIZE`).
    pub initial_window: u32,
    /// The largest frame (`SETTINGS_MAX_FRAME_SIZE`).
    pub max_frame: u32,
    /// Bytes of a field section (`SETTINGS_MAX_HEADER_LIST_SIZE`), if the peer says them.
    pub max_fields: Option<u32>,
    /// Whether the peer takes extended CONNECT requests (`SETTINGS_ENABLE_CONNECT_PROTOCOL`, RFC 8441).
    pub websockets: bool,
    /// The smallest table of the peer's decoder so far (`SETTINGS_HEADER_TABLE_SIZE`).
    pub(crate) smallest_table: u32,
}

impl PeerSettings {
    pub(crate) const fn new() -> Self {
        Self {
            max_streams: u32::MAX,
            initial_window: FIRST_WINDOW,
            max_frame: MAX_FRAME,
            max_fields: None,
            websockets: false,
            smallest_table: crate::block::TABLE,
        }
    }

    /// Reads the payload of a frame. Whole pairs are all it has.
    pub(crate) fn read(&mut self, payload: &[u8], role: Role) -> Result<(), Fault> {
        for pair in payload.chunks_exact(6) {
            let [a, b, c, d, e, f] = *pair else { continue };
            let (name, value) = (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]));
            match name {
                ENABLE_PUSH if value > 1 || value == 1 && role == Role::Client => {
                    return Err(Fault::protocol("SETTINGS_ENABLE_PUSH has a wrong value"));
                }
                MAX_CONCURRENT_STREAMS => self.max_streams = value,
                INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW => {
                    return Err(Fault::flow("SETTINGS_INITIAL_WINDOW_SIZE is above 2^31 - 1"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                MAX_FRAME_SIZE if !(MAX_FRAME..1 << 24).contains(&value) => {
                    return Err(Fault::protocol("SETTINGS_MAX_FRAME_SIZE is not between 2^14 and 2^24 - 1"));
                }
                MAX_FRAME_SIZE => self.max_frame = value,
                MAX_HEADER_LIST_SIZE => self.max_fields = Some(value),
                ENABLE_CONNECT_PROTOCOL if value > 1 || value == 0 && self.websockets => {
                    return Err(Fault::protocol("SETTINGS_ENABLE_CONNECT_PROTOCOL has a wrong value"));
                }
                ENABLE_CONNECT_PROTOCOL => self.websockets = value == 1,
                NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Fault::protocol("SETTINGS_NO_RFC7540_PRIORITIES has a wrong value"));
                }
                HEADER_TABLE_SIZE => self.smallest_table = self.smallest_table.min(value),
                // Field sections are small. Unknown settings are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Writes our settings.
pub(crate) fn write(limits: &Limits, role: Role, out: &mut Buf) {
    let mut payload = Vec::with_capacity(48);
    let mut pair = |name: u16, value: u32| {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    };
    match role {
        Role::Client => pair(ENABLE_PUSH, 0),
        Role::Server => {
            pair(MAX_CONCURRENT_STREAMS, limits.streams);
            if limits.websockets {
                pair(ENABLE_CONNECT_PROTOCOL, 1);
            }
            pair(NO_RFC7540_PRIORITIES, 1);
        }
    }
    pair(INITIAL_WINDOW_SIZE, limits.stream_window);
    pair(MAX_HEADER_LIST_SIZE, limits.fields);
    // The default, said all the same: a peer may not assume it.
    pair(HEADER_TABLE_SIZE, crate::block::TABLE);
    put(kind::SETTINGS, 0, 0, &payload, out);
}

/// Writes the acknowledgement of the peer's settings.
pub(crate) fn acknowledge(out: &mut Buf) {
    put(kind::SETTINGS, flag::ACK, 0, &[], out);
}
