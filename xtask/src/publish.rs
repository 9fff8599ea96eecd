//! The crates as registries take them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cargo::cargo;
use crate::outcome::{Outcome, none_of};
use crate::process::{self, run};
use crate::stage::Context;

/// Packs every crate that is published, with the versions that registries will have. Nothing is built again, and no
/// registry is asked.
pub(crate) fn check(context: &Context) -> Outcome {
    let metadata = process::printed(&mut cargo(&["metadata", "--no-deps", "--locked", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    let published: Vec<&Value> = packages.iter().filter(|package| package["publish"].is_null()).collect();
    let wrong: Vec<String> = published.iter().flat_map(|package| faults(package)).collect();
    none_of(&wrong, "; ")?;
    let names: Vec<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut pack = cargo(&["package", "--locked", "--no-verify", "--allow-dirty", "--quiet"]);
    run(pack.args(names.iter().flat_map(|name| ["-p", name])), context.deadline)?;
    eprintln!("{} crates can be published: {}", names.len(), names.join(", "));
    Ok(())
}

/// The faults of a package that a registry refuses, or that its page would show.
fn faults(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut faults: Vec<String> = ["description", "license", "repository", "rust_version"]
        .iter()
        .filter(|field| package[**field].as_str().is_none_or(str::is_empty))
        .map(|field| format!("{name} has no {field}"))
        .collect();
    let dependencies = package["dependencies"].as_array().cloned().unwrap_or_default();
    let unversioned = dependencies
        .iter()
        .filter(|dependency| dependency["path"].is_string() && dependency["req"] == "*" && dependency["kind"] != "dev");
    faults.extend(unversioned.map(|dependency| format!("{name} needs {} without a version", dependency["name"])));
    // A file outside of the package is not packed.
    let folder =
        Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent().unwrap_or_else(|| Path::new("/"));
    let readme = package["readme"].as_str().map(|readme| folder.join(readme));
    faults.extend(readme.filter(|readme| fs::metadata(readme).is_err()).map(|_| format!("{name} has no readme")));
    faults
}
