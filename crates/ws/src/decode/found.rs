use crate::{Kind, Message, Opcode};

/// The location of data: in the input, or in the assembly, which holds them for this event.
pub(super) enum Place<'i> {
    Input(&'i [u8]),
    Assembly,
}

/// An event that borrows nothing from the decoder, so that it can still change its state.
pub(super) enum Found<'i> {
    /// A message in the input.
    Message(Message<'i>),
    /// A message in the assembly.
    Assembled,
    Chunk {
        kind: Kind,
        place: Place<'i>,
        first: bool,
        last: bool,
    },
    Control(Opcode, Place<'i>),
}
