//! The unsafe part: the kernel's queues, and all memory that the kernel reads or writes on its own.
//!
//! Two kinds of memory are shared with the kernel. [`Ring`] owns each buffer that is being sent until its completion
//! was taken. [`BufferRing`] owns the memory that is received into, as one log: the kernel fills it in order, says how
//! much, and gets a part back only after what lay there was lent and is done with.
#![expect(unsafe_code, reason = "submitting to io_uring hands the kernel addresses")]

mod buffer_ring;
mod enter;
mod entry;
mod ring;
mod source;

pub(super) use buffer_ring::BufferRing;
pub(super) use ring::Ring;
pub(super) use source::{Completion, MAX_INDEX, Source, With};

/// The only group of provided buffers.
const GROUP: u16 = 0;

/// Sizes of a [`Ring`] and its [`BufferRing`].
pub(super) struct Sizes {
    pub(super) submissions: u32,
    pub(super) completions: u32,
    pub(super) buffers: u16,
    pub(super) buffer: u32,
    pub(super) headroom: usize,
}
