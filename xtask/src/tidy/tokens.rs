//! Rust source as tokens and comments.

/// A word, a string with its opening quote, `::`, or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Counted from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    pub(super) fn is_word(self) -> bool {
        self.text.starts_with(is_word)
    }
}

/// The tokens of a file, without lifetimes and characters. Text that is no Rust gives some tokens too, and never a panic.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let bare = |text: &'_ str| text.starts_with("r#") && text[2..].starts_with(is_word);
    let pieces = pieces(source).filter(|(_, is_token)| *is_token);
    // A raw identifier means the same as the bare one.
    pieces.map(|(piece, _)| if bare(piece.text) { Token { text: &piece.text[2..], ..piece } } else { piece }).collect()
}

/// The line comments of a file, doc comments among them.
pub(super) fn comments(source: &str) -> impl Iterator<Item = Token<'_>> {
    pieces(source).filter(|(piece, is_token)| !is_token && piece.text.starts_with("//")).map(|(comment, _)| comment)
}

/// Everything in a file, each piece with whether it is a token.
fn pieces(source: &str) -> impl Iterator<Item = (Token<'_>, bool)> {
    let (mut rest, mut line) = (source, 1);
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (len, is_token) = next(rest, first);
        let (text, behind) = rest.split_at(len);
        let piece = Token { text, line };
        line += text.matches('\n').count();
        rest = behind;
        Some((piece, is_token))
    })
}

/// The length of what `rest` begins with, and whether it is a token.
fn next(rest: &str, first: char) -> (usize, bool) {
    if rest.starts_with("//") {
        (rest.find('\n').unwrap_or(rest.len()), false)
    } else if rest.starts_with("/*") {
        (block_comment(rest), false)
    } else if let Some(len) = string(rest) {
        (len, true)
    } else if first == '\'' {
        (quoted(rest), false)
    } else if is_word(first) {
        let start = if rest.starts_with("r#") { 2 } else { 0 };
        (start + rest[start..].find(|c| !is_word(c)).unwrap_or(rest.len() - start), true)
    } else if rest.starts_with("::") {
        (2, true)
    } else {
        (first.len_utf8(), !first.is_whitespace())
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a comment in `/*` and `*/`, which may hold others.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string of any kind, if `rest` begins with one.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""]
        .into_iter()
        .find(|prefix| rest.strip_prefix(prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"')))?;
    let hashes = rest[prefix.len()..].find('"')?;
    let open = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let close = format!("\"{}", "#".repeat(hashes));
        return Some(rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len()));
    }
    (hashes == 0).then(|| escaped(rest, open, '"'))
}

/// The length of a character or a lifetime.
fn quoted(rest: &str) -> usize {
    let mut inner = rest[1..].chars();
    match (inner.next(), inner.next()) {
        (Some('\\'), _) => escaped(rest, 1, '\''),
        (Some(c), Some('\'')) => c.len_utf8() + 2,
        _ => 1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1),
    }
}

/// The end of what is open at `at` and closes with an unescaped `close`.
fn escaped(rest: &str, at: usize, close: char) -> usize {
    let mut skip = false;
    for (offset, c) in rest[at..].char_indices() {
        match c {
            _ if skip => skip = false,
            '\\' => skip = true,
            _ if c == close => return at + offset + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_characters_and_lifetimes_are_left_out() {
        let source = "a/* b /* c */ d */::e // f\n'\\'' '\"' &'x g '\\u{1F600}' h<'_>";
        assert_eq!(texts(source), ["a", "::", "e", "&", "g", "h", "<", ">"]);
    }

    #[test]
    fn comments_are_found_beside_code_and_not_in_strings() {
        let found: Vec<_> = comments("a // b\n\"// c\" /* // d */\n/// e").map(|one| (one.line, one.text)).collect();
        assert_eq!(found, [(1, "// b"), (3, "/// e")]);
    }

    #[test]
    fn strings_are_one_token() {
        let source = r####"f("a::b \" c", r#"d "e"# , b"\"", br"\", r#type, c"x")"####;
        let expected =
            ["f", "(", r#""a::b \" c""#, ",", r###"r#"d "e"#"###, ",", r#"b"\"""#, ",", r#"br"\""#, ",", "type", ","];
        assert_eq!(&texts(source)[..expected.len()], expected);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let all = tokens("a\n/* \n */ \"\n\" b\n\nc");
        assert_eq!(all.iter().map(|token| token.line).collect::<Vec<_>>(), [1, 3, 4, 6]);
    }

    #[test]
    fn text_that_is_cut_anywhere_ends() {
        let source = "fn f<'a>() { /* x */ let s = r#\"é\"#; 'x'; b'\\n'; \"\\\"\" }";
        for (at, _) in source.char_indices() {
            assert!(tokens(&source[..at]).len() <= at);
        }
    }
}
