use crate::{Kind, Opcode};
use core::ops::Range;

/// The location of data: in the input or in the assembly.
pub(super) enum Place {
    Input(Range<usize>),
    Assembly(Range<usize>),
}

/// An event as offsets, which borrow nothing, so that the decoder can still change its state.
pub(super) enum Found {
    Message(Kind, Place),
    Chunk { kind: Kind, place: Place, first: bool, last: bool },
    Control(Opcode, Place),
}
