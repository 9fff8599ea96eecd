use super::*;
use proptest::prelude::*;

fn parsed(text: &str) -> Result<(i64, i8), NumberFault> {
    Fixed::parse(text.as_bytes()).map(|number| (number.mantissa, number.exponent)).map_err(|error| error.fault)
}

#[test]
fn numbers_are_read_as_written() {
    for (text, mantissa, exponent) in [
        ("0.00120", 120, -5),
        ("\"0.00120\"", 120, -5),
        ("67321.45000000", 6_732_145_000_000, -8),
        ("-3", -3, 0),
        ("0", 0, 0),
        ("-0.0", 0, -1),
        ("1e5", 1, 5),
        ("1.50E+3", 150, 1),
        ("12e-3", 12, -3),
        ("0e999", 0, 0),
        ("123456789012345678", 123_456_789_012_345_678, 0),
        ("9223372036854775807", i64::MAX, 0),
        ("-9223372036854775808", i64::MIN, 0),
        ("0.000000000000000000000000000001", 1, -30),
        ("1000000000000000000000", 1, 21),
    ] {
        assert_eq!(parsed(text), Ok((mantissa, exponent)), "{text}");
    }
}

#[test]
fn zeros_without_room_are_dropped() {
    // The volume of a day in a coin of small value, with the eight decimals that a venue always writes.
    assert_eq!(parsed("93452345678900.00000000"), Ok((93_452_345_678_900, 0)));
    assert_eq!(parsed("93452345678900.50000000"), Ok((934_523_456_789_005, -1)));
    assert_eq!(parsed("93452345678900.00000001"), Err(NumberFault::TooLarge));
}

#[test]
fn faults_are_named_with_their_place() {
    for (text, at, fault) in [
        ("", 0, NumberFault::Digit),
        ("-", 1, NumberFault::Digit),
        ("+1", 0, NumberFault::Digit),
        (".5", 0, NumberFault::Digit),
        ("5.", 2, NumberFault::Digit),
        ("5.e1", 2, NumberFault::Digit),
        ("1e", 2, NumberFault::Digit),
        ("1e+", 3, NumberFault::Digit),
        ("01", 0, NumberFault::LeadingZero),
        ("-00.1", 1, NumberFault::LeadingZero),
        ("\"1", 2, NumberFault::Quote),
        ("\"1 \"", 2, NumberFault::Quote),
        ("1 ", 1, NumberFault::Trailing),
        ("1\"", 1, NumberFault::Trailing),
        ("1e128", 0, NumberFault::TooLarge),
        ("1e99999999999999999999", 0, NumberFault::TooLarge),
        ("9223372036854775808", 0, NumberFault::TooLarge),
        ("-9223372036854775809", 0, NumberFault::TooLarge),
    ] {
        assert_eq!(Fixed::parse(text.as_bytes()), Err(NumberError { at, fault }), "{text}");
    }
}

#[test]
fn scales_are_exact_or_refused() {
    let number = |mantissa, exponent| Fixed { mantissa, exponent };
    assert_eq!(number(120, -5).at(5), Some(120));
    assert_eq!(number(120, -5).at(4), Some(12));
    assert_eq!(number(120, -5).at(3), None);
    assert_eq!(number(-7, 2).at(1), Some(-7000));
    assert_eq!(number(0, 127).at(255), Some(0));
    assert_eq!(number(1, 127).at(255), None);
    assert_eq!(number(1, -128).at(0), None);
    assert_eq!(number(i64::MAX, 0).at(1), None);
    assert_eq!(number(i64::MIN, 0).at(0), Some(i64::MIN));
}

#[test]
fn digits_are_counted_in_every_word() {
    for count in 0..=8 {
        for stranger in (0..=255_u8).filter(|byte| !byte.is_ascii_digit()) {
            let mut word = *b"98765432";
            if let Some(byte) = word.get_mut(count) {
                *byte = stranger;
            }
            let (read, value) = leading_digits(u64::from_le_bytes(word));
            assert_eq!(read, count);
            assert!(count == 0 || value == "98765432"[..count].parse::<u64>().unwrap());
        }
    }
}

proptest! {
    #[test]
    fn a_number_survives_being_written(mantissa: i64, exponent in -30_i8..=0) {
        let number = Fixed { mantissa, exponent };
        let text = number.to_string();
        prop_assert_eq!(Fixed::parse(text.as_bytes()), Ok(number), "{}", text);
    }

    /// The oracle counts digits and decimals in strings, and multiplies nothing.
    #[test]
    fn digits_decide(sign in "-?", whole in "0|[1-9][0-9]{0,11}", fraction in "[0-9]{0,12}", power in -20_i16..20) {
        let point = if fraction.is_empty() { "" } else { "." };
        let plain = format!("{sign}{whole}{point}{fraction}");
        let decimals = i16::try_from(fraction.len()).unwrap();
        let digits: i128 = format!("{sign}{whole}{fraction}").parse().unwrap();
        for (text, power) in [(plain.clone(), 0), (format!("{plain}e{power}"), power)] {
            match Fixed::parse(text.as_bytes()) {
                Ok(number) => {
                    let dropped = i16::from(number.exponent) - (power - decimals);
                    prop_assert!(dropped >= 0);
                    let factor = 10_i128.pow(u32::try_from(dropped).unwrap());
                    prop_assert_eq!(i128::from(number.mantissa) * factor, digits, "{}", text);
                    prop_assert!(dropped == 0 || i64::try_from(digits).is_err());
                }
                Err(error) => {
                    prop_assert_eq!(error.fault, NumberFault::TooLarge, "{}", text);
                    prop_assert!(i64::try_from(digits).is_err());
                }
            }
        }
    }

    #[test]
    fn accepts_the_numbers_that_another_parser_accepts(text in "[-+]?[0-9]{0,3}[.]?[0-9]{0,3}[eE]?[-+]?[0-9]{0,2}") {
        let theirs = serde_json::from_str::<f64>(&text);
        match Fixed::parse(text.as_bytes()) {
            Ok(number) => {
                let value = format!("{}e{}", number.mantissa, number.exponent).parse::<f64>().unwrap();
                let theirs = theirs.unwrap();
                prop_assert!((value - theirs).abs() <= theirs.abs() * 1e-12, "{} {} {}", text, value, theirs);
            }
            Err(_) => prop_assert!(theirs.is_err(), "{}", text),
        }
    }

    #[test]
    fn any_bytes_are_a_number_or_an_error(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::char::range('+', ':').prop_map(|c| c as u8)], 0..40)) {
        if let Err(error) = Fixed::parse(&bytes) {
            prop_assert!(error.at <= bytes.len());
        }
    }
}
