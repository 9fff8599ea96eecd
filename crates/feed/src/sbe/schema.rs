//! A schema whose types are resolved and whose fields have their places.

use super::cursor::Order;

/// All of a schema that code is generated for.
pub(super) struct Schema {
    pub(super) package: String,
    pub(super) id: u32,
    pub(super) version: u32,
    pub(super) order: Order,
    pub(super) header: Composite,
    pub(super) types: Vec<Definition>,
    pub(super) messages: Vec<Message>,
}

/// A type that fields use, in the order of first use.
pub(super) enum Definition {
    Enum { name: String, primitive: Primitive, values: Vec<(String, String)> },
    Set { name: String, primitive: Primitive, choices: Vec<(String, u32)> },
    Composite(Composite),
}

/// Members with their places.
#[derive(Clone)]
pub(super) struct Composite {
    pub(super) name: String,
    pub(super) members: Vec<Member>,
    pub(super) size: usize,
}

/// A message with its number.
pub(super) struct Message {
    pub(super) id: u32,
    pub(super) body: Body,
}

/// The parts of a message or of a group's entry, in their order.
pub(super) struct Body {
    pub(super) name: String,
    pub(super) members: Vec<Member>,
    pub(super) groups: Vec<Group>,
    pub(super) data: Vec<Data>,
}

/// A group, with the parts of one entry.
pub(super) struct Group {
    pub(super) since: u32,
    pub(super) dimension: Composite,
    pub(super) body: Body,
}

/// Data of any length.
pub(super) struct Data {
    pub(super) name: String,
    pub(super) since: u32,
    pub(super) layout: Composite,
}

/// A field of a block, or a member of a composite.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) at: usize,
    pub(super) since: u32,
    pub(super) is_optional: bool,
}

/// The type of a member. Names are those of the schema, values are Rust source.
#[derive(Clone)]
pub(super) enum Kind {
    Number { primitive: Primitive, null: String },
    Array { primitive: Primitive, len: usize },
    Constant { type_name: String, value: String },
    Enum { name: String, primitive: Primitive, null: String },
    Set { name: String, primitive: Primitive },
    Composite { name: String, size: usize },
    Fixed(Decimal),
}

/// A mantissa and an exponent.
#[derive(Clone)]
pub(super) struct Decimal {
    pub(super) mantissa: Primitive,
    pub(super) at: usize,
    pub(super) null: String,
    pub(super) is_optional: bool,
    pub(super) exponent: Exponent,
    pub(super) size: usize,
}

#[derive(Clone)]
pub(super) enum Exponent {
    /// A byte at this offset.
    At(usize),
    /// A value in Rust source.
    Constant(String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Primitive {
    Char,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

/// The primitive types in their order, each with its name in a schema, its type in Rust and its size in bytes.
const PRIMITIVES: [(Primitive, &str, &str, usize); 11] = [
    (Primitive::Char, "char", "u8", 1),
    (Primitive::I8, "int8", "i8", 1),
    (Primitive::I16, "int16", "i16", 2),
    (Primitive::I32, "int32", "i32", 4),
    (Primitive::I64, "int64", "i64", 8),
    (Primitive::U8, "uint8", "u8", 1),
    (Primitive::U16, "uint16", "u16", 2),
    (Primitive::U32, "uint32", "u32", 4),
    (Primitive::U64, "uint64", "u64", 8),
    (Primitive::F32, "float", "f32", 4),
    (Primitive::F64, "double", "f64", 8),
];

impl Primitive {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        PRIMITIVES.iter().find(|(_, one, ..)| *one == name).map(|(primitive, ..)| *primitive)
    }

    /// The type in Rust.
    pub(super) const fn rust(self) -> &'static str {
        PRIMITIVES[self as usize].2
    }

    pub(super) const fn size(self) -> usize {
        PRIMITIVES[self as usize].3
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether every value fits a mantissa.
    pub(super) const fn fits_mantissa(self) -> bool {
        !matches!(self, Self::Char | Self::U64 | Self::F32 | Self::F64)
    }

    /// The values that an integer can have.
    pub(super) const fn range(self) -> (i128, i128) {
        let half = 1 << (8 * self.size() - 1);
        match self {
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => (-half, half - 1),
            Self::Char | Self::U8 | Self::U16 | Self::U32 | Self::U64 => (0, 2 * half - 1),
            Self::F32 | Self::F64 => (0, 0),
        }
    }

    /// The value that stands for none unless the schema names another.
    pub(super) fn null(self) -> String {
        let (least, most) = self.range();
        match self {
            Self::Char => "0".to_owned(),
            Self::F32 | Self::F64 => "NAN".to_owned(),
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => least.to_string(),
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => most.to_string(),
        }
    }
}

impl Kind {
    /// Bytes of it in a block.
    pub(super) const fn size(&self) -> usize {
        match self {
            Self::Number { primitive, .. } | Self::Enum { primitive, .. } | Self::Set { primitive, .. } => {
                primitive.size()
            }
            Self::Array { primitive, len } => primitive.size().saturating_mul(*len),
            Self::Constant { .. } => 0,
            Self::Composite { size, .. } => *size,
            Self::Fixed(decimal) => decimal.size,
        }
    }
}

impl Member {
    /// Offset behind it.
    pub(super) const fn end(&self) -> usize {
        self.at.saturating_add(self.kind.size())
    }
}
