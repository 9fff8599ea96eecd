//! Calls of methods between the files of a crate, which its imports do not show: several files can add methods to one type.
//!
//! The text tells the type of a receiver if it is `self`, a path such as `Type::method`, or has the type's name, as in
//! `core.shared.publish(…)`. Any other call counts if its name is that of one method alone, in all crates and in std. Calls
//! whose name is ambiguous are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::edges::Edges;
use super::tree::{Sources, closing, product};
use crate::tidy::tokens::Token;

/// Names of methods that types of std have too.
const OF_STD: &str = "all and any append as_deref as_mut as_ref as_slice as_str borrow borrow_mut by_ref chain clear clone \
    cloned cmp collect contains copied count default drain drop entry enumerate eq expect extend fetch_add fetch_sub filter \
    find first flush fmt fold from get get_mut get_or_insert_with hash index insert into into_iter is_empty is_err is_none \
    is_ok is_some iter iter_mut join kill last len load lock map max min next not open or_insert parse peek poll pop \
    position push push_back push_str read recv remove replace reserve resize retain reverse rev run send set shutdown sort \
    spawn split start store sum swap take then to_owned to_string truncate try_from try_send unwrap_or unzip wait wake with \
    write zip";

/// The calls within a crate.
pub(super) struct Calls<'a> {
    pub(super) package: &'a str,
    pub(super) methods: Methods,
    pub(super) edges: Edges,
}

/// The methods of a crate: by type and name, the files that define them, with those of traits of others apart.
#[derive(Default)]
pub(super) struct Methods {
    own: BTreeMap<(String, String), BTreeSet<String>>,
    of_traits: BTreeMap<(String, String), BTreeSet<String>>,
    by_name: BTreeMap<String, BTreeSet<String>>,
}

impl Methods {
    /// Reads the methods that these files define for types and traits.
    pub(super) fn read<'s>(sources: &'s Sources, files: impl IntoIterator<Item = &'s str>) -> Self {
        let mut methods = Self::default();
        for file in files {
            let tokens = product(&sources[file]);
            for block in blocks(&tokens) {
                let table = if block.is_of_trait { &mut methods.of_traits } else { &mut methods.own };
                for name in block.functions(&tokens) {
                    let key = (block.of.to_owned(), name.to_owned());
                    table.entry(key).or_default().insert(file.to_owned());
                    if !block.is_of_trait {
                        methods.by_name.entry(name.to_owned()).or_default().insert(file.to_owned());
                    }
                }
            }
        }
        methods
    }

    /// The names of all methods.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The number of functions in the `impl` blocks of a type.
    pub(super) fn count(&self, of: &str) -> usize {
        let all = self.own.iter().chain(&self.of_traits);
        all.filter(|((type_, _), _)| type_ == of).map(|(_, files)| files.len()).sum()
    }

    /// The file that defines a method of a type, if it is one.
    fn of_type(&self, of: &str, name: &str) -> Option<&str> {
        let key = (of.to_owned(), name.to_owned());
        only(self.own.get(&key).or_else(|| self.of_traits.get(&key))?)
    }
}

fn only(files: &BTreeSet<String>) -> Option<&str> {
    files.first().filter(|_| files.len() == 1).map(String::as_str)
}

/// The edges between files by calls of methods. `elsewhere` are the names that other crates have too.
pub(super) fn edges<'s>(
    sources: &'s Sources,
    files: impl IntoIterator<Item = &'s str> + Clone,
    elsewhere: &BTreeSet<&str>,
) -> Edges {
    let methods = Methods::read(sources, files.clone());
    let mut edges = Edges::new();
    for file in files {
        let tokens = product(&sources[file]);
        let to = edges.entry(file.to_owned()).or_default();
        let blocks = blocks(&tokens);
        for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.is_word()) {
            let own = blocks.iter().rfind(|block| (block.open..block.close).contains(&at)).map(|block| block.of);
            let Some(target) = target(&tokens, at, own, &methods, elsewhere) else { continue };
            if target != file {
                to.entry(target.to_owned()).or_default().insert((token.line, token.text.to_owned()));
            }
        }
    }
    edges
}

/// The file whose method is called at a place.
fn target<'m>(
    tokens: &[Token<'_>],
    at: usize,
    own: Option<&str>,
    methods: &'m Methods,
    elsewhere: &BTreeSet<&str>,
) -> Option<&'m str> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let (name, before) = (text(at), text(at.checked_sub(1)?));
    let receiver = at.checked_sub(2).map_or("", text);
    let own_type = |receiver: &'_ str| if matches!(receiver, "self" | "Self") { own } else { None };
    match before {
        "::" => methods.of_type(own_type(receiver).unwrap_or(receiver), name),
        "." if matches!(text(at + 1), "(" | "::") => {
            let is_field = at.checked_sub(3).is_some_and(|at| text(at) == ".");
            if receiver == "self" && !is_field {
                return methods.of_type(own?, name);
            }
            let named = methods.of_type(&camel_case(receiver), name);
            let is_alone = || !elsewhere.contains(name) && OF_STD.split_whitespace().all(|word| word != name);
            named.or_else(|| methods.by_name.get(name).filter(|_| is_alone()).and_then(only))
        }
        _ => None,
    }
}

/// `peer_log` as `PeerLog`.
fn camel_case(word: &str) -> String {
    let upper = |part: &str| part.chars().take(1).flat_map(char::to_uppercase).chain(part.chars().skip(1)).collect();
    word.split('_').map(upper).collect::<Vec<String>>().concat()
}

/// The body of an `impl` or a `trait`, between two places among the tokens.
struct Block<'a> {
    of: &'a str,
    /// Whether it is the implementation of a trait.
    is_of_trait: bool,
    open: usize,
    close: usize,
}

impl Block<'_> {
    /// The names of its functions.
    fn functions<'t>(&self, tokens: &[Token<'t>]) -> Vec<&'t str> {
        let (mut depth, mut names) = (0, Vec::new());
        for pair in tokens[self.open..self.close].windows(2) {
            match pair[0].text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                "fn" if depth == 1 && pair[1].is_word() => names.push(pair[1].text),
                _ => {}
            }
        }
        names
    }
}

/// The blocks in the order of their begins.
fn blocks<'a>(tokens: &[Token<'a>]) -> Vec<Block<'a>> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut blocks = Vec::new();
    for at in 0..tokens.len() {
        let before = at.checked_sub(1).map_or(";", text);
        let begins_item = matches!(before, ";" | "{" | "}" | "]" | ")" | "unsafe" | "pub");
        let is_trait = text(at) == "trait";
        if !begins_item || !(is_trait || text(at) == "impl") {
            continue;
        }
        // The words outside of angle brackets, up to the body.
        let (mut depth, mut end, mut words) = (0_usize, at + 1, Vec::new());
        while !matches!(text(end), "{" | ";" | "") {
            match text(end) {
                "<" => depth += 1,
                ">" if text(end - 1) != "-" => depth = depth.saturating_sub(1),
                word if depth == 0 => words.push(word),
                _ => {}
            }
            end += 1;
        }
        if text(end) != "{" {
            continue;
        }
        let bounds = words.iter().position(|word| *word == "where" || (is_trait && *word == ":"));
        words.truncate(bounds.unwrap_or(words.len()));
        let place = words.iter().rposition(|word| *word == "for");
        let is_word = |word: &&&str| word.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let of = if is_trait { words.first() } else { words[place.map_or(0, |at| at + 1)..].iter().rfind(is_word) };
        if let Some(of) = of {
            blocks.push(Block { of, is_of_trait: place.is_some(), open: end, close: closing(tokens, end) });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edges by calls, as `a.rs -> b.rs: name`. `b.rs` defines `only` and `both` of `Core`, `a.rs` `both` of `Other`.
    fn calls(body: &str) -> Vec<String> {
        let a = format!(
            "impl Other {{ fn both(&self) {{}} }} impl<T: Fn() -> u8> Caller<T> {{ fn f(&self) {{ {body} }} }}"
        );
        let b = "impl<E: Engine<A>, H> Core<E, H> where H: X { fn only(&self) {} fn both() {} fn take() {} }
                 #[cfg(test)] impl Core { fn for_tests() {} } impl Sink for Core<E> { fn caught(&self) {} }
                 pub(crate) trait Handler { fn on_open(&mut self) {} }";
        let sources = Sources::from([("a.rs".to_owned(), a), ("b.rs".to_owned(), b.to_owned())]);
        let edges = edges(&sources, sources.keys().map(String::as_str), &BTreeSet::from(["elsewhere"]));
        let lines = edges.iter().flat_map(|(from, to)| to.iter().map(move |(to, names)| (from, to, names)));
        lines
            .flat_map(|(from, to, names)| names.iter().map(move |(_, name)| format!("{from} -> {to}: {name}")))
            .collect()
    }

    #[test]
    fn a_receiver_that_names_its_type_tells_the_file() {
        for body in ["core.both()", "self.core.both()", "Core::both", "x.core.take()", "g(core.caught())"] {
            assert_eq!(calls(body).len(), 1, "{body}");
        }
        assert!(calls("other.both(); self.other.both(); Other::both()").is_empty(), "its own file");
    }

    #[test]
    fn a_name_of_one_method_alone_needs_no_receiver() {
        assert_eq!(calls("x().only()"), ["a.rs -> b.rs: only"]);
        assert_eq!(calls("y.on_open()?.z"), ["a.rs -> b.rs: on_open"]);
    }

    #[test]
    fn ambiguous_names_fields_and_tests_are_left_out() {
        for body in ["x.both()", "x.take()", "self.only()", "x.only", "x.for_tests()", "only()", "x.caught()"] {
            assert!(calls(body).is_empty(), "{body}");
        }
    }

    #[test]
    fn functions_of_a_type_count_in_all_files_with_those_of_traits() {
        let sources = Sources::from([
            ("a.rs".to_owned(), "impl Core { fn f() { fn inner() {} } const fn g() {} }".to_owned()),
            ("b.rs".to_owned(), "impl<A> fmt::Debug for Core<A> { fn fmt() {} } impl Corer { fn h() {} }".to_owned()),
        ]);
        assert_eq!(Methods::read(&sources, sources.keys().map(String::as_str)).count("Core"), 3);
    }
}
