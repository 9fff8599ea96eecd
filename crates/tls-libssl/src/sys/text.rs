/// The text that the shim wrote into `bytes`, up to the terminating zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

/// Length of the buffer for either end of a certificate's validity.
pub(super) const TIME: usize = 24;

/// Length of the buffer for a certificate's names.
pub(super) const NAMES: usize = 16 * 1024;
