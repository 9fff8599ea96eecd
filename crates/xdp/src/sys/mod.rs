//! All unsafe code: system calls without a safe wrapper, and memory that the kernel reads and writes on its own.
//!
//! A [`Frame`] is the right to touch one chunk of a [`Umem`](umem::Umem). It goes to the kernel and comes back by value. So
//! no reference to a chunk can live while the kernel may write there.
#![expect(unsafe_code, reason = "rings and frames are memory shared with the kernel; bpf(2) has no wrapper")]

mod bpf;
mod option;
mod ring;
mod umem;
mod xsk;

pub(crate) use bpf::{Attached, HashMap, Program, SocketMap};
pub(crate) use umem::Frame;
pub(crate) use xsk::{Mode, Sizes, Xsk};
