//! A number that is read survives being written, and its value is the one that another parser reads.

use tautline_feed::number::Fixed;

/// Reads any bytes as a number.
pub(crate) fn run(data: &[u8]) {
    let text = data.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(data);
    let theirs = serde_json::from_slice::<f64>(text).ok().filter(|_| !text.iter().any(u8::is_ascii_whitespace));
    match Fixed::parse(data) {
        Ok(number) => {
            let written = number.to_string();
            let again = Fixed::parse(written.as_bytes()).expect("a number that was written can be read");
            assert!(number.exponent > 0 || again == number, "{written} of {number:?}");
            let value: f64 = format!("{}e{}", number.mantissa, number.exponent).parse().expect("digits are a number");
            let theirs = theirs.expect("others read the number");
            assert!((value - theirs).abs() <= theirs.abs() * 1e-12, "{number:?} instead of {theirs}");
            if let Some(units) = number.at(8) {
                let value = units as f64 / 1e8;
                assert!((value - theirs).abs() <= theirs.abs() * 1e-12, "{units} instead of {theirs}");
            }
        }
        Err(error) => {
            assert!(error.at <= data.len());
            assert!(
                theirs.is_none() || error.fault == tautline_feed::number::NumberFault::TooLarge,
                "{error}: {data:?}"
            );
        }
    }
}
