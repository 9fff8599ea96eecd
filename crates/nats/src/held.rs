//! Memory that a log takes in this process, as it is counted.

use tautline_hub::Append;
pub(crate) use tautline_hub::backend::{Held, Memory};

/// Memory of a followed topic: its task, and a consumer of JetStream with its subscription (measured in `tests/nats_memory.rs`).
pub(crate) const FOLLOWED: usize = 19_500;
/// Memory of a request for a page: its task, which has the page's reading in it.
pub(crate) const READ: usize = 9_200;
/// Memory of a consumer that reads a page, beside the page.
pub(crate) const READING: usize = 12_000;
/// Memory of a request that waits for the page of another one.
pub(crate) const WAITING: usize = 200;
/// Memory of a message on its way, beside its texts: the request, and the task that waits for the answer.
const APPEND: usize = 1_800;

/// The memory of a message on its way.
pub(crate) fn append(append: &Append) -> usize {
    let optional = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
    APPEND + append.data.len() + optional(&append.key) + optional(&append.id)
}
