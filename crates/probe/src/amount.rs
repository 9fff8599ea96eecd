//! Amounts in arguments.

use parse_size::Config;

/// A number of bytes, with or without a unit: `65536`, `64k`, `1MiB`.
///
/// # Errors
/// If it is no such number; the text says how to write one.
pub fn bytes(text: &str) -> Result<usize, String> {
    // `64.` and `1e3` are sizes for the parser, and mistakes for people.
    let plain = text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(['e', 'E', '_']);
    let parsed = Config::new().with_binary().parse_size(text).ok().filter(|_| plain);
    let bytes = parsed.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        "write a number of bytes, such as 65536, 64k or 1MiB (k, M and G are powers of 1,024)".to_owned()
    })
}

/// Like [`bytes`], but 0 is refused.
///
/// # Errors
/// As [`bytes`], and for 0.
pub fn some_bytes(text: &str) -> Result<usize, String> {
    bytes(text).and_then(not_zero)
}

/// A number that cannot be 0.
///
/// # Errors
/// If it is no whole number, or 0.
pub fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number".to_owned()).and_then(not_zero)
}

fn not_zero(amount: usize) -> Result<usize, String> {
    if amount == 0 { Err("it must be at least 1".to_owned()) } else { Ok(amount) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, expected) in
            [("0", 0), ("65536", 65536), ("64k", 65536), ("64 KiB", 65536), ("1MiB", 1 << 20), ("1.5M", 3 << 19)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for bad in ["", "k", "-1", "1e3", "1_000", "64 pages", "99999999999999999999"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn zero_is_refused_where_it_means_nothing() {
        assert_eq!((some_bytes("1"), count("7")), (Ok(1), Ok(7)));
        for refused in [some_bytes("0"), some_bytes("0k"), count("0")] {
            assert_eq!(refused, Err("it must be at least 1".to_owned()));
        }
        assert!(count("-1").is_err() && count("many").is_err());
    }
}
