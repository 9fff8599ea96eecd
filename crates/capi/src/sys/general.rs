use crate::codes::*;
use core::ffi::{CStr, c_char};

/// The version of the library, such as `0.1.0`: a text that stays valid.
///
/// Any thread may call this at any time.
#[unsafe(no_mangle)]
pub extern "C" fn taut_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The meaning of a code, in English: a text that stays valid.
///
/// Any thread may call this at any time.
#[unsafe(no_mangle)]
pub extern "C" fn taut_code_text(code: Code) -> *const c_char {
    meaning(code).as_ptr()
}

const fn meaning(code: Code) -> &'static CStr {
    match code {
        TAUT_OK => c"success",
        TAUT_ERR_NULL => c"a pointer is null or not aligned",
        TAUT_ERR_SIZE => c"a struct's size or a length is wrong",
        TAUT_ERR_OVERLAP => c"windows overlap that must not",
        TAUT_ERR_BUSY => c"another call uses this session",
        TAUT_ERR_VALUE => c"a number or a text has no meaning here",
        TAUT_ERR_STATE => c"the call does not fit the state or the role",
        TAUT_ERR_FAILED => c"the session has failed before",
        TAUT_ERR_CONFIG => c"the configuration cannot be used",
        TAUT_ERR_PEER => c"the peer broke the protocol",
        TAUT_ERR_ALERT => c"the peer sent a fatal alert",
        TAUT_ERR_CERTIFICATE => c"the peer's certificate was rejected",
        TAUT_ERR_LIBRARY => c"the TLS library failed",
        TAUT_ERR_INTERNAL => c"a defect of this library",
        TAUT_ERR_CLOSED => c"the connection has ended, or its loop has stopped",
        TAUT_ERR_FULL => c"too much waits already",
        TAUT_ERR_TIMEOUT => c"the time is over",
        TAUT_ERR_SYSTEM => c"the system refused",
        TAUT_ERR_CONNECT => c"the connection could not be made",
        TAUT_ERR_CALLBACK => c"a callback could not do its work",
        _ => c"not a code of this version",
    }
}

#[cfg(test)]
mod tests {
    use super::meaning;
    use std::collections::HashSet;

    #[test]
    fn every_code_has_a_text_of_its_own() {
        let source = include_str!("../codes.rs");
        let declared = source.lines().filter_map(|line| line.strip_prefix("pub const TAUT_")?.split_once(": Code = "));
        let numbers: Vec<i32> = declared.map(|(_, number)| number.trim_end_matches(';').parse().unwrap()).collect();
        assert!(numbers.len() >= 20 && numbers.iter().copied().eq(0..numbers.len().try_into().unwrap()));
        let texts: HashSet<_> = numbers.iter().map(|&number| meaning(number)).collect();
        assert!(texts.len() == numbers.len() && !texts.contains(meaning(-1)), "{texts:?}");
    }
}
