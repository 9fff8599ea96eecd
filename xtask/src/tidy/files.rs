//! The text files of the checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::paths;

/// Texts by the path of their file below the root.
pub(super) type Files = BTreeMap<String, String>;

/// Folders without files of ours.
const NOT_OURS: [&str; 6] = ["target", ".git", "node_modules", "corpus", "artifacts", "LICENSES"];

/// The folders of all crates.
pub(super) fn packages(files: &Files) -> Vec<&str> {
    files.keys().filter_map(|path| path.strip_suffix("/Cargo.toml")).collect()
}

/// Reads them.
pub(super) fn read() -> std::io::Result<Files> {
    let mut files = Files::new();
    list(&paths::root(), "", &mut files)?;
    Ok(files)
}

fn list(folder: &Path, prefix: &str, files: &mut Files) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            list(&entry.path(), &format!("{prefix}{name}/"), files)?;
        } else if kind.is_file()
            // A file that is not UTF-8 is no text.
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            files.insert(format!("{prefix}{name}"), text);
        }
    }
    Ok(())
}
