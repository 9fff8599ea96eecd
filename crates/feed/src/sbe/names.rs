//! Names of a schema as names of Rust.

/// Words that cannot be methods or modules, and methods that every view has.
const TAKEN: [&str; 49] = [
    "abstract",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "crate",
    "decode",
    "do",
    "dyn",
    "else",
    "encoded_len",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "struct",
    "super",
    "trait",
    "true",
    "try",
    "type",
    "unsafe",
    "use",
    "where",
    "while",
];

/// Whether a name is one of letters, digits and underscores, as the standard has it.
pub(super) fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// `bestBidPrice`, `BestBidPrice` and `best_bid_price` become `best_bid_price`.
pub(super) fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let is_start = before.is_some_and(|before| before.is_ascii_lowercase() || before.is_ascii_digit())
            || before.is_some_and(char::is_ascii_uppercase)
                && letters.get(index + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && is_start {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    if TAKEN.contains(&snake.as_str()) || snake == "version" {
        snake.push('_');
    }
    snake
}

/// `bestBid`, `best_bid` and `BEST_BID` become `BestBid`. Other capitals stay as they are.
pub(super) fn pascal(name: &str) -> String {
    let is_loud = !name.chars().any(|letter| letter.is_ascii_lowercase());
    let mut pascal = String::new();
    for part in name.split('_') {
        let mut letters = part.chars();
        pascal.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        pascal.extend(letters.map(|letter| if is_loud { letter.to_ascii_lowercase() } else { letter }));
    }
    if pascal == "Self" { "Self_".to_owned() } else { pascal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_rust() {
        for (name, method, type_name) in [
            ("bestBidPrice", "best_bid_price", "BestBidPrice"),
            ("TradesStreamEvent", "trades_stream_event", "TradesStreamEvent"),
            ("BUY", "buy", "Buy"),
            ("FILL_OR_KILL", "fill_or_kill", "FillOrKill"),
            ("utcTimestampUs", "utc_timestamp_us", "UtcTimestampUs"),
            ("varString8", "var_string8", "VarString8"),
            ("SBEHeader", "sbe_header", "SBEHeader"),
            ("type", "type_", "Type"),
            ("self", "self_", "Self_"),
            ("version", "version_", "Version"),
        ] {
            assert_eq!((snake(name).as_str(), pascal(name).as_str()), (method, type_name), "{name}");
        }
    }

    #[test]
    fn source_code_is_no_name() {
        for name in ["", "1a", "a b", "a-b", "a\"", "é", "_"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("price_8"));
    }
}
