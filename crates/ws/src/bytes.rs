//! Reads and writes fields of encoded state: big-endian integers, and byte strings behind a length of four bytes.

pub(crate) fn put(bytes: &[u8], out: &mut Vec<u8>) {
    // No state of a connection comes near 4 GiB. If one did, reading it back would fail.
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

pub(crate) fn take_array<'b, const N: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(taken)
}

pub(crate) fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take_array(rest).map(|bytes| u64::from_be_bytes(*bytes))
}

pub(crate) fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(u32::from_be_bytes(*take_array(rest)?)).ok()?;
    let (taken, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    Some(taken)
}
