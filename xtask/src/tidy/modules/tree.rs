//! The modules of one crate: the file of each, its names, and the paths in its code.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::tokens::{Token, tokens};

/// Files by their path below `src`.
pub(super) type Sources = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(super) struct Module {
    /// Its file. A module in braces shares it with the module around it.
    pub(super) file: String,
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, Vec<usize>>,
    pub(super) imports: BTreeMap<String, Vec<Import>>,
    /// Imports of everything (`use a::*`).
    pub(super) globs: Vec<Import>,
    /// Names of its items.
    pub(super) items: BTreeSet<String>,
    /// Names of variables, fields and functions in its code.
    pub(super) bound: BTreeSet<String>,
    /// Only in the root: macros of all modules.
    pub(super) macros: BTreeMap<String, usize>,
    pub(super) mentions: Vec<Mention>,
    /// The folder of its children's files, empty or ending in `/`.
    folder: String,
}

/// One leaf of a `use`.
#[derive(Clone, Debug)]
pub(super) struct Import {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    /// Others can name the item through this module.
    pub(super) exported: bool,
}

/// A path in code.
#[derive(Debug)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// Keywords before the name of an item.
const DEFINING: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mut"];

/// Reads the modules that a root such as `lib.rs` declares, other than tests. The root is the first.
pub(super) fn read(sources: &Sources, root: &str) -> Vec<Module> {
    let mut modules = Vec::new();
    file(&mut modules, sources, Module { file: root.to_owned(), ..Module::default() });
    modules
}

/// Adds the module of a file, and those below it. A file with `#![cfg(test)]` has none.
fn file(modules: &mut Vec<Module>, sources: &Sources, module: Module) -> Option<usize> {
    let tokens = tokens(&sources[&module.file]);
    let reader = Reader { sources, tokens: &tokens };
    if (0..tokens.len()).any(|at| reader.text(at) == "!" && reader.is_for_tests(at + 1)) {
        return None;
    }
    modules.push(module);
    let own = modules.len() - 1;
    reader.code(modules, own, 0, tokens.len());
    Some(own)
}

/// The tokens of a file without those of tests.
pub(super) fn product(source: &str) -> Vec<Token<'_>> {
    let tokens = tokens(source);
    let reader = Reader { sources: &Sources::new(), tokens: &tokens };
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if reader.text(at) == "#" && reader.text(at + 1) == "[" {
            let end = closing(&tokens, at + 1);
            at = if reader.is_for_tests(at + 1) { reader.part_end(end) } else { end };
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The place behind the bracket that closes the one here.
pub(super) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// The tokens of one file. Places in them are counted from 0.
struct Reader<'a> {
    sources: &'a Sources,
    tokens: &'a [Token<'a>],
}

impl<'a> Reader<'a> {
    /// The text of a token, empty behind the last.
    fn text(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn is_word(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_word())
    }

    /// Reads the tokens between two places into a module.
    fn code(&self, modules: &mut Vec<Module>, module: usize, mut at: usize, end: usize) {
        // The file that an attribute gives to the next module, and whether the next `use` exports.
        let (mut path, mut exported) = (None, false);
        let (mut depth, mut macro_end) = (0, 0);
        while at < end {
            let before = if at == 0 { ";" } else { self.text(at - 1) };
            let next = self.text(at + 1);
            match self.text(at) {
                "#" if matches!(next, "[" | "!") => {
                    let open = if next == "!" { at + 2 } else { at + 1 };
                    if self.text(at + 2) == "path" {
                        path = Some(self.text(at + 4).trim_matches('"'));
                    }
                    at = closing(self.tokens, open);
                    if self.is_for_tests(open) {
                        (path, at) = (None, self.part_end(at));
                    }
                    continue;
                }
                "pub" => {
                    exported = true;
                    at = if next == "(" { closing(self.tokens, at + 1) } else { at + 1 };
                    continue;
                }
                "macro_rules" => {
                    // Others name an exported macro by the root.
                    modules[0].macros.insert(self.text(at + 2).to_owned(), module);
                    macro_end = closing(self.tokens, at + 3);
                    at += 3;
                }
                "mod" if self.is_word(at + 1) => {
                    let folder = format!("{}{next}/", modules[module].folder);
                    let child = Module { parent: Some(module), folder, ..Module::default() };
                    let close = if self.text(at + 2) == "{" { closing(self.tokens, at + 2) } else { at + 3 };
                    if let Some(child) = self.child(modules, child, path.take(), (at, close)) {
                        modules[module].children.entry(next.to_owned()).or_default().push(child);
                    }
                    at = close;
                }
                "use" if next != "<" => at = self.imports(&mut modules[module], exported, at + 1),
                word if self.is_word(at) && !matches!(before, "." | "::") => {
                    let line = self.tokens[at].line;
                    let mut path = vec![word.to_owned()];
                    while self.text(at + 1) == "::" && self.is_word(at + 2) {
                        at += 2;
                        path.push(self.text(at).to_owned());
                    }
                    let is_alone = path.len() == 1;
                    if is_alone && depth == 0 && DEFINING.contains(&before) {
                        modules[module].items.insert(word.to_owned());
                    } else if is_alone && (DEFINING.contains(&before) || matches!(before, "let" | "|") || next == ":") {
                        modules[module].bound.insert(word.to_owned());
                    } else if !is_alone || at >= macro_end {
                        // The caller of a macro resolves single words in it.
                        modules[module].mentions.push(Mention { path, line });
                    }
                    at += 1;
                }
                brace => {
                    depth += usize::from(brace == "{");
                    depth -= usize::from(brace == "}" && depth > 0);
                    at += 1;
                }
            }
            exported = false;
        }
    }

    /// Adds a child that is declared at a place: a file, or the code in braces.
    fn child(
        &self,
        modules: &mut Vec<Module>,
        mut child: Module,
        path: Option<&str>,
        (at, close): (usize, usize),
    ) -> Option<usize> {
        let parent = &modules[child.parent?];
        if self.text(at + 2) == "{" {
            child.file.clone_from(&parent.file);
            modules.push(child);
            let own = modules.len() - 1;
            self.code(modules, own, at + 3, close - 1);
            return Some(own);
        }
        let beside = parent.file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let files = match path {
            Some(path) => vec![format!("{beside}{path}")],
            None => vec![format!("{}.rs", child.folder.trim_end_matches('/')), format!("{}mod.rs", child.folder)],
        };
        child.file = files.into_iter().find(|file| self.sources.contains_key(file))?;
        file(modules, self.sources, child)
    }

    /// Records the leaves of one `use`, and returns the place behind it.
    fn imports(&self, module: &mut Module, exported: bool, mut at: usize) -> usize {
        // The path so far, with its length before each brace that is open.
        let (mut path, mut marks): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
        while at < self.tokens.len() && self.text(at) != ";" {
            let import = |path: &[String]| Import { path: path.to_vec(), line: self.tokens[at].line, exported };
            match self.text(at) {
                "{" => marks.push(path.len()),
                "}" => drop(marks.pop()),
                "," => path.truncate(marks.last().copied().unwrap_or(0)),
                "*" => module.globs.push(import(&path)),
                "as" => at += 1,
                word if self.is_word(at) => {
                    path.push(word.to_owned());
                    if self.text(at + 1) != "::" {
                        // The name of `a::{self}` is `a`. It is the module, even if there is a function `a` too.
                        let own = path.iter().rfind(|word| *word != "self").map_or("", String::as_str);
                        let name = if self.text(at + 1) == "as" { self.text(at + 2) } else { own };
                        module.imports.entry(name.to_owned()).or_default().push(import(&path));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        at + 1
    }

    /// Whether the attribute that opens here gives the next item to tests alone.
    fn is_for_tests(&self, open: usize) -> bool {
        let words: Vec<&str> = (open..closing(self.tokens, open)).map(|at| self.text(at)).collect();
        words.get(1) == Some(&"cfg") && words.contains(&"test") && !words.contains(&"any") && !words.contains(&"not")
    }

    /// The place behind an item, a statement, a field or an argument.
    fn part_end(&self, mut at: usize) -> usize {
        while self.text(at) == "#" {
            at = closing(self.tokens, at + 1);
        }
        let name = match (self.text(at), self.text(at + 1)) {
            ("pub", "(") => closing(self.tokens, at + 1),
            ("pub", _) => at + 1,
            _ => at,
        };
        // A comma ends a field or an argument, but not an item, whose name does not come first.
        let has_comma = !self.is_word(name + 1);
        while at < self.tokens.len() {
            match self.text(at) {
                ")" | "]" | "}" => return at,
                ";" => return at + 1,
                "," if has_comma => return at + 1,
                "{" => return closing(self.tokens, at),
                "(" | "[" => at = closing(self.tokens, at),
                _ => at += 1,
            }
        }
        at
    }
}
