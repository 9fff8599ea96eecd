use std::collections::HashSet;

use super::emit;
use super::names::{pascal, snake};
use super::parse::{SchemaError, parse};
use super::schema::{Body, Definition, Schema};

/// Names of generated code itself, and of Rust's prelude where that code uses it.
const RESERVED: [&str; 8] = ["AnyMessage", "Err", "None", "Ok", "Option", "Result", "Self_", "Some"];

/// Generates views of all messages of a schema, as Rust source.
///
/// The source belongs in a module of its own and uses this crate by its name:
///
/// ```no_run
/// // build.rs
/// let schema = std::fs::read_to_string("market.xml")?;
/// let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("market.rs");
/// std::fs::write(path, tautline_feed::sbe::generate(&schema)?)?;
/// // In the crate: mod market { include!(concat!(env!("OUT_DIR"), "/market.rs")); }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the schema is malformed, or uses names that would meet in Rust.
pub fn generate(xml: &str) -> Result<String, SchemaError> {
    let schema = parse(xml)?;
    check_names(&schema)?;
    Ok(emit::schema(&schema))
}

/// Checks that no two items of the generated code have one name.
fn check_names(schema: &Schema) -> Result<(), SchemaError> {
    let mut types =
        Names { scope: "the schema".to_owned(), seen: RESERVED.iter().map(|&name| name.to_owned()).collect() };
    for definition in &schema.types {
        match definition {
            Definition::Enum { name, values, .. } => {
                types.add(pascal(name))?;
                let mut variants = Names::of(name);
                variants.add("Unlisted".to_owned())?;
                values.iter().try_for_each(|(value, _)| variants.add(pascal(value)))?;
            }
            Definition::Set { name, choices, .. } => {
                types.add(pascal(name))?;
                let mut methods = Names::of(name);
                choices.iter().try_for_each(|(choice, _)| methods.add(snake(choice)))?;
            }
            Definition::Composite(composite) => {
                types.add(pascal(&composite.name))?;
                let mut methods = Names::of(&composite.name);
                composite.members.iter().try_for_each(|member| methods.add(snake(&member.name)))?;
            }
        }
    }
    let mut templates = HashSet::new();
    for message in &schema.messages {
        body(&message.body, pascal(&message.body.name), &mut types)?;
        if !templates.insert(message.id) {
            return Err(SchemaError { line: 1, reason: format!("two messages have the id {}", message.id) });
        }
    }
    types.add("Unlisted".to_owned())
}

fn body(body: &Body, type_name: String, types: &mut Names) -> Result<(), SchemaError> {
    let mut methods = Names::of(&body.name);
    let groups = body.groups.iter().map(|group| &group.body.name);
    let names =
        body.members.iter().map(|member| &member.name).chain(groups).chain(body.data.iter().map(|data| &data.name));
    for name in names {
        methods.add(snake(name))?;
    }
    for group in &body.groups {
        self::body(&group.body, type_name.clone() + &pascal(&group.body.name), types)?;
    }
    types.add(type_name)
}

/// Names that must differ.
struct Names {
    scope: String,
    seen: HashSet<String>,
}

impl Names {
    fn of(scope: &str) -> Self {
        Self { scope: format!("`{scope}`"), seen: HashSet::new() }
    }

    fn add(&mut self, name: String) -> Result<(), SchemaError> {
        if self.seen.contains(&name) {
            let reason =
                format!("the name `{name}` of Rust is taken already in {}; rename one in your copy", self.scope);
            return Err(SchemaError { line: 1, reason });
        }
        self.seen.insert(name);
        Ok(())
    }
}
