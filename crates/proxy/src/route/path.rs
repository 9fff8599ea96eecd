//! The one form of a path that routes are compared with, and that a backend gets.

use std::fmt::Write as _;

/// The reason why a path is refused. Each is a way to show a proxy and its backend two different paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It does not begin with a slash.
    NotAbsolute,
    /// A byte that no path has: a control, a space, a backslash, `#`, or one beyond ASCII.
    Byte,
    /// A `%` without two hexadecimal digits behind it, or one that encodes a control character.
    Percent,
    /// An encoded slash or backslash. Some backends take it for a separator, and others do not.
    EncodedSlash,
    /// `..` above the root.
    AboveRoot,
    /// A segment such as `..;x`, which some backends take for `..`.
    DotParameter,
}

impl PathError {
    /// The fault, in words for a log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotAbsolute => "the path does not begin with a slash",
            Self::Byte => "the path has a byte that must be percent-encoded",
            Self::Percent => "the path has a % that encodes nothing, or a control character",
            Self::EncodedSlash => "the path has an encoded slash or backslash",
            Self::AboveRoot => "the path leads above the root",
            Self::DotParameter => "the path has dots with a parameter",
        }
    }
}

/// A path in its one form, and the query behind it.
///
/// - Encoded letters, digits, `-`, `.`, `_` and `~` are decoded (RFC 3986, 6.2.2.2), once. Digits of other encodings become upper
///   case.
/// - `.` and `..` are resolved, and slashes that follow each other become one.
/// - Other characters of ASCII that are encoded stay so for the backend, and are compared decoded: most backends decode them.
/// - [`PathError`] lists what is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath {
    path: String,
    /// The path that routes are compared with, if it is another one.
    bare: Option<String>,
    /// With its question mark, or empty.
    query: String,
}

impl NormalPath {
    /// Reads the path and query of a request's target.
    ///
    /// # Errors
    /// If the path has no form that proxy and backend agree on.
    pub fn new(target: &str) -> Result<Self, PathError> {
        let (path, query) = target.find('?').map_or((target, ""), |at| target.split_at(at));
        if !query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(PathError::Byte);
        }
        let path = resolved(&decoded(path)?)?;
        let bare = path.contains([';', '%']).then(|| bare(&path));
        Ok(Self { path, bare, query: query.to_owned() })
    }

    /// The path that the backend gets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// The query with its question mark; empty without one.
    #[must_use]
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The path that routes are compared with: decoded as far as it can be, and without what follows a `;` in its segments.
    pub(super) fn compared(&self) -> &str {
        self.bare.as_deref().unwrap_or(&self.path)
    }

    /// The target for a backend, with this much of the path replaced by `with`.
    pub(super) fn rewritten(&self, prefix: &str, with: &str) -> String {
        // Parameters within the prefix are left out together with it.
        let segments = prefix.trim_end_matches('/').matches('/').count();
        let mut rest = self.path.as_str();
        for _ in 0..segments {
            rest = rest.get(1..).and_then(|after| after.find('/').map(|at| &after[at..])).unwrap_or("");
        }
        let joined = match (with.ends_with('/'), rest.strip_prefix('/')) {
            (true, Some(rest)) => format!("{with}{rest}"),
            (false, None) if rest.is_empty() => with.to_owned(),
            _ => format!("{with}{rest}"),
        };
        joined + &self.query
    }
}

/// Decodes what needs no encoding, and refuses what has two readings.
fn decoded(path: &str) -> Result<String, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    let mut out = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
                    return Err(PathError::Percent);
                };
                let value = u8::try_from(high * 16 + low).map_err(|_| PathError::Percent)?;
                match value {
                    b'/' | b'\\' => return Err(PathError::EncodedSlash),
                    0..=0x1f | 0x7f => return Err(PathError::Percent),
                    b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => out.push(char::from(value)),
                    _ => _ = write!(out, "%{value:02X}"),
                }
            }
            b'\\' | b'#' => return Err(PathError::Byte),
            _ if byte.is_ascii_graphic() => out.push(char::from(byte)),
            _ => return Err(PathError::Byte),
        }
    }
    Ok(out)
}

/// Resolves dots and repeated slashes.
fn resolved(path: &str) -> Result<String, PathError> {
    let mut kept: Vec<&str> = Vec::new();
    // A path that ends in dots is that of a folder.
    let mut is_folder = true;
    for segment in path.split('/') {
        is_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => _ = kept.pop().ok_or(PathError::AboveRoot)?,
            _ if matches!(segment.split(';').next(), Some("" | "." | "..")) => return Err(PathError::DotParameter),
            _ => kept.push(segment),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in &kept {
        out.push('/');
        out.push_str(segment);
    }
    if is_folder {
        out.push('/');
    }
    Ok(out)
}

/// The path without the parameters of its segments, and with the characters decoded that separate nothing.
fn bare(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (at, segment) in path.split('/').enumerate() {
        if at > 0 {
            out.push('/');
        }
        let mut rest = segment.split(';').next().unwrap_or("");
        while let Some((plain, encoded)) = rest.split_once('%') {
            out.push_str(plain);
            let value = encoded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match value.filter(|value| value.is_ascii_graphic() && !b"%;?#".contains(value)) {
                Some(value) => {
                    out.push(char::from(value));
                    rest = &encoded[2..];
                }
                None => {
                    out.push('%');
                    rest = encoded;
                }
            }
        }
        out.push_str(rest);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(target: &str) -> Result<String, PathError> {
        NormalPath::new(target).map(|path| path.as_str().to_owned())
    }

    #[test]
    fn one_path_has_one_form() {
        let forms = [
            ("/", "/"),
            ("//", "/"),
            ("/a//b", "/a/b"),
            ("/a/./b/", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/%2E%2e/b", "/b"),
            ("/%61dmin", "/admin"),
            ("/a%3ab", "/a%3Ab"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/%c3%a9", "/%C3%A9"),
        ];
        for (from, to) in forms {
            assert_eq!(path(from).as_deref(), Ok(to), "{from}");
        }
    }

    #[test]
    fn paths_with_two_readings_are_refused() {
        let refused = [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("a/b", PathError::NotAbsolute),
            ("/a b", PathError::Byte),
            ("/a\\b", PathError::Byte),
            ("/a#b", PathError::Byte),
            ("/a?b#c", PathError::Byte),
            ("/é", PathError::Byte),
            ("/%", PathError::Percent),
            ("/%2", PathError::Percent),
            ("/%zz", PathError::Percent),
            ("/%00", PathError::Percent),
            ("/%0d%0aX:", PathError::Percent),
            ("/a%2fb", PathError::EncodedSlash),
            ("/a%5Cb", PathError::EncodedSlash),
            ("/..", PathError::AboveRoot),
            ("/a/../..", PathError::AboveRoot),
            ("/a/..;/b", PathError::DotParameter),
            ("/a/%2e%2e;x/b", PathError::DotParameter),
            ("/;x", PathError::DotParameter),
        ];
        for (target, error) in refused {
            assert_eq!(path(target), Err(error), "{target}");
        }
    }

    #[test]
    fn an_encoded_character_hides_no_path_from_its_route() {
        let compared = |target: &str| NormalPath::new(target).unwrap().compared().to_owned();
        for (from, to) in [
            ("/jobs%3apurge", "/jobs:purge"),
            ("/%40admin/x;v=1/y", "/@admin/x/y"),
            ("/a%2Cb%21", "/a,b!"),
            ("/a%7Cb", "/a|b"),
            // They would separate, or encode something else.
            ("/a%3Bb", "/a%3Bb"),
            ("/a%3fb", "/a%3Fb"),
            ("/%2540", "/%2540"),
            ("/%c3%a9%20", "/%C3%A9%20"),
        ] {
            assert_eq!(compared(from), to, "{from}");
        }
        // The backend gets it as it came.
        assert_eq!(path("/jobs%3apurge").as_deref(), Ok("/jobs%3Apurge"));
    }

    #[test]
    fn the_query_is_kept_as_it_is() {
        let path = NormalPath::new("/a/../b?c=/../%2e&d=?").unwrap();
        assert_eq!((path.as_str(), path.query()), ("/b", "?c=/../%2e&d=?"));
    }

    #[test]
    fn a_prefix_is_replaced_whole() {
        let rewritten =
            |target: &str, prefix: &str, with: &str| NormalPath::new(target).unwrap().rewritten(prefix, with);
        assert_eq!(rewritten("/api/x?y", "/api", "/"), "/x?y");
        assert_eq!(rewritten("/api", "/api", "/"), "/");
        assert_eq!(rewritten("/api/", "/api/", "/v1/"), "/v1/");
        assert_eq!(rewritten("/api/x", "/api/", "/v1"), "/v1/x");
        assert_eq!(rewritten("/api/x", "/", "/v1"), "/v1/api/x");
        assert_eq!(rewritten("/api;a=1/x;b", "/api", "/v1/"), "/v1/x;b");
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_form(target in "/[a-c./;%25EFef0-9~]{0,24}(\\?[a-z./]{0,4})?") {
            if let Ok(once) = NormalPath::new(&target) {
                let again = NormalPath::new(&format!("{}{}", once.as_str(), once.query())).unwrap();
                prop_assert_eq!(&once, &again);
                let has_dots = |path: &str| path.split('/').any(|segment| segment == ".." || segment == ".");
                prop_assert!(!once.as_str().contains("//") && !has_dots(once.as_str()) && !has_dots(once.compared()));
                prop_assert_eq!(once.compared().matches('/').count(), once.as_str().matches('/').count());
            }
        }

        #[test]
        fn encoding_hides_nothing(segments in proptest::collection::vec("[a-z.]{1,4}", 1..5), mask in any::<u64>()) {
            let plain = format!("/{}", segments.join("/"));
            let encode = |(at, c): (usize, char)| match c {
                '/' if mask >> (at % 64) & 1 == 1 => "/./".to_owned(),
                '/' => c.to_string(),
                _ if mask >> (at % 64) & 1 == 1 => format!("%{:02x}", u32::from(c)),
                _ => c.to_string(),
            };
            let hidden: String = plain.chars().enumerate().map(encode).collect();
            prop_assert_eq!(path(&plain), path(&hidden));
        }

        #[test]
        fn no_target_panics(target in any::<String>()) {
            let _ = NormalPath::new(&target).map(|path| path.rewritten("/a/b", "/c"));
        }
    }
}
