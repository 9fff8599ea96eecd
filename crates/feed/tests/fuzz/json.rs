//! The scanner accepts what `serde_json` accepts, passed or read, and reads the same values.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use tautline_feed::json::{Expected, JsonError, Kind, Scanner};

/// Reads any bytes as a message.
pub(crate) fn run(data: &[u8]) {
    let mut json = Scanner::new(data);
    let passed = json.skip().and_then(|()| json.end());
    let mut json = Scanner::new(data);
    let read = value(&mut json).and_then(|value| json.end().map(|()| value));
    match (&passed, &read) {
        // Only reading looks into strings.
        (Ok(()), Err(error)) => assert!(matches!(error.expected, Expected::Utf8 | Expected::Surrogate), "{error}"),
        (Ok(()), Ok(_)) => {}
        (Err(passed), Err(_)) => assert!(passed.at <= data.len() && passed.near(data).len() <= 32),
        (Err(error), Ok(_)) => panic!("read what cannot be passed: {error}"),
    }
    let theirs = serde_json::from_slice::<IgnoredAny>(data);
    let is_deep = matches!(passed, Err(JsonError { expected: Expected::LessDepth, .. }));
    assert!(is_deep || passed.is_ok() == theirs.is_ok(), "{passed:?}, but {theirs:?}");
    // `serde_json` takes no number beyond those of `f64`.
    if let (Ok(ours), Ok(theirs)) = (&read, serde_json::from_slice::<Value>(data)) {
        assert_eq!(*ours, theirs);
    }
}

/// Reads a value of any kind.
fn value(json: &mut Scanner<'_>) -> Result<Value, JsonError> {
    Ok(match json.kind()? {
        Kind::Object => {
            let mut fields = Map::new();
            json.begin_object()?;
            while let Some(key) = json.next_key()? {
                // A key is given as written. Read as a string, it becomes its name.
                let quoted = [b"\"", key, b"\""].concat();
                let name =
                    Scanner::new(&quoted).string().and_then(|name| name.unescape().map(|name| name.into_owned()))?;
                fields.insert(name, value(json)?);
            }
            Value::Object(fields)
        }
        Kind::Array => {
            let mut elements = Vec::new();
            json.begin_array()?;
            while json.next_element()? {
                elements.push(value(json)?);
            }
            Value::Array(elements)
        }
        Kind::String => Value::String(json.string()?.unescape()?.into_owned()),
        Kind::Bool => Value::Bool(json.bool()?),
        Kind::Number => number(json)?,
        _ => {
            let is_null = json.null()?;
            assert!(is_null);
            Value::Null
        }
    })
}

/// Reads a number as an integer and a decimal, where it fits, and as the oracle has it.
fn number(json: &mut Scanner<'_>) -> Result<Value, JsonError> {
    let (mut unsigned, mut signed, mut decimal) = (*json, *json, *json);
    let raw = json.raw()?;
    let theirs = serde_json::from_slice::<Value>(raw).unwrap_or(Value::Null);
    assert_eq!(unsigned.u64().ok(), theirs.as_u64().filter(|_| raw != b"-0"), "{raw:?}");
    if !theirs.is_f64() {
        assert_eq!(signed.i64().ok(), theirs.as_i64(), "{raw:?}");
    }
    if let Ok(fixed) = decimal.fixed() {
        assert_eq!(decimal.offset(), json.offset());
        assert_eq!(fixed, tautline_feed::number::Fixed::parse(raw).expect("the same number"));
    }
    Ok(theirs)
}
