//! Simple Binary Encoding: views of messages, as Rust source from a schema.
//!
//! [`generate`] turns the XML schema of a venue into source code (SBE 1.0, the namespace `http://fixprotocol.io/2016/sbe` and
//! those before it). A build script writes it to a file, or `cargo run --example sbe_views` prints it. The code has one view for
//! each message, and an enum `AnyMessage` over them with `decode`:
//!
//! - A view borrows the message. `decode` checks all lengths once, so that its methods return values, not results.
//! - Blocks that are longer than the schema says are passed, so fields of newer versions do no harm. Fields, groups and data that
//!   the message's version does not have yet are `None` or empty.
//! - A composite of `mantissa` and `exponent` is a [`Fixed`](crate::number::Fixed). Where a venue sends the exponent as a field of
//!   its own, a `Fixed` is made of both fields.
//! - Optional fields are options. Values of an enum that the schema does not list become `Unlisted`.
//!
//! Nothing allocates, and a message that is cut or damaged is an [`SbeError`] with its field and offset.
//!
//! The other public items of this module are what generated code uses.

mod cursor;
mod emit;
mod entries;
mod error;
mod generate;
mod names;
mod parse;
mod schema;
mod values;

pub use cursor::{Cursor, DataLayout, Dimension, Field, Header, HeaderLayout, Order, Uint, part, take, text};
pub use entries::{Entries, Entry};
pub use error::{SbeError, SbeFault};
pub use generate::generate;
pub use parse::SchemaError;
