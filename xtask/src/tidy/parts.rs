//! Rules for parts that can be added and taken away: how many files outside its own know a TLS engine or a driver.

use super::files::Files;
use super::tokens::tokens;

/// Files outside its own that a part may take.
const MOST_FILES: usize = 3;

/// A part, and the files that name it.
struct Part {
    name: &'static str,
    /// Paths of its own.
    own: &'static [&'static str],
    /// The words that name it, alone or as parts of others (`io_uring`). A word in quotes is a whole string.
    words: &'static [&'static str],
    /// The files of others that name it; CONTRIBUTING.md has to list them.
    files: &'static [&'static str],
    /// Further files that name it because they measure it or have options for it. Adding a part takes none of them. The
    /// number may only become smaller.
    further: usize,
}

/// The files that a new TLS engine takes: CONTRIBUTING.md says what for.
const ENGINE: &[&str] = &["crates/cli/Cargo.toml", "crates/tautline/Cargo.toml", "crates/tautline/src/choice.rs"];

/// The files that a new driver in a crate of its own takes. A driver of crate `io` takes none.
const DRIVER: &[&str] = &["crates/cli/Cargo.toml", "crates/tautline/Cargo.toml", "crates/tautline/src/driver.rs"];

const PARTS: &[Part] = &[
    Part { name: "Mbed TLS", own: &["crates/tls-mbedtls/"], words: &["mbedtls", "MbedTls"], files: ENGINE, further: 2 },
    Part { name: "wolfSSL", own: &["crates/tls-wolfssl/"], words: &["wolfssl", "WolfSsl"], files: ENGINE, further: 2 },
    Part { name: "AF_XDP", own: &["crates/xdp/"], words: &["xdp", "Xdp", "XDP"], files: DRIVER, further: 9 },
    Part { name: "io_uring", own: &["crates/io/"], words: &["uring", "Uring"], files: &[], further: 9 },
    Part { name: "select", own: &["crates/io/"], words: &["Select", "\"select\""], files: &[], further: 4 },
];

/// Checks every part.
pub(super) fn check(files: &Files) -> Vec<String> {
    PARTS.iter().flat_map(|part| compare(part, files)).collect()
}

fn compare(part: &Part, files: &Files) -> Vec<String> {
    let Part { name, own, words, files: allowed, further } = part;
    let is_own = |path: &str| own.iter().any(|own| path.starts_with(own));
    let naming = files.iter().filter(|(path, text)| !is_own(path) && names(path, text, words));
    let naming: Vec<&str> = naming.map(|(path, _)| path.as_str()).collect();
    let mut wrong = Vec::new();
    let mut add = |finding: String| wrong.push(format!("{name}, in xtask/src/tidy/parts.rs: {finding}"));
    let others: Vec<&str> = naming.iter().copied().filter(|path| !allowed.contains(path)).collect();
    if others.len() > *further {
        add(format!("{further} files may name it beside those listed, but {} do: {}", others.len(), others.join(", ")));
    } else if others.len() < *further {
        add(format!("fewer files name it beside those listed: write {} for {further}", others.len()));
    }
    if allowed.len() > MOST_FILES {
        add(format!("{} files are listed, and {MOST_FILES} are the most", allowed.len()));
    }
    let contributing = files.get("CONTRIBUTING.md").map_or("", String::as_str);
    for path in *allowed {
        if !naming.contains(path) {
            add(format!("{path} does not name it any more"));
        }
        if !contributing.contains(path) {
            add(format!("CONTRIBUTING.md does not list {path}"));
        }
    }
    for own in *own {
        if !files.keys().any(|path| path.starts_with(own)) {
            add(format!("there is no file below {own}"));
        }
    }
    wrong
}

/// Whether a file of the program names a part. Tests, examples and comments do not count.
fn names(path: &str, text: &str, words: &[&str]) -> bool {
    let for_tests = ["tests", "tests.rs", "examples", "testkit"];
    if (path != "Cargo.toml" && !path.starts_with("crates/")) || path.split('/').any(|part| for_tests.contains(&part)) {
        return false;
    }
    let is_named = |code: &str| {
        let mut parts = code.split(|c: char| !c.is_alphanumeric());
        words.contains(&code) || parts.any(|part| words.contains(&part))
    };
    if path.ends_with(".rs") {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        return tokens(code).iter().any(|token| is_named(token.text));
    }
    path.ends_with("Cargo.toml") && text.lines().any(|line| is_named(line.split('#').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URING: Part = Part {
        name: "io_uring",
        own: &["crates/io/src/uring/"],
        words: &["uring", "Uring", "\"ring\""],
        files: &[],
        further: 0,
    };

    fn naming(files: &[(&str, &str)]) -> usize {
        files.iter().filter(|(path, text)| names(path, text, URING.words)).count()
    }

    #[test]
    fn parts_of_names_count_and_other_words_do_not() {
        for word in ["uring", "Uring", "io_uring", "tautline_uring::sys", "\"on uring:\"", "\"ring\""] {
            assert_eq!(naming(&[("crates/a/src/b.rs", word)]), 1, "{word}");
        }
        for word in ["during", "urings", "Measuring", "ring", "\"a ring\""] {
            assert_eq!(naming(&[("crates/a/src/b.rs", word)]), 0, "{word}");
        }
    }

    #[test]
    fn manifests_count() {
        assert_eq!(naming(&[("crates/a/Cargo.toml", "io-uring = 1\n"), ("Cargo.toml", "[uring]\n")]), 2);
    }

    #[test]
    fn comments_tests_and_documents_do_not_count() {
        let code = "//! uring\nfn f() {} // uring\n#[cfg(test)]\nmod tests { fn uring() {} }\n";
        let uring = "fn uring() {}";
        let paths =
            ["crates/a/tests/b.rs", "crates/a/src/b/tests.rs", "crates/testkit/src/a.rs", "examples/a.rs", "docs/a.md"];
        assert_eq!(naming(&paths.map(|path| (path, uring))), 0);
        assert_eq!(naming(&[("crates/a/src/b.rs", code), ("crates/a/Cargo.toml", "# uring\n")]), 0);
    }

    #[test]
    fn only_listed_files_may_name_a_part() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = Files::from([
            file("crates/io/src/uring/mod.rs", "struct Uring;"),
            file("crates/a/src/b.rs", "use io::Uring;"),
            file("CONTRIBUTING.md", "- `crates/a/src/b.rs`\n"),
        ]);
        assert_eq!(compare(&URING, &files).len(), 1, "a new file");
        assert!(compare(&Part { further: 1, ..URING }, &files).is_empty());
        assert_eq!(compare(&Part { further: 2, ..URING }, &files).len(), 1, "fewer than written");
        assert!(compare(&Part { files: &["crates/a/src/b.rs"], ..URING }, &files).is_empty());
        let gone = compare(&Part { files: &["crates/a/src/b.rs", "crates/a/src/c.rs"], ..URING }, &files);
        assert_eq!(gone.len(), 2, "a file that does not name it and is not listed");
        let many = Part { files: &["crates/a/src/b.rs"; 4], ..URING };
        assert_eq!(compare(&many, &files).len(), 1, "more than {MOST_FILES}");
        assert_eq!(compare(&Part { own: &["crates/u/"], ..URING }, &files).len(), 2, "its folder is gone");
    }
}
