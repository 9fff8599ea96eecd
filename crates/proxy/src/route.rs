//! Routes: from the host and the path of a request to one entry of a table.
//!
//! The host decides first: its own entries, or else those of the longest pattern `*.…` that it fits, or else those for any host.
//! Entries of other hosts are not looked at, so a private host never falls through to a public one. Among a host's entries an exact
//! path wins, and then the longest prefix. A prefix ends between segments: `/api` fits `/api` and `/api/x`, and not `/apis`.

mod host;
mod path;

pub use self::host::{Host, HostPattern};
pub use self::path::{NormalPath, PathError};
use std::collections::HashMap;

/// The paths of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// This path alone.
    Exact(String),
    /// This path, and those below it.
    Prefix(String),
}

impl PathPattern {
    /// Reads a path. It must be in the form that paths of requests are compared in.
    ///
    /// # Errors
    /// In words, with the remedy.
    pub fn new(text: &str, is_exact: bool) -> Result<Self, String> {
        let path =
            NormalPath::new(text).map_err(|error| format!("{text:?} is no path of a route: {}", error.reason()))?;
        if path.as_str() != text || path.compared() != text {
            return Err(format!("requests are compared in another form of this path: write {:?}", path.compared()));
        }
        Ok(if is_exact { Self::Exact(text.to_owned()) } else { Self::Prefix(text.to_owned()) })
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let (Self::Exact(path) | Self::Prefix(path)) = self;
        path
    }

    /// The target for a backend, with this pattern's path replaced by `with`.
    #[must_use]
    pub fn rewrite(&self, path: &NormalPath, with: &str) -> String {
        match self {
            Self::Exact(_) => format!("{with}{}", path.query()),
            Self::Prefix(prefix) => path.rewritten(prefix, with),
        }
    }
}

/// Whether a path is a prefix, or lies below it.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

/// The entries of one pattern of hosts, as indices.
#[derive(Clone, Debug, Default)]
struct Paths {
    exact: HashMap<String, usize>,
    /// The longest first.
    prefixes: Vec<(String, usize)>,
}

impl Paths {
    fn find(&self, path: &str) -> Option<usize> {
        let longest = || self.prefixes.iter().find(|(prefix, _)| is_below(path, prefix)).map(|(_, entry)| *entry);
        self.exact.get(path).copied().or_else(longest)
    }

    /// Adds an entry, or returns the one that has this path already.
    fn add(&mut self, pattern: &PathPattern, entry: usize) -> Result<(), usize> {
        match pattern {
            PathPattern::Exact(path) => match self.exact.get(path) {
                Some(&other) => return Err(other),
                None => _ = self.exact.insert(path.clone(), entry),
            },
            PathPattern::Prefix(prefix) => {
                if let Some((_, other)) = self.prefixes.iter().find(|(other, _)| other == prefix) {
                    return Err(*other);
                }
                let at = self.prefixes.partition_point(|(other, _)| other.len() >= prefix.len());
                self.prefixes.insert(at, (prefix.clone(), entry));
            }
        }
        Ok(())
    }
}

/// A table from hosts and paths to entries.
#[derive(Clone, Debug, Default)]
pub struct Table {
    exact: HashMap<Host, Paths>,
    /// Names below which all hosts fit.
    below: HashMap<Host, Paths>,
    any: Paths,
}

impl Table {
    /// Adds an entry.
    ///
    /// # Errors
    /// Returns the entry that has the same host and path already.
    pub fn add(&mut self, host: &HostPattern, path: &PathPattern, entry: usize) -> Result<(), usize> {
        let paths = match host {
            HostPattern::Any => &mut self.any,
            HostPattern::Exact(host) => self.exact.entry(host.clone()).or_default(),
            HostPattern::Below(host) => self.below.entry(host.clone()).or_default(),
        };
        paths.add(path, entry)
    }

    /// Finds the entry of a request. A request without a host (HTTP/1.0) gets those for any host.
    #[must_use]
    pub fn find(&self, host: Option<&Host>, path: &NormalPath) -> Option<usize> {
        host.map_or(&self.any, |host| self.paths(host)).find(path.compared())
    }

    fn paths(&self, host: &Host) -> &Paths {
        if let Some(paths) = self.exact.get(host) {
            return paths;
        }
        let mut rest = host.as_str();
        while let Some((_, parent)) = rest.split_once('.') {
            // A parent of a host is a host.
            if let Some(paths) = Host::new(parent).and_then(|parent| self.below.get(&parent)) {
                return paths;
            }
            rest = parent;
        }
        &self.any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(routes: &[(&str, &str, bool)]) -> Table {
        let mut table = Table::default();
        for (entry, (host, path, is_exact)) in routes.iter().enumerate() {
            let path = PathPattern::new(path, *is_exact).unwrap();
            table.add(&HostPattern::new(host).unwrap(), &path, entry).unwrap();
        }
        table
    }

    fn find(table: &Table, host: &str, path: &str) -> Option<usize> {
        table.find(Host::new(host).as_ref(), &NormalPath::new(path).unwrap())
    }

    #[test]
    fn the_host_decides_before_the_path() {
        let table = table(&[
            ("*", "/", false),
            ("*.example.org", "/", false),
            ("*.b.example.org", "/", false),
            ("a.example.org", "/only", false),
        ]);
        assert_eq!(find(&table, "other", "/"), Some(0));
        assert_eq!(find(&table, "example.org", "/"), Some(0));
        assert_eq!(find(&table, "X.example.org.:1", "/"), Some(1));
        assert_eq!(find(&table, "x.b.example.org", "/"), Some(2));
        assert_eq!(find(&table, "b.example.org", "/"), Some(1));
        assert_eq!(find(&table, "a.example.org", "/only/x"), Some(3));
        assert_eq!(find(&table, "a.example.org", "/"), None, "it does not fall through to another host");
        assert_eq!(table.find(None, &NormalPath::new("/").unwrap()), Some(0));
    }

    #[test]
    fn exact_paths_win_and_then_the_longest_prefix() {
        let table = table(&[("*", "/", false), ("*", "/api", false), ("*", "/api/v1/", false), ("*", "/api/v1", true)]);
        for (path, entry) in
            [("/apis", 0), ("/api", 1), ("/api/", 1), ("/api/v1", 3), ("/api/v1/", 2), ("/api/v1/x", 2)]
        {
            assert_eq!(find(&table, "a", path), Some(entry), "{path}");
        }
        assert_eq!(find(&table, "a", "//x/../%61pi;v=2/v1/x"), Some(2));
        let private = self::table(&[("*", "/", false), ("*", "/jobs:purge", false)]);
        assert_eq!((find(&private, "a", "/jobs%3Apurge/1"), find(&private, "a", "/jobs%3B")), (Some(1), Some(0)));
    }

    #[test]
    fn two_routes_for_one_place_are_refused() {
        let mut table = table(&[("a", "/", false)]);
        let (host, path) = (HostPattern::new("A").unwrap(), PathPattern::new("/", false).unwrap());
        assert_eq!(table.add(&host, &path, 1), Err(0));
        assert_eq!(table.add(&host, &PathPattern::new("/", true).unwrap(), 1), Ok(()));
    }

    #[test]
    fn a_pattern_that_no_request_fits_is_refused() {
        for (bad, remedy) in
            [("/a//b", "/a/b"), ("/%61", "/a"), ("/a/../b", "/b"), ("/a;x", "/a"), ("/%40a", "/@a"), ("/a|%7C", "/a||")]
        {
            assert!(PathPattern::new(bad, false).unwrap_err().contains(&format!("{remedy:?}")), "{bad}");
        }
        assert!(PathPattern::new("api", false).unwrap_err().contains("begin with a slash"));
    }

    proptest! {
        #[test]
        fn a_table_finds_what_a_plain_look_at_all_finds(
            prefixes in proptest::collection::hash_set("(/[ab]{1,2}){0,3}/?", 1..8),
            path in "(/[ab]{1,2}){1,4}",
        ) {
            let prefixes: Vec<String> = prefixes.into_iter().filter(|prefix| !prefix.is_empty()).collect();
            let mut table = Table::default();
            for (entry, prefix) in prefixes.iter().enumerate() {
                table.add(&HostPattern::Any, &PathPattern::new(prefix, false).unwrap(), entry).unwrap();
            }
            let covers = |prefix: &str| path == prefix || path.starts_with(&format!("{}/", prefix.trim_end_matches('/')));
            let best = (0..prefixes.len()).filter(|&at| covers(&prefixes[at]) && path.starts_with(&prefixes[at]));
            let best = best.max_by_key(|&at| prefixes[at].len());
            prop_assert_eq!(table.find(None, &NormalPath::new(&path).unwrap()), best);
        }
    }
}
