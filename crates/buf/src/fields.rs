//! Fields of state that is saved as bytes: big-endian integers, and byte strings behind their length of four bytes.
//!
//! Each function that takes shortens the slice. `None` stands for too few bytes.
//!
//! ```
//! use tautline_buf::fields::{put, take, take_u64};
//!
//! let mut out = Vec::new();
//! out.extend(7_u64.to_be_bytes());
//! put(b"seven", &mut out);
//! let mut rest = &out[..];
//! assert_eq!((take_u64(&mut rest), take(&mut rest)), (Some(7), Some(&b"seven"[..])));
//! assert_eq!(take_u64(&mut rest), None);
//! ```

use alloc::vec::Vec;

/// Appends bytes behind their length.
pub fn put(bytes: &[u8], out: &mut Vec<u8>) {
    put_len(bytes.len(), out);
    out.extend(bytes);
}

/// Appends a length. Limits keep all state of a connection below 4 GiB; if one did not, reading it would fail.
pub fn put_len(len: usize, out: &mut Vec<u8>) {
    out.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
}

/// The next `N` bytes.
pub fn take_array<'b, const N: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(taken)
}

/// The next integer of eight bytes.
pub fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take_array(rest).map(|bytes| u64::from_be_bytes(*bytes))
}

/// The next length.
pub fn take_len(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(*take_array(rest)?)).ok()
}

/// The next bytes behind a length.
pub fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = take_len(rest)?;
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}
