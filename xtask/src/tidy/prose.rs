//! Rules for comments and Markdown: how a sentence begins, and how long sentences and lines are.
//!
//! A long sentence in a comment is a warning: it should not stop work on the code beside it.

use super::files::Files;
use super::tokens::comments;

/// Columns that a line of Markdown may have, except in a table, in code, or with a URL.
const MOST_COLUMNS: usize = 110;

/// Words that a sentence may have, up to a full stop, a colon or a semicolon.
const MOST_WORDS: usize = 28;

/// A sentence with this number of commas counts as a list, which may be longer.
const LIST_COMMAS: usize = 3;

/// Written in two parts, so that this file keeps its own rule.
const WHOEVER: &str = concat!("who", "ever");

/// Words behind "The same" that leave it without a noun.
const NO_NOUN: [&str; 22] = [
    "after", "again", "as", "at", "but", "by", "for", "from", "goes", "holds", "if", "in", "is", "of", "on", "over",
    "through", "to", "when", "where", "with", "without",
];

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Warning,
    Failure,
}

/// Checks every file. Warnings are only printed.
pub(super) fn check(files: &Files) -> Vec<String> {
    let (failures, warnings): (Vec<_>, Vec<_>) =
        files.iter().flat_map(|(path, text)| file(path, text)).partition(|(level, _)| *level == Level::Failure);
    warnings.iter().for_each(|(_, warning)| eprintln!("warning: {warning}"));
    failures.into_iter().map(|(_, failure)| failure).collect()
}

/// Findings in one file, as `path:line: text`.
fn file(path: &str, text: &str) -> Vec<(Level, String)> {
    let mut prose =
        Prose { long: if path.ends_with(".rs") { Level::Warning } else { Level::Failure }, ..Prose::default() };
    let mut findings = Vec::new();
    let mut add = |level, line: usize, finding: &str| findings.push((level, format!("{path}:{line}: {finding}")));
    if path.ends_with(".rs") {
        let mut last = 0;
        for comment in comments(text) {
            if comment.line != last + 1 {
                prose.paragraph_ends();
            }
            last = comment.line;
            let text = comment.text.trim_start_matches(['/', '!']);
            prose.line(text, &mut |level, finding| add(level, comment.line, finding));
        }
    } else if path.ends_with(".md") {
        for (number, line) in text.lines().enumerate() {
            let is_prose = prose.line(line, &mut |level, finding| add(level, number + 1, finding));
            let columns = line.chars().count();
            if is_prose && columns > MOST_COLUMNS && !line.contains("://") {
                add(Level::Failure, number + 1, &format!("{columns} columns are more than {MOST_COLUMNS}"));
            }
        }
    }
    findings
}

/// A reader of lines that knows where a sentence begins.
struct Prose {
    in_code: bool,
    /// The next word begins a sentence.
    begins: bool,
    /// Words and commas of the sentence up to now.
    words: usize,
    commas: usize,
    /// The level of a sentence that is too long.
    long: Level,
}

impl Default for Prose {
    fn default() -> Self {
        Self { in_code: false, begins: true, words: 0, commas: 0, long: Level::Failure }
    }
}

impl Prose {
    fn paragraph_ends(&mut self) {
        *self = Self { long: self.long, ..Self::default() };
    }

    /// Reads a line, and says whether it is prose rather than code or part of a table.
    fn line(&mut self, line: &str, add: &mut impl FnMut(Level, &str)) -> bool {
        let line = line.trim();
        if line.starts_with("```") {
            self.in_code = !self.in_code;
            self.sentence_begins();
            return false;
        }
        if self.in_code || line.starts_with('|') {
            return false;
        }
        let item = ["- ", "* ", "> "].iter().find_map(|mark| line.strip_prefix(mark));
        let is_heading = line.starts_with('#');
        if line.is_empty() || item.is_some() || is_heading {
            self.sentence_begins();
        }
        let mut rest = item.unwrap_or(line);
        if rest.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case(WHOEVER)) {
            add(Level::Failure, &format!("`{WHOEVER}`: name the subject"));
        }
        rest.split_whitespace().for_each(|word| self.word(word, add));
        while !is_heading && !rest.is_empty() {
            if let Some(words) = headless(rest).filter(|_| self.begins) {
                add(Level::Failure, &format!("a sentence begins with `{words}`: name the subject"));
            }
            let end = rest.find(". ").into_iter().chain(rest.find("? ")).min();
            self.begins = end.is_some() || rest.ends_with(['.', '?', ':', '!']);
            rest = end.map_or("", |end| rest[end + 2..].trim_start());
        }
        if is_heading {
            self.sentence_begins();
        }
        true
    }

    fn sentence_begins(&mut self) {
        (self.begins, self.words, self.commas) = (true, 0, 0);
    }

    /// Counts a word, and checks the sentence that it ends.
    fn word(&mut self, word: &str, add: &mut impl FnMut(Level, &str)) {
        self.words += usize::from(word.contains(char::is_alphanumeric));
        let end = word.trim_end_matches(['*', '_', '`', '"', ')']);
        self.commas += usize::from(end.ends_with(','));
        if end.ends_with(['.', '?', '!', ':', ';']) {
            if self.words > MOST_WORDS && self.commas < LIST_COMMAS {
                add(self.long, &format!("a sentence of {} words: more than {MOST_WORDS} need two", self.words));
            }
            (self.words, self.commas) = (0, 0);
        }
    }
}

/// The words without a noun that a sentence begins with. A question may begin so.
fn headless(sentence: &str) -> Option<&str> {
    let sentence = sentence.trim_start_matches(['*', '_', '"']);
    let end = sentence.find(['.', '?']).unwrap_or(sentence.len());
    if sentence[end..].starts_with('?') {
        return None;
    }
    let begins = |words: &str| sentence.strip_prefix(words).filter(|rest| !rest.starts_with(char::is_alphanumeric));
    let always = ["What", "Who", "Those who", "Those that"];
    if let Some(words) = always.into_iter().find(|words| begins(words).is_some()) {
        return Some(words);
    }
    let rest = begins("The same")?;
    let word = rest.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    (!rest.starts_with(' ') || NO_NOUN.contains(&word)).then_some("The same")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let line = |(_, finding): (Level, String)| finding.split(':').nth(1).unwrap().parse().unwrap();
        file(path, text).into_iter().map(line).collect()
    }

    #[test]
    fn sentences_without_a_subject_are_found_in_comments() {
        let text = "/// What it is.\n/// A thing. Who uses it\n/// What is this?\n\n// a What\n//\n// Those that do. The same, twice.\n";
        assert_eq!(lines("a.rs", text), [1, 2, 7, 7]);
        let good = "// The one\n// What goes on is one sentence. The same thing, and what it is.\nlet a = \"// What\";\n// Whatever.\n";
        assert!(lines("a.rs", good).is_empty());
    }

    #[test]
    fn code_tables_headings_and_questions_are_left_out() {
        let text = "# What it is\n\nText.\n\n```\nWhat\n```\n| What |\n\nWhat is it? Good.\n- What it is.\n";
        assert_eq!(lines("a.md", text), [11]);
    }

    #[test]
    fn long_lines_are_found_in_markdown() {
        let long = "a ".repeat(60);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\nhttps://a.example {long}\n- {long}\n");
        assert_eq!(lines("a.md", &text), [1, 7]);
        assert!(lines("a.txt", &text).is_empty());
    }

    #[test]
    fn long_sentences_are_found_unless_they_are_lists() {
        let words = |count: usize| "word ".repeat(count - 1) + "word";
        assert_eq!(lines("a.rs", &format!("/// {}\n/// {}. {}.\n", words(20), words(9), words(28))), [2]);
        let long = words(20);
        let short = format!("//! {}. {long}: {long}\n//!\n//! {long}.\n//! - {long}.\n", words(28));
        assert!(lines("a.rs", &short).is_empty());
        let list = |commas: usize| "a, ".repeat(commas) + &words(30);
        assert_eq!(lines("a.rs", &format!("// {}.\n// {}.\n", list(3), list(2))), [2]);
    }

    #[test]
    fn a_long_sentence_warns_in_a_comment_and_fails_in_markdown() {
        let text = format!("// {}.\n", "a ".repeat(29).trim_end());
        let levels = |path| file(path, &text).into_iter().map(|(level, _)| level).collect::<Vec<_>>();
        assert_eq!(levels("a.rs"), [Level::Warning]);
        assert_eq!(levels("a.md"), [Level::Failure]);
        assert_eq!(file("a.rs", "// What it is.\n")[0].0, Level::Failure);
    }

    #[test]
    fn a_word_is_found_anywhere_in_prose() {
        assert_eq!(lines("a.md", &format!("It is up to {WHOEVER} reads.\n")), [1]);
        assert_eq!(lines("a.rs", &format!("fn {WHOEVER}() {{}} // {WHOEVER}\n")), [1]);
    }
}
