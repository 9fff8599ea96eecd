use crate::plain_error::plain_error;
use core::fmt;
use core::str::FromStr;
use std::collections::HashMap;

use roxmltree::{Document, Node, ParsingOptions};

use super::cursor::Order;
use super::names::{is_name, pascal};
use super::schema::{
    Body, Composite, Data, Decimal, Definition, Exponent, Group, Kind, Member, Message, Primitive, Schema,
};

/// Elements of XML that a schema may have.
const MOST_NODES: u32 = 200_000;
/// Composites and groups that may lie within each other.
const MOST_DEPTH: usize = 16;
/// Elements of an array, and offsets in a block, that a schema may have.
const MOST_BYTES: usize = 65_535;

/// A schema that no code can be generated for. Its author is at fault, or it uses a part of the standard that is not supported.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// The line of the schema, from one on.
    pub line: u32,
    /// The rule that does not hold.
    pub reason: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {} of the SBE schema: {}", self.line, self.reason)
    }
}

plain_error!(SchemaError);

/// Reads a schema.
pub(super) fn parse(xml: &str) -> Result<Schema, SchemaError> {
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options)
        .map_err(|error| SchemaError { line: error.pos().row, reason: error.to_string() })?;
    let root = document.root_element();
    let mut types = Types::default();
    for node in elements(root, "types").flat_map(|list| list.children().filter(Node::is_element)) {
        types.nodes.insert(name(node)?, node);
    }
    let order = match root.attribute("byteOrder") {
        None | Some("littleEndian") => Order::Little,
        Some("bigEndian") => Order::Big,
        Some(other) => return wrong(root, format!("`{other}` is no byte order")),
    };
    let header = types.layout(root, root.attribute("headerType").unwrap_or("messageHeader"))?;
    for part in ["blockLength", "templateId", "schemaId", "version"] {
        uint(root, &header, part)?;
    }
    let mut messages = Vec::new();
    for node in elements(root, "message") {
        let id = number(node, "id")?.map_or_else(|| wrong(node, "a message needs an `id`"), Ok)?;
        messages.push(Message { id, body: types.body(node, name(node)?.to_owned(), 0)? });
    }
    if messages.is_empty() {
        return wrong(root, "it has no message");
    }
    Ok(Schema {
        package: root.attribute("package").unwrap_or_default().to_owned(),
        id: number(root, "id")?.unwrap_or(0),
        version: number(root, "version")?.unwrap_or(0),
        order,
        header,
        types: types.used,
        messages,
    })
}

/// The types of a schema, and those that fields have used so far.
#[derive(Default)]
struct Types<'a, 'input> {
    nodes: HashMap<&'a str, Node<'a, 'input>>,
    known: HashMap<String, (Kind, bool)>,
    used: Vec<Definition>,
}

impl<'a, 'input> Types<'a, 'input> {
    /// Fields, groups and data of a message or an entry.
    fn body(&mut self, node: Node<'a, 'input>, name: String, depth: usize) -> Result<Body, SchemaError> {
        if depth > MOST_DEPTH {
            return wrong(node, format!("more than {MOST_DEPTH} groups are within each other"));
        }
        let mut body = Body { name, members: Vec::new(), groups: Vec::new(), data: Vec::new() };
        let mut at = 0;
        for child in node.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "field" => body.members.push(self.member(child, &mut at, 0)?),
                "group" => {
                    let dimension =
                        self.layout(child, child.attribute("dimensionType").unwrap_or("groupSizeEncoding"))?;
                    uint(child, &dimension, "blockLength")?;
                    uint(child, &dimension, "numInGroup")?;
                    let since = number(child, "sinceVersion")?.unwrap_or(0);
                    let inner = self.body(child, self::name(child)?.to_owned(), depth + 1)?;
                    body.groups.push(Group { since, dimension, body: inner });
                }
                "data" => {
                    let layout = self.layout(child, attribute(child, "type")?)?;
                    uint(child, &layout, "length")?;
                    if !layout.members.iter().any(|member| member.name == "varData") {
                        return wrong(child, format!("`{}` has no `varData`", layout.name));
                    }
                    let since = number(child, "sinceVersion")?.unwrap_or(0);
                    body.data.push(Data { name: self::name(child)?.to_owned(), since, layout });
                }
                _ => {}
            }
        }
        if number(node, "blockLength")?.is_some_and(|len: usize| len < at) {
            return wrong(node, format!("its `blockLength` is less than the {at} bytes of its fields"));
        }
        Ok(body)
    }

    /// A composite that only tells lengths and numbers. No view of it is generated.
    fn layout(&mut self, user: Node<'a, 'input>, name: &str) -> Result<Composite, SchemaError> {
        match self.nodes.get(name).copied() {
            Some(node) if node.tag_name().name() == "composite" => self.composite(node, 0),
            _ => wrong(user, format!("there is no composite `{name}`")),
        }
    }

    fn composite(&mut self, node: Node<'a, 'input>, depth: usize) -> Result<Composite, SchemaError> {
        if depth > MOST_DEPTH {
            return wrong(node, format!("more than {MOST_DEPTH} composites are within each other"));
        }
        let (mut members, mut at) = (Vec::new(), 0);
        for child in node.children().filter(Node::is_element) {
            members.push(self.member(child, &mut at, depth + 1)?);
        }
        Ok(Composite { name: name(node)?.to_owned(), members, size: at })
    }

    /// A field of a block or a member of a composite, behind those before it.
    fn member(&mut self, node: Node<'a, 'input>, end: &mut usize, depth: usize) -> Result<Member, SchemaError> {
        let is_reference = matches!(node.tag_name().name(), "field" | "ref");
        let (kind, is_optional) = if is_reference { self.field(node, depth)? } else { self.definition(node, depth)? };
        let at = number(node, "offset")?.unwrap_or(*end);
        if at < *end {
            return wrong(node, format!("its offset {at} lies in the field before it, which ends at {end}"));
        }
        let member = Member {
            name: name(node)?.to_owned(),
            kind,
            at,
            since: number(node, "sinceVersion")?.unwrap_or(0),
            is_optional,
        };
        if member.end() > MOST_BYTES {
            return wrong(node, format!("it ends behind byte {MOST_BYTES} of its block"));
        }
        *end = member.end().max(*end);
        Ok(member)
    }

    /// The type that a field names, and whether it is optional.
    fn field(&mut self, node: Node<'a, 'input>, depth: usize) -> Result<(Kind, bool), SchemaError> {
        let type_name = attribute(node, "type")?;
        if let Some(known) = self.known.get(type_name) {
            return self.presence(node, known.clone());
        }
        let kind = match self.nodes.get(type_name).copied() {
            Some(definition) => self.definition(definition, depth)?,
            None => match Primitive::from_name(type_name) {
                Some(primitive) => (Kind::Number { primitive, null: primitive.null() }, false),
                None => return wrong(node, format!("there is no type `{type_name}`")),
            },
        };
        self.known.insert(type_name.to_owned(), kind.clone());
        self.presence(node, kind)
    }

    /// Applies the presence that a field has of its own.
    fn presence(
        &mut self,
        node: Node<'a, 'input>,
        (kind, is_optional): (Kind, bool),
    ) -> Result<(Kind, bool), SchemaError> {
        if let Some(reference) = node.attribute("valueRef") {
            return Ok((self.constant(node, reference)?, false));
        }
        match (node.attribute("presence"), kind) {
            (None, kind) => Ok((kind, is_optional)),
            (Some("required"), kind) | (Some("constant"), kind @ Kind::Constant { .. }) => Ok((kind, false)),
            (Some("optional"), kind) => Ok((kind, true)),
            _ => wrong(node, "a constant needs a value: `valueRef`, or one in its type"),
        }
    }

    /// A value of an enum, by `Enum.Value`.
    fn constant(&mut self, node: Node<'a, 'input>, reference: &'a str) -> Result<Kind, SchemaError> {
        let nothing = || format!("there is no value `{reference}` of an enum");
        let Some((type_name, value)) = reference.split_once('.') else { return wrong(node, nothing()) };
        let Some(definition) = self.nodes.get(type_name).copied() else { return wrong(node, nothing()) };
        if !elements(definition, "validValue").any(|listed| listed.attribute("name") == Some(value)) {
            return wrong(node, nothing());
        }
        if !self.known.contains_key(type_name) {
            let kind = self.definition(definition, 0)?;
            self.known.insert(type_name.to_owned(), kind);
        }
        Ok(Kind::Constant { type_name: pascal(type_name), value: format!("{}::{}", pascal(type_name), pascal(value)) })
    }

    /// A type of the schema, and whether it is optional.
    fn definition(&mut self, node: Node<'a, 'input>, depth: usize) -> Result<(Kind, bool), SchemaError> {
        match node.tag_name().name() {
            "type" => simple(node),
            "composite" => {
                let composite = self.composite(node, depth)?;
                if let Some(decimal) = decimal(&composite) {
                    let is_optional = decimal.is_optional;
                    return Ok((Kind::Fixed(decimal), is_optional));
                }
                let kind = Kind::Composite { name: composite.name.clone(), size: composite.size };
                self.used.push(Definition::Composite(composite));
                Ok((kind, false))
            }
            "enum" => {
                let primitive = self.encoding(node)?;
                let null = integer(node, "nullValue", primitive)?.unwrap_or_else(|| primitive.null());
                let mut values: Vec<(String, String)> = Vec::new();
                for value in elements(node, "validValue") {
                    let written = literal(value, value.text().unwrap_or_default().trim(), primitive)?;
                    if values.iter().any(|(_, known)| *known == written) {
                        return wrong(value, "an earlier value of the enum is the same");
                    }
                    values.push((name(value)?.to_owned(), written));
                }
                let name = name(node)?.to_owned();
                self.used.push(Definition::Enum { name: name.clone(), primitive, values });
                Ok((Kind::Enum { name, primitive, null }, false))
            }
            "set" => {
                let primitive = self.encoding(node)?;
                if !matches!(primitive, Primitive::U8 | Primitive::U16 | Primitive::U32 | Primitive::U64) {
                    return wrong(node, "a set is encoded as an unsigned integer");
                }
                let mut choices = Vec::new();
                for choice in elements(node, "choice") {
                    let bit = choice.text().and_then(|bit| bit.trim().parse().ok());
                    match bit {
                        Some(bit) if bit < 8 * u32::try_from(primitive.size()).unwrap_or(0) => {
                            choices.push((name(choice)?.to_owned(), bit));
                        }
                        _ => return wrong(choice, "a choice is the number of a bit of its set"),
                    }
                }
                let name = name(node)?.to_owned();
                self.used.push(Definition::Set { name: name.clone(), primitive, choices });
                Ok((Kind::Set { name, primitive }, false))
            }
            other => wrong(node, format!("`{other}` is no type")),
        }
    }

    /// The type of an enum's or a set's values.
    fn encoding(&self, node: Node<'_, '_>) -> Result<Primitive, SchemaError> {
        let name = attribute(node, "encodingType")?;
        let primitive = Primitive::from_name(name).or_else(|| {
            let named = self.nodes.get(name)?;
            Primitive::from_name(named.attribute("primitiveType")?)
        });
        match primitive {
            Some(primitive) if !primitive.is_float() => Ok(primitive),
            _ => wrong(node, format!("`{name}` is no type of integers")),
        }
    }
}

/// A number, an array, a text or a constant.
fn simple(node: Node<'_, '_>) -> Result<(Kind, bool), SchemaError> {
    let primitive_name = attribute(node, "primitiveType")?;
    let Some(primitive) = Primitive::from_name(primitive_name) else {
        return wrong(node, format!("there is no primitive type `{primitive_name}`"));
    };
    if node.attribute("presence") == Some("constant") {
        let text = node.text().unwrap_or_default().trim();
        if primitive == Primitive::Char && text.len() != 1 {
            let value = format!("\"{}\"", text.escape_default());
            return Ok((Kind::Constant { type_name: "&'static str".to_owned(), value }, false));
        }
        let value = literal(node, text, primitive)?;
        return Ok((Kind::Constant { type_name: primitive.rust().to_owned(), value }, false));
    }
    let is_optional = node.attribute("presence") == Some("optional");
    let len = number(node, "length")?.unwrap_or(1);
    if len > MOST_BYTES {
        return wrong(node, format!("an array has at most {MOST_BYTES} elements"));
    }
    if len != 1 {
        return Ok((Kind::Array { primitive, len }, is_optional));
    }
    let null = if primitive.is_float() { None } else { integer(node, "nullValue", primitive)? };
    Ok((Kind::Number { primitive, null: null.unwrap_or_else(|| primitive.null()) }, is_optional))
}

/// The composite as a mantissa and an exponent, if it is one that a fixed-point number can hold.
fn decimal(composite: &Composite) -> Option<Decimal> {
    let [mantissa, exponent] = composite.members.as_slice() else { return None };
    let Kind::Number { primitive, null } = &mantissa.kind else { return None };
    if mantissa.name != "mantissa" || exponent.name != "exponent" || !primitive.fits_mantissa() {
        return None;
    }
    let power = match &exponent.kind {
        Kind::Number { primitive: Primitive::I8, .. } => Exponent::At(exponent.at),
        Kind::Constant { type_name, value } if type_name == "i8" => Exponent::Constant(value.clone()),
        _ => return None,
    };
    let (at, null, size) = (mantissa.at, null.clone(), composite.size);
    Some(Decimal { mantissa: *primitive, at, null, is_optional: mantissa.is_optional, exponent: power, size })
}

/// A part of a header that is an unsigned integer.
fn uint(user: Node<'_, '_>, layout: &Composite, part: &str) -> Result<(), SchemaError> {
    let is_uint = |member: &&Member| {
        matches!(
            member.kind,
            Kind::Number { primitive: Primitive::U8 | Primitive::U16 | Primitive::U32 | Primitive::U64, .. }
        )
    };
    match layout.members.iter().find(|member| member.name == part).filter(is_uint) {
        Some(_) => Ok(()),
        None => wrong(user, format!("`{}` has no unsigned integer `{part}`", layout.name)),
    }
}

/// A value of a primitive type as Rust source.
fn literal(node: Node<'_, '_>, text: &str, primitive: Primitive) -> Result<String, SchemaError> {
    let not = || format!("`{text}` is no value of its type");
    if primitive.is_float() {
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(format!("{value:?}")),
            _ => wrong(node, not()),
        };
    }
    // A character stands for itself, also a digit.
    if primitive == Primitive::Char
        && let [byte] = text.as_bytes()
    {
        return Ok(byte.to_string());
    }
    let (least, most) = primitive.range();
    match text.parse::<i128>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value.to_string()),
        _ => wrong(node, not()),
    }
}

/// An attribute that is a value of a primitive type, as Rust source.
fn integer(node: Node<'_, '_>, attribute: &str, primitive: Primitive) -> Result<Option<String>, SchemaError> {
    node.attribute(attribute).map(|text| literal(node, text.trim(), primitive)).transpose()
}

fn number<T: FromStr>(node: Node<'_, '_>, attribute: &str) -> Result<Option<T>, SchemaError> {
    let Some(text) = node.attribute(attribute) else { return Ok(None) };
    text.trim().parse().map_or_else(
        |_| wrong(node, format!("`{attribute}` is no number that fits: `{text}`")),
        |value| Ok(Some(value)),
    )
}

fn attribute<'a>(node: Node<'a, '_>, attribute: &str) -> Result<&'a str, SchemaError> {
    node.attribute(attribute)
        .map_or_else(|| wrong(node, format!("`{}` needs `{attribute}`", node.tag_name().name())), Ok)
}

/// The name of an element, which becomes part of source code.
fn name<'a>(node: Node<'a, '_>) -> Result<&'a str, SchemaError> {
    let name = attribute(node, "name")?;
    if is_name(name) { Ok(name) } else { wrong(node, format!("`{}` is no name of SBE", name.escape_default())) }
}

fn elements<'a, 'input: 'a>(node: Node<'a, 'input>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == tag)
}

fn wrong<T>(node: Node<'_, '_>, reason: impl Into<String>) -> Result<T, SchemaError> {
    let line = node.document().text_pos_at(node.range().start).row;
    Err(SchemaError { line, reason: reason.into() })
}
