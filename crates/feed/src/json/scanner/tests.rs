use super::*;
use crate::number::NumberFault;

/// A message of trades as the reader of a field would walk it.
fn trade(text: &[u8]) -> Result<(u64, Fixed, bool), JsonError> {
    let mut json = Scanner::new(text);
    let (mut id, mut price, mut is_maker) = (0, Fixed::default(), false);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key {
            b"t" => id = json.u64()?,
            b"p" => price = json.fixed()?,
            b"m" => is_maker = json.bool()?,
            _ => json.skip()?,
        }
    }
    json.end()?;
    Ok((id, price, is_maker))
}

const TRADE: &[u8] = br#"{"e":"trade","x":{"a":[1,{"b":null}],"c":"q\"\u00e9"},"t" : 12345, "p":"0.00120","m":true}"#;

#[test]
fn known_fields_are_read_and_others_passed() {
    assert_eq!(trade(TRADE), Ok((12345, Fixed { mantissa: 120, exponent: -5 }, true)));
}

#[test]
fn a_message_that_is_cut_is_an_error_everywhere() {
    for len in 0..TRADE.len() {
        let error = trade(&TRADE[..len]).unwrap_err();
        assert!(error.at <= len, "{error} at a cut to {len}");
    }
}

#[test]
fn errors_name_the_place_and_the_expected_thing() {
    for (text, at, expected) in [
        ("", 0, Expected::Object),
        ("[]", 0, Expected::Object),
        ("{1:2}", 1, Expected::String),
        ("{\"t\" 1}", 5, Expected::Colon),
        ("{\"t\":1 \"p\":2}", 7, Expected::CommaOrBrace),
        ("{\"t\":1,}", 7, Expected::String),
        ("{,}", 1, Expected::String),
        ("{\"t\":-1}", 5, Expected::Integer),
        ("{\"t\":1.0}", 5, Expected::Integer),
        ("{\"t\":01}", 5, Expected::Integer),
        ("{\"t\":18446744073709551616}", 5, Expected::Integer),
        ("{\"t\":99999999999999999999}", 5, Expected::Integer),
        ("{\"t\":\"1}", 7, Expected::EndOfString),
        ("{\"p\":\"1x\"}", 7, Expected::Number(NumberFault::Quote)),
        ("{\"m\":1}", 5, Expected::Bool),
        ("{\"m\":tru}", 5, Expected::Value),
        ("{\"x\":[1}}", 7, Expected::CommaOrBracket),
        ("{\"x\":{\"y\":1]}", 11, Expected::CommaOrBrace),
        ("{\"x\":[1,]}", 8, Expected::Value),
        ("{\"x\":nul}", 5, Expected::Value),
        ("{\"x\":\"\\x\"}", 6, Expected::Escape),
        ("{\"x\":\"\\u12g4\"}", 6, Expected::Escape),
        ("{\"x\":\"a\tb\"}", 7, Expected::EndOfString),
        ("{} {}", 3, Expected::End),
    ] {
        assert_eq!(trade(text.as_bytes()), Err(JsonError { at, expected }), "{text}");
    }
}

#[test]
fn the_largest_integers_are_read() {
    assert_eq!(Scanner::new(b"18446744073709551615").u64(), Ok(u64::MAX));
    assert_eq!(Scanner::new(b"\"18446744073709551615\"").u64(), Ok(u64::MAX));
    assert_eq!(Scanner::new(b"10000000000000000000").u64(), Ok(10_000_000_000_000_000_000));
    assert_eq!(Scanner::new(b" -9223372036854775808").i64(), Ok(i64::MIN));
    assert_eq!(Scanner::new(b"9223372036854775807").i64(), Ok(i64::MAX));
    assert!(Scanner::new(b"9223372036854775808").i64().is_err());
    assert!(Scanner::new(b"-9223372036854775809").i64().is_err());
}

#[test]
fn depth_is_bounded_in_what_is_read_and_in_what_is_passed() {
    let most = MAX_DEPTH as usize;
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(Scanner::new(nested(most).as_bytes()).skip(), Ok(()));
    let error = Scanner::new(nested(most + 1).as_bytes()).skip().unwrap_err();
    assert_eq!(error, JsonError { at: most, expected: Expected::LessDepth });
    let (text, mut opened) = (nested(most + 1), 0);
    let mut json = Scanner::new(text.as_bytes());
    let error = loop {
        match json.begin_array() {
            Ok(()) => opened += 1,
            Err(error) => break error,
        }
        assert_eq!(json.next_element(), Ok(true));
    };
    assert_eq!((opened, error), (most, JsonError { at: most, expected: Expected::LessDepth }));
    // Arrays that are read count for those that are passed below them.
    let text = nested(most + 1);
    let mut json = Scanner::new(text.as_bytes());
    json.begin_array().unwrap();
    assert_eq!(json.next_element(), Ok(true));
    assert_eq!(json.skip(), Err(JsonError { at: most, expected: Expected::LessDepth }));
}

#[test]
fn strings_are_unescaped_only_on_demand() {
    let string = |text: &'static str| Scanner::new(text.as_bytes()).string().unwrap();
    let plain = string("\"BTC-USD\"");
    assert!(matches!(plain.unescape(), Ok(std::borrow::Cow::Borrowed("BTC-USD"))));
    assert_eq!(plain.as_str(), Ok("BTC-USD"));
    let escaped = string(r#""a\n\"\/\u00e9\ud83d\ude00z""#);
    assert!(escaped.has_escapes());
    assert_eq!(escaped.unescape().unwrap(), "a\n\"/é😀z");
    assert!(escaped.as_str().is_err());
    for (half, at) in [(r#""\ud83d""#, 1), (r#""ab\ude00""#, 3), (r#""\ud83dA""#, 1)] {
        assert_eq!(string(half).unescape(), Err(JsonError { at, expected: Expected::Surrogate }), "{half}");
    }
    let text = Scanner::new(b" \"ab\xff\"").string().unwrap();
    assert_eq!(text.as_str(), Err(JsonError { at: 4, expected: Expected::Utf8 }));
}

#[test]
fn values_are_told_by_their_first_byte_and_given_raw() {
    let mut json = Scanner::new(b"[ {\"a\": 1} , null,-1, \"x\", false ]");
    let mut seen = Vec::new();
    json.begin_array().unwrap();
    while json.next_element().unwrap() {
        seen.push((json.kind().unwrap(), json.raw().unwrap()));
    }
    let all: [(Kind, &[u8]); 5] = [
        (Kind::Object, b"{\"a\": 1}"),
        (Kind::Null, b"null"),
        (Kind::Number, b"-1"),
        (Kind::String, b"\"x\""),
        (Kind::Bool, b"false"),
    ];
    assert_eq!(seen, all);
    assert_eq!(json.end(), Ok(()));
    let mut json = Scanner::new(b"null");
    assert_eq!((json.null(), json.null(), json.end()), (Ok(true), Ok(false), Ok(())));
}

#[test]
fn an_excerpt_shows_the_bytes_at_fault() {
    let text = br#"{"t":"wrong","p":"1"}"#;
    let error = trade(text).unwrap_err();
    assert_eq!(error.near(text), br#"wrong","p":"1"}"#);
    assert_eq!(error.to_string(), "byte 6 of the JSON message: expected an integer of 64 bits");
}
