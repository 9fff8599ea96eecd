//! Rules for the text of one file.

use super::files::Files;

/// Lines that a Rust file may have.
const MOST_LINES: usize = 800;
/// Paths that may hold unsafe code, besides files and folders named `sys`, and the allocators that count in tests.
/// They are masks by SIMD, and text that is validated piece by piece.
const UNSAFE_ALLOWED: [&str; 4] =
    ["crates/ws/src/decode/assembly.rs", "crates/ws/src/mask/", "crates/ws/src/message.rs", "crates/ws/src/utf8.rs"];
/// Each is written in two parts, so that this file keeps its own rule.
const UNFINISHED: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("dbg", "!"),
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
];

/// Checks every file. Findings read `path:line: text`.
pub(super) fn check(files: &Files) -> Vec<String> {
    let mut wrong: Vec<String> = files.iter().flat_map(|(path, content)| file(path, content)).collect();
    for allowed in UNSAFE_ALLOWED {
        if !files.keys().any(|path| path.starts_with(allowed)) {
            wrong.push(format!("{allowed}: tidy permits unsafe code there, but there is no such file"));
        }
    }
    wrong.extend(unlinked(files));
    wrong
}

/// The documents of users that the README does not lead to.
fn unlinked(files: &Files) -> Vec<String> {
    let readme = files.get("README.md").map_or("", String::as_str);
    let documents = files.keys().filter(|path| {
        let name = path.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
        name.is_some_and(|name| !name.contains('/'))
    });
    let has_no_link = |path: &&String| [')', '#'].iter().all(|end| !readme.contains(&format!("({path}{end}")));
    documents.filter(has_no_link).map(|path| format!("README.md: no link leads to {path}")).collect()
}

fn file(path: &str, content: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut add = |line: usize, finding: &str| wrong.push(format!("{path}:{}: {finding}", line + 1));
    let patch = path.ends_with(".patch") || path.ends_with(".diff");
    for (number, line) in content.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) && !patch {
            add(number, "white space at the end of the line");
        }
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark)) {
            add(number, "an unresolved merge");
        }
    }
    if !content.is_empty() && !content.ends_with('\n') {
        add(content.lines().count() - 1, "no newline at the end of the file");
    }
    if path.ends_with("package-lock.json") && content.contains("\"resolved\"") {
        add(0, "names a registry; write it with npm's option `omit-lockfile-registry-resolved`");
    }
    if path.ends_with(".rs") {
        rust(path, content, &mut add);
    }
    wrong
}

fn rust(path: &str, content: &str, add: &mut impl FnMut(usize, &str)) {
    let count = content.lines().count();
    if count > MOST_LINES {
        add(MOST_LINES, &format!("{count} lines are more than the {MOST_LINES} that a file may have"));
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    if matches!(file, "lib.rs" | "main.rs") && !content.starts_with("//!") {
        add(0, "must begin with `//!` and a description of the crate");
    }
    let unsafe_allowed = UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed))
        || path.split('/').any(|part| part == "sys" || part == "sys.rs")
        || path.split('/').nth(2) == Some("tests");
    for (number, line) in content.lines().enumerate() {
        for word in UNFINISHED {
            // The number of an issue may follow the word.
            if words(line, word).any(|rest| !rest.starts_with("(#")) {
                add(number, &format!("`{word}` without an issue, as in `(#12)`"));
            }
        }
        let code = line.split("//").next().unwrap_or_default();
        if !unsafe_allowed && words(code, "unsafe").any(opens_unsafe_code) {
            add(number, "unsafe code outside the places that tidy lists");
        }
    }
}

/// Whether `unsafe` is a keyword, judged by the text behind it, rather than a word of a sentence.
fn opens_unsafe_code(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty()
        || rest.starts_with(['{', '('])
        || ["fn", "impl", "trait", "extern"].iter().any(|word| rest.starts_with(word))
}

/// The text behind each place where `word` stands as a whole word.
fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    line.match_indices(word).filter_map(move |(at, _)| {
        let rest = &line[at + word.len()..];
        (!line[..at].ends_with(in_word) && !rest.starts_with(in_word)).then_some(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, content: &str) -> usize {
        file(path, content).len()
    }

    #[test]
    fn clean_files_pass() {
        assert_eq!(findings("crates/a/src/lib.rs", "//! A crate.\n#![forbid(unsafe_code)]\nfn f() {}\n"), 0);
        assert_eq!(findings("README.md", "# T\n"), 0);
    }

    #[test]
    fn space_and_missing_newlines_are_found() {
        assert_eq!(findings("a.md", "a \nb\t\nc"), 3);
    }

    #[test]
    fn unfinished_work_needs_an_issue() {
        let word = UNFINISHED[0];
        assert_eq!(findings("a.rs", &format!("// {word}: later\n")), 1);
        assert_eq!(findings("a.rs", &format!("// {word}(#12): later\n")), 0);
        assert_eq!(findings("a.rs", &format!("{}()\n", UNFINISHED[4])), 1);
    }

    #[test]
    fn unsafe_code_is_found_outside_its_places() {
        let block = format!("fn f() {{ {} {{ g() }} }}\n", "unsafe");
        assert_eq!(findings("crates/ws/src/mask/avx2.rs", &block), 0);
        assert_eq!(findings("crates/io/src/uring/sys.rs", &block), 0);
        assert_eq!(findings("crates/io/src/epoll.rs", &block), 1);
        assert_eq!(findings("crates/io/src/epoll.rs", &format!("// {block}")), 0);
    }

    #[test]
    fn long_files_and_undocumented_crates_are_found() {
        assert_eq!(findings("a.rs", &"\n".repeat(801)), 1);
        assert_eq!(findings("crates/a/src/main.rs", "fn main() {}\n"), 1);
    }

    #[test]
    fn documents_need_a_link_of_the_readme() {
        let texts = [
            ("README.md", "[a](docs/a.md) [b](docs/b.md#part)\n"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/c.md", ""),
            ("docs/more/d.md", ""),
        ];
        let files = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(unlinked(&files), ["README.md: no link leads to docs/c.md"]);
    }

    #[test]
    fn lock_files_name_no_registry() {
        assert_eq!(findings("tests/package-lock.json", "{\"resolved\": \"x\"}\n"), 1);
    }
}
