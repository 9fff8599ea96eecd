//! The debug form of public errors is for people too: a `main` that returns one prints it.

use super::files::Files;

/// Finds public types that implement `Error` and derive `Debug`.
pub(super) fn check(files: &Files) -> Vec<String> {
    let sources = files.iter().filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"));
    sources.flat_map(|(path, content)| file(path, content)).collect()
}

fn file(path: &str, content: &str) -> Vec<String> {
    let lines: Vec<&str> = content.lines().collect();
    let implemented = lines.iter().filter_map(|line| line.strip_prefix("impl ")?.split_once("Error for ")).filter_map(
        |(of, name)| {
            let is_std = ["", "std::error::", "core::error::", "error::"].contains(&of);
            is_std.then(|| name.split([' ', '<', '{']).next().unwrap_or_default())
        },
    );
    let derives = |name: &str| {
        let begins = |line: &str| {
            let named = ["pub struct ", "pub enum "].iter().find_map(|kind| line.strip_prefix(kind));
            named.is_some_and(|rest| rest.split([' ', '(', ';', '<', '{']).next() == Some(name))
        };
        let at = lines.iter().position(|line| begins(line))?;
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with(['#', '/']));
        attributes.into_iter().any(|line| line.starts_with("#[derive(") && line.contains("Debug")).then_some(at + 1)
    };
    let wrong = implemented.filter_map(|name| derives(name).map(|line| (line, name)));
    wrong
        .map(|(line, name)| format!("{path}:{line}: {name} derives Debug: print its text, as `main` shows that form"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::file;

    #[test]
    fn a_public_error_that_derives_its_debug_form_is_found() {
        let error = |derive: &str, of: &str| {
            format!(
                "{derive}\n/// An error.\n#[non_exhaustive]\npub enum Bad<T> {{\n}}\n\nimpl {of}Error for Bad<u8> {{}}\n"
            )
        };
        let found = file("crates/a/src/b.rs", &error("#[derive(Clone, Debug)]", "std::error::"));
        assert_eq!(found, ["crates/a/src/b.rs:4: Bad derives Debug: print its text, as `main` shows that form"]);
        assert_eq!(file("crates/a/src/b.rs", &error("#[derive(Clone)]", "std::error::")), [""; 0]);
        assert_eq!(file("crates/a/src/b.rs", &error("#[derive(Debug)]", "de::")), [""; 0]);
    }
}
