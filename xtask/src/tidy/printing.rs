//! The rule for output: libraries print nothing, and the program has one place for it.
//!
//! `println` and its kin panic if the descriptor is closed or full, and block if its reader is stuck. In a server either ends
//! all connections. Tests, examples, build scripts and this crate may print: they end with their reader.

use super::files::Files;
use super::tokens::tokens;

/// A rule for all files rejects the macro for debugging.
const MACROS: [&str; 4] = ["eprint", "eprintln", "print", "println"];

/// Crates that may print: a test program, helpers of tests, and helpers of build scripts, whose output Cargo reads.
const ALLOWED: [&str; 3] = ["crates/sim/", "crates/testkit/", "crates/tls-build/"];

/// Checks every source file of a crate that users run.
pub(super) fn check(files: &Files) -> Vec<String> {
    files.iter().filter(|(path, _)| is_checked(path)).flat_map(|(path, text)| file(path, text)).collect()
}

fn is_checked(path: &str) -> bool {
    let mut parts = path.split('/');
    matches!(parts.next(), Some("crates" | "bindings"))
        && parts.nth(1) == Some("src")
        && path.ends_with(".rs")
        && !parts.any(|part| part == "tests" || part == "tests.rs")
        && !ALLOWED.iter().any(|allowed| path.starts_with(allowed))
}

fn file(path: &str, text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let all = tokens(code);
    let printed = all.windows(2).filter(|pair| MACROS.contains(&pair[0].text) && pair[1].text == "!");
    printed
        .map(|pair| {
            let (line, name) = (pair[0].line, pair[0].text);
            format!("{path}:{line}: `{name}!` panics or blocks with its reader: log it, or use `output` in `taut`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Files, check};

    fn findings(path: &str, text: &str) -> usize {
        check(&Files::from([(path.to_owned(), text.to_owned())])).len()
    }

    #[test]
    fn macros_that_print_are_found_in_what_users_run() {
        let text = "fn f() {\n    eprintln!(\"x\");\n    print!(\"y\"); eprint!(z)\n}\n";
        for path in ["crates/cli/src/serve/tls.rs", "crates/engine/src/turn/run.rs", "bindings/python/src/lib.rs"] {
            assert_eq!(findings(path, text), 3, "{path}");
        }
    }

    #[test]
    fn tests_examples_tools_and_documents_may_print() {
        let text = "fn f() { println!(\"x\") }\n";
        for path in [
            "crates/cli/src/probe/staple/tests.rs",
            "crates/cli/tests/program/main.rs",
            "crates/io/examples/compare.rs",
            "crates/tls-libssl/build/main.rs",
            "crates/tls-build/src/shim.rs",
            "crates/sim/src/main.rs",
            "examples/chat.rs",
            "peers/src/main.rs",
            "xtask/src/stage.rs",
        ] {
            assert_eq!(findings(path, text), 0, "{path}");
        }
        let others =
            "/// println!(\"x\")\nfn println() {}\n// print!(x)\n#[cfg(test)]\nmod tests { fn f() { print!(x) } }\n";
        assert_eq!(findings("crates/engine/src/turn/run.rs", others), 0);
    }
}
