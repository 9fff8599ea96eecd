//! Has the generators of other crates read the schema of our tests.

use std::env::var;
use std::path::Path;
use std::{error, fs};

const SCHEMA: &str = "../../crates/feed/tests/sbe/market.xml";

fn main() -> Result<(), Box<dyn error::Error>> {
    println!("cargo::rerun-if-changed={SCHEMA}");
    let schema = fs::read_to_string(SCHEMA)?;
    let out = var("OUT_DIR")?;
    // Its code for a constant of characters does not compile, and a constant takes no bytes.
    let without = schema.replace(r#"<field id="6" name="currency" type="currency"/>"#, "");
    ergo_sbe::build::generate_str_to_dir(&without, ergo_sbe::GenerationConfig::new("ergo"), Path::new(&out))?;
    // It does not know that the dimensions of a group have a default.
    let mut explicit = schema;
    for side in ["bids", "asks"] {
        let group = format!(r#"name="{side}""#);
        explicit = explicit.replace(&group, &format!(r#"{group} dimensionType="groupSizeEncoding""#));
    }
    let folder = Path::new(&out).join("sbe_gen");
    sbe_gen::generate_to(&explicit, &folder, &sbe_gen::GeneratorOptions::default())?;
    // Its list of modules begins with an attribute, which a file that is included cannot have.
    let modules =
        "pub mod types; pub mod message_header; pub mod trades_event; pub mod best_bid_ask; pub mod depth_event;";
    fs::write(folder.join("modules.rs"), modules)?;
    Ok(())
}
