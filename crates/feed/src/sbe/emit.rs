//! Rust source of the views.

use core::fmt::Write;

use super::cursor::Order;
use super::names::{pascal, snake};
use super::schema::{Body, Composite, Definition, Group, Kind, Member, Primitive, Schema};
use super::values::{Value, value};

/// Writes lines to a string, which never fails.
macro_rules! line {
    ($out:expr, $($argument:tt)*) => {
        let _ = writeln!($out, $($argument)*);
    };
}

/// The source of all items of a schema.
pub(super) fn schema(schema: &Schema) -> String {
    let mut out = String::new();
    let Schema { package, id, version, .. } = schema;
    line!(out, "// Views of the SBE schema `{}`, number {id}, version {version}.", package.escape_default());
    line!(out, "// Written by `tautline_feed::sbe::generate`: change the schema instead.\n");
    line!(out, "use ::tautline_feed::sbe;\n");
    header(&mut out, schema);
    any_message(&mut out, schema);
    let writer = Writer { order: schema.order };
    for message in &schema.messages {
        let name = pascal(&message.body.name);
        writer.body(&mut out, &message.body, &name, Some(message.id));
        writer.groups(&mut out, &message.body.groups, &name);
    }
    for definition in &schema.types {
        writer.definition(&mut out, definition);
    }
    out
}

fn header(out: &mut String, schema: &Schema) {
    let layout = &schema.header;
    let order = if schema.order == Order::Little { "Little" } else { "Big" };
    line!(out, "/// Number of the schema.\npub const SCHEMA: u32 = {};\n", schema.id);
    line!(
        out,
        "/// The newest version of the schema that these views know.\npub const VERSION: u32 = {};\n",
        schema.version
    );
    line!(out, "const HEADER: sbe::HeaderLayout = sbe::HeaderLayout {{");
    line!(out, "    name: \"{}\",\n    size: {},", layout.name, layout.size);
    for (field, part) in
        [("block_length", "blockLength"), ("template", "templateId"), ("schema", "schemaId"), ("version", "version")]
    {
        line!(out, "    {field}: {},", uint(layout, part));
    }
    line!(out, "    order: sbe::Order::{order},\n}};\n");
    line!(out, "/// Reads the header of a message of this schema.");
    line!(out, "fn header(bytes: &[u8]) -> Result<sbe::Header, sbe::SbeError> {{");
    line!(out, "    let header = HEADER.read(bytes)?;");
    line!(out, "    if header.schema == SCHEMA {{\n        return Ok(header);\n    }}");
    line!(out, "    let fault = sbe::SbeFault::Schema(header.schema);");
    let at = layout.members.iter().find(|member| member.name == "schemaId").map_or(0, |member| member.at);
    line!(out, "    Err(sbe::SbeError {{ message: HEADER.name, field: \"schemaId\", at: {at}, fault }})\n}}\n");
}

fn any_message(out: &mut String, schema: &Schema) {
    line!(out, "/// Any message of the schema.\n#[derive(Clone, Copy, Debug)]\npub enum AnyMessage<'a> {{");
    for message in &schema.messages {
        let name = pascal(&message.body.name);
        line!(out, "    /// A message `{}`.\n    {name}({name}<'a>),", message.body.name);
    }
    line!(
        out,
        "    /// The header of a message of a template that the schema does not have.\n    Unlisted(sbe::Header),\n}}\n"
    );
    line!(out, "impl<'a> AnyMessage<'a> {{\n    /// Reads a message of any template.\n    ///\n    /// # Errors");
    line!(out, "    /// If the message is cut, damaged or of another schema.");
    line!(out, "    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {{");
    line!(out, "        let header = header(bytes)?;\n        match header.template {{");
    for message in &schema.messages {
        let name = pascal(&message.body.name);
        line!(out, "            {name}::TEMPLATE => {name}::read(bytes, &header).map(Self::{name}),");
    }
    line!(out, "            _ => Ok(Self::Unlisted(header)),\n        }}\n    }}\n}}\n");
}

/// The place of an unsigned integer, which was checked to be one.
fn uint(layout: &Composite, part: &str) -> String {
    let member = layout.members.iter().find(|member| member.name == part);
    let (at, size) = member.map_or((0, 1), |member| (member.at, member.kind.size()));
    format!("sbe::Uint {{ at: {at}, size: {size} }}")
}

/// Writes items for one order of bytes.
struct Writer {
    order: Order,
}

/// Where a view has its bytes.
#[derive(Clone, Copy)]
struct Parts {
    /// Bytes that every version has.
    base: usize,
    /// Some field is read from them.
    has_base: bool,
    /// Some field is of a later version.
    has_later: bool,
}

impl Parts {
    fn of(members: &[Member]) -> Self {
        let stored = || members.iter().filter(|member| !matches!(member.kind, Kind::Constant { .. }));
        let base = members.iter().filter(|member| member.since == 0).map(Member::end).max().unwrap_or(0);
        Self {
            base,
            has_base: stored().any(|member| member.since == 0),
            has_later: stored().any(|member| member.since > 0),
        }
    }
}

impl Writer {
    /// The view of a message, which has a template, or of an entry.
    fn body(&self, out: &mut String, body: &Body, type_name: &str, template: Option<u32>) {
        let parts = Parts::of(&body.members);
        let what = if template.is_some() { "message" } else { "entry of group" };
        line!(
            out,
            "/// A view of one {what} `{}`.\n#[derive(Clone, Copy, Debug)]\npub struct {type_name}<'a> {{",
            body.name
        );
        if parts.has_base {
            line!(out, "    base: &'a [u8; {}],", parts.base);
        }
        if parts.has_later {
            line!(out, "    block: &'a [u8],\n    version: u32,");
        }
        for group in &body.groups {
            let (field, entry) = (snake(&group.body.name), type_name.to_owned() + &pascal(&group.body.name));
            line!(out, "    {field}: sbe::Entries<'a, {entry}<'a>>,");
        }
        for data in &body.data {
            line!(out, "    {}: &'a [u8],", snake(&data.name));
        }
        if template.is_some() {
            line!(out, "    encoded_len: usize,\n}}\n");
        } else {
            // Without any field, the lifetime would have no use.
            line!(out, "    _message: core::marker::PhantomData<&'a [u8]>,\n}}\n");
        }
        line!(out, "impl<'a> {type_name}<'a> {{");
        if let Some(id) = template {
            message_methods(out, body, id);
            self.read(out, body, parts, template);
        }
        for member in &body.members {
            self.accessor(out, member, "self.base");
        }
        for group in &body.groups {
            let (method, entry) = (snake(&group.body.name), type_name.to_owned() + &pascal(&group.body.name));
            line!(out, "    /// Entries of group `{}`{}.", group.body.name, version_note(group.since));
            line!(
                out,
                "    #[must_use] pub const fn {method}(&self) -> sbe::Entries<'a, {entry}<'a>> {{ self.{method} }}\n"
            );
        }
        for data in &body.data {
            let method = snake(&data.name);
            line!(out, "    /// Data `{}`{}.", data.name, version_note(data.since));
            line!(out, "    #[must_use] pub const fn {method}(&self) -> &'a [u8] {{ self.{method} }}\n");
        }
        line!(out, "}}\n");
        if template.is_none() {
            let is_flat = body.groups.is_empty() && body.data.is_empty();
            line!(out, "impl<'a> sbe::Entry<'a> for {type_name}<'a> {{\n    const IS_FLAT: bool = {is_flat};\n");
            self.read(out, body, parts, None);
            line!(out, "}}\n");
        }
    }

    /// The function that reads a message or an entry.
    fn read(&self, out: &mut String, body: &Body, parts: Parts, template: Option<u32>) {
        if template.is_some() {
            line!(out, "    fn read(bytes: &'a [u8], header: &sbe::Header) -> Result<Self, sbe::SbeError> {{");
        } else {
            line!(out, "    #[inline]");
            line!(
                out,
                "    fn read(cursor: &mut sbe::Cursor<'a>, block_length: u32) -> Result<Self, sbe::SbeError> {{"
            );
        }
        for (name, is_later) in [("FIELDS", false), ("LATER", true)] {
            let fields = body.members.iter().filter(|member| (member.since > 0) == is_later && member.kind.size() > 0);
            let _ = write!(out, "        const {name}: &[sbe::Field] = &[");
            for member in fields {
                let (at, end, since) = (member.at, member.end(), member.since);
                line!(
                    out,
                    "            sbe::Field {{ name: \"{}\", since: {since}, at: {at}, end: {end} }},",
                    member.name
                );
            }
            line!(out, "        ];");
        }
        if template.is_some() {
            line!(out, "        let mut cursor = sbe::Cursor::new(bytes, \"{}\", &HEADER, header);", body.name);
            line!(out, "        let block_length = header.block_length;");
        }
        let names = (if parts.has_base { "base" } else { "_" }, if parts.has_later { "block" } else { "_" });
        line!(
            out,
            "        let ({}, {}) = cursor.block::<{}>(block_length, FIELDS, LATER)?;",
            names.0,
            names.1,
            parts.base
        );
        let cursor = if template.is_some() { "&mut cursor" } else { "cursor" };
        for group in &body.groups {
            let (field, name, dimension) = (snake(&group.body.name), &group.body.name, &group.dimension);
            let (size, len, count) = (dimension.size, uint(dimension, "blockLength"), uint(dimension, "numInGroup"));
            let layout = format!("sbe::Dimension {{ size: {size}, block_length: {len}, count: {count} }}");
            let read = format!("sbe::Entries::read({cursor}, \"{name}\", &{layout})?");
            let absent = format!("sbe::Entries::absent({})", cursor.replace("&mut ", "&"));
            line!(out, "        let {field} = {};", since(group.since, &read, &absent));
        }
        for data in &body.data {
            let at = data.layout.members.iter().find(|member| member.name == "varData").map_or(0, |member| member.at);
            let layout = format!("sbe::DataLayout {{ length: {}, at: {at} }}", uint(&data.layout, "length"));
            let read = format!("cursor.data(\"{}\", &{layout})?", data.name);
            line!(out, "        let {}: &[u8] = {};", snake(&data.name), since(data.since, &read, "&[]"));
        }
        let mut fields = Vec::new();
        fields.extend(parts.has_base.then(|| "base".to_owned()));
        fields.extend(parts.has_later.then(|| "block, version: cursor.version()".to_owned()));
        fields.extend(body.groups.iter().map(|group| snake(&group.body.name)));
        fields.extend(body.data.iter().map(|data| snake(&data.name)));
        let last =
            if template.is_some() { "encoded_len: cursor.offset()" } else { "_message: core::marker::PhantomData" };
        fields.push(last.to_owned());
        line!(out, "        Ok(Self {{ {} }})\n    }}\n", fields.join(", "));
    }

    fn groups(&self, out: &mut String, groups: &[Group], owner: &str) {
        for group in groups {
            let name = owner.to_owned() + &pascal(&group.body.name);
            self.body(out, &group.body, &name, None);
            self.groups(out, &group.body.groups, &name);
        }
    }

    /// The method of a field. `base` is where fields of all versions are.
    fn accessor(&self, out: &mut String, member: &Member, base: &str) {
        let method = snake(&member.name);
        if let Kind::Constant { type_name, value } = &member.kind {
            line!(out, "    /// Field `{}`, which is constant.\n    #[must_use]", member.name);
            line!(out, "    pub const fn {method}(&self) -> {type_name} {{\n        {value}\n    }}\n");
            return;
        }
        let is_later = member.since > 0;
        let source = if is_later { "self.block" } else { base };
        let Value { type_name, value, none } = value(self.order, &member.kind, member.at, source);
        let none = none.filter(|_| member.is_optional);
        let is_option = is_later || none.is_some();
        let optional = if is_option { ", if the message has a value" } else { "" };
        line!(
            out,
            "    /// Field `{}`{}{optional}.\n    #[must_use] #[inline]",
            member.name,
            version_note(member.since)
        );
        let returned = if is_option { format!("Option<{type_name}>") } else { type_name };
        line!(out, "    pub fn {method}(&self) -> {returned} {{");
        if is_later {
            line!(out, "        if self.version < {} {{ return None; }}", member.since);
        }
        if let Some(none) = none {
            line!(out, "        if {none} {{ return None; }}");
        }
        line!(out, "        {}\n    }}\n", if is_option { format!("Some({value})") } else { value });
    }

    fn definition(&self, out: &mut String, definition: &Definition) {
        match definition {
            Definition::Enum { name, primitive, values } => enumeration(out, name, *primitive, values),
            Definition::Set { name, primitive, choices } => {
                let (type_name, rust) = (pascal(name), primitive.rust());
                line!(out, "/// A set `{name}`, with one bit for each choice.");
                line!(out, "#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub struct {type_name}(pub {rust});\n");
                line!(out, "impl {type_name} {{");
                for (choice, bit) in choices {
                    let method = snake(choice);
                    line!(out, "    /// Whether the choice `{choice}` is made.\n    #[must_use]");
                    let mask = 1_u64.checked_shl(*bit).unwrap_or(0);
                    line!(out, "    pub const fn {method}(self) -> bool {{\n        self.0 & {mask:#x} != 0\n    }}\n");
                }
                line!(out, "}}\n");
            }
            Definition::Composite(composite) => {
                let (name, type_name) = (&composite.name, pascal(&composite.name));
                line!(out, "/// A view of a composite `{name}`.\n#[derive(Clone, Copy, Debug)]");
                line!(out, "pub struct {type_name}<'a> {{\n    base: &'a [u8; {}],\n}}\n", composite.size);
                line!(out, "impl<'a> {type_name}<'a> {{");
                for member in &composite.members {
                    // A composite has no versions of its own: its members are all there.
                    self.accessor(out, &Member { since: 0, ..member.clone() }, "self.base");
                }
                line!(out, "}}\n");
            }
        }
    }
}

/// Chooses by the version of the message.
fn since(version: u32, present: &str, absent: &str) -> String {
    if version == 0 {
        return present.to_owned();
    }
    format!("if cursor.version() >= {version} {{ {present} }} else {{ {absent} }}")
}

fn version_note(since: u32) -> String {
    if since == 0 { String::new() } else { format!(", from version {since} on") }
}

fn message_methods(out: &mut String, body: &Body, id: u32) {
    let name = &body.name;
    line!(out, "    /// Number of the message's template.\n    pub const TEMPLATE: u32 = {id};\n");
    line!(out, "    /// Reads a message `{name}`.\n    ///\n    /// # Errors");
    line!(out, "    /// If the message is cut, damaged, or another one.");
    line!(out, "    pub fn decode(bytes: &'a [u8]) -> Result<Self, sbe::SbeError> {{");
    line!(out, "        let header = header(bytes)?;");
    line!(out, "        if header.template == Self::TEMPLATE {{ return Self::read(bytes, &header); }}");
    line!(out, "        let fault = sbe::SbeFault::Template(header.template);");
    line!(out, "        Err(sbe::SbeError {{ message: \"{name}\", field: \"templateId\", at: 0, fault }})\n    }}\n");
    line!(out, "    /// Bytes of the message, header included. Others may follow it.\n    #[must_use]");
    line!(out, "    pub const fn encoded_len(&self) -> usize {{ self.encoded_len }}\n");
}

fn enumeration(out: &mut String, name: &str, primitive: Primitive, values: &[(String, String)]) {
    let (type_name, rust) = (pascal(name), primitive.rust());
    line!(
        out,
        "/// A value of the enum `{name}`.\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub enum {type_name} {{"
    );
    for (value, _) in values {
        line!(out, "    /// `{value}`.\n    {},", pascal(value));
    }
    line!(out, "    /// A value that the schema does not list.\n    Unlisted({rust}),\n}}\n");
    line!(out, "impl {type_name} {{\n    /// The value that stands for a number.\n    #[must_use]");
    line!(out, "    pub const fn from_value(value: {rust}) -> Self {{\n        match value {{");
    for (value, number) in values {
        line!(out, "            {number} => Self::{},", pascal(value));
    }
    line!(out, "            _ => Self::Unlisted(value),\n        }}\n    }}\n}}\n");
}
