//! Prints Rust source of the views of an SBE schema: `cargo run --example sbe_views -- market.xml > market.rs`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("the argument is the file of the schema")?;
    print!("{}", tautline_feed::sbe::generate(&std::fs::read_to_string(path)?)?);
    Ok(())
}
