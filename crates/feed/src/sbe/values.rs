//! Rust source of single values.

use super::cursor::Order;
use super::names::pascal;
use super::schema::{Decimal, Exponent, Kind, Primitive};

/// Source of a value.
pub(super) struct Value {
    /// Its type.
    pub(super) type_name: String,
    /// An expression of that type.
    pub(super) value: String,
    /// A condition under which it stands for none.
    pub(super) none: Option<String>,
}

/// The source that reads a value at an offset of its bytes.
pub(super) fn value(order: Order, kind: &Kind, at: usize, source: &str) -> Value {
    match kind {
        Kind::Number { primitive, null } => {
            let value = number(order, *primitive, at, source);
            let none = is_null(*primitive, &value, null);
            Value { type_name: primitive.rust().to_owned(), value, none: Some(none) }
        }
        Kind::Array { primitive: Primitive::Char, len } => {
            Value { type_name: "&'a [u8]".to_owned(), value: format!("sbe::text::<{len}>({source}, {at})"), none: None }
        }
        Kind::Array { primitive, len } => {
            let (rust, size) = (primitive.rust(), primitive.size());
            let element = number_at(order, *primitive, &format!("{at} + {size} * index"), source);
            let value = format!("core::array::from_fn(|index| {element})");
            Value { type_name: format!("[{rust}; {len}]"), value, none: None }
        }
        Kind::Enum { name, primitive, null } => {
            let number = number(order, *primitive, at, source);
            let none = is_null(*primitive, &number, null);
            let type_name = pascal(name);
            Value { value: format!("{type_name}::from_value({number})"), type_name, none: Some(none) }
        }
        Kind::Set { name, primitive } => {
            let type_name = pascal(name);
            let value = format!("{type_name}({})", number(order, *primitive, at, source));
            Value { type_name, value, none: None }
        }
        Kind::Composite { name, .. } => {
            let name = pascal(name);
            let value = format!("{name} {{ base: sbe::part({source}, {at}) }}");
            Value { type_name: format!("{name}<'a>"), value, none: None }
        }
        Kind::Fixed(number) => decimal(order, number, at, source),
        // It is written by another path.
        Kind::Constant { type_name, value } => Value { type_name: type_name.clone(), value: value.clone(), none: None },
    }
}

fn decimal(order: Order, decimal: &Decimal, at: usize, source: &str) -> Value {
    let digits = number(order, decimal.mantissa, at + decimal.at, source);
    let none = is_null(decimal.mantissa, &digits, &decimal.null);
    let mantissa = if decimal.mantissa == Primitive::I64 { digits } else { format!("i64::from({digits})") };
    let exponent = match &decimal.exponent {
        Exponent::At(offset) => number(order, Primitive::I8, at + offset, source),
        Exponent::Constant(value) => value.clone(),
    };
    let type_name = "::tautline_feed::number::Fixed".to_owned();
    let value = format!("{type_name} {{ mantissa: {mantissa}, exponent: {exponent} }}");
    Value { type_name, value, none: Some(none) }
}

fn number(order: Order, primitive: Primitive, at: usize, source: &str) -> String {
    number_at(order, primitive, &at.to_string(), source)
}

fn number_at(order: Order, primitive: Primitive, at: &str, source: &str) -> String {
    let order = if order == Order::Little { "le" } else { "be" };
    format!("{}::from_{order}_bytes(sbe::take({source}, {at}))", primitive.rust())
}

fn is_null(primitive: Primitive, value: &str, null: &str) -> String {
    if primitive.is_float() { format!("{value}.is_nan()") } else { format!("{value} == {null}") }
}
