//! Parsers meet random messages and random damage, and are held against others.

use crate::fuzz;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// Any value of JSON.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "[0-9]{1,5}\\.[0-9]{8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            proptest::collection::hash_map(".{0,9}", inner, 0..8)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<serde_json::Map<_, _>>())),
        ]
    })
}

/// Bytes that matter to a parser of JSON, among others.
fn bytes() -> impl Strategy<Value = u8> {
    prop_oneof![3 => proptest::sample::select(&b"{}[],:\"\\ \n0123456789.-+eEtrufalsn"[..]), 1 => any::<u8>()]
}

proptest! {
    #[test]
    fn json_of_any_shape_is_read_alike(value in values(), is_pretty: bool) {
        let text = if is_pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
        fuzz::json::run(&text.unwrap());
    }

    #[test]
    fn damaged_json_is_judged_alike(value in values(), changes in proptest::collection::vec((any::<Index>(), bytes()), 1..4)) {
        let mut text = serde_json::to_vec(&value).unwrap();
        for (place, byte) in changes {
            let at = place.index(text.len());
            text[at] = byte;
        }
        fuzz::json::run(&text);
    }

    #[test]
    fn cut_json_is_judged_alike(value in values(), place: Index) {
        let text = serde_json::to_vec(&value).unwrap();
        fuzz::json::run(&text[..place.index(text.len())]);
    }

    #[test]
    fn random_bytes_are_judged_alike(text in proptest::collection::vec(bytes(), 0..60)) {
        fuzz::json::run(&text);
        fuzz::number::run(&text);
    }
}
