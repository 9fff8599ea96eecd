use std::collections::BTreeMap;

use super::*;

/// A crate of these files.
fn sources(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect::<BTreeMap<_, _>>()
}

/// The edges of a crate, as `a.rs -> b.rs`.
fn drawn(files: &[(&str, &str)]) -> Vec<String> {
    let graph = edges(&tree::read(&sources(files), "lib.rs"));
    graph.iter().flat_map(|(from, to)| to.keys().map(move |to| format!("{from} -> {to}"))).collect()
}

fn found(files: &[(&str, &str)]) -> Vec<String> {
    check_package("crates/x", &sources(files))
}

#[test]
fn two_files_that_use_each_other_are_a_circle_with_its_lines() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B;\nimpl B {\n    fn f(_: super::a::A) {}\n}\n"),
    ];
    let expected = [
        "crates/x/src: these files use each other in a circle: a.rs, b.rs",
        "  crates/x/src/a.rs:1: `crate::b::B` of b.rs",
        "  crates/x/src/b.rs:3: `super::a::A` of a.rs",
    ];
    assert_eq!(found(&files), expected);
}

#[test]
fn one_direction_is_no_circle() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("b.rs", "pub struct B;\n"),
    ];
    assert_eq!(drawn(&files), ["a.rs -> b.rs"]);
    assert!(found(&files).is_empty());
}

#[test]
fn a_parent_that_declares_and_exports_does_not_use_its_children() {
    let files = [
        ("lib.rs", "mod a;\npub(crate) use a::{A, B as C};\npub use a::d::*;\npub struct Limit;\n"),
        ("a/mod.rs", "pub mod d;\nuse crate::Limit;\npub struct A(Limit);\npub struct B;\n"),
        ("a/d.rs", "pub struct D;\n"),
    ];
    assert_eq!(drawn(&files), ["a/mod.rs -> lib.rs"]);
}

#[test]
fn a_parent_that_uses_a_child_which_uses_the_parents_item_is_a_circle() {
    let child = ("a.rs", "use super::Limit;\npub struct A(Limit);\n");
    for parent in [
        "mod a;\nuse a::A;\npub struct Limit;\nfn f(_: A) {}\n",
        "mod a;\npub use a::A;\npub struct Limit;\nfn f(_: A) {}\n",
        "mod a;\npub use a::*;\npub struct Limit;\nfn f() { let _ = A::new(); }\n",
        "mod a;\npub struct Limit;\nfn f() { a::A::new() }\n",
    ] {
        assert_eq!(found(&[("lib.rs", parent), child]).len(), 3, "{parent}");
    }
    assert!(found(&[("lib.rs", "mod a;\npub use a::A;\npub struct Limit;\n"), child]).is_empty());
}

#[test]
fn paths_lead_through_exports_to_the_file_that_defines() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;\npub use a::A;\nuse http::Uri;\n"),
        ("a/mod.rs", "mod inner;\npub use inner::{A, inner, run as go};\n"),
        ("a/inner.rs", "pub struct A;\npub fn inner() {}\npub fn run() {}\n"),
        ("b.rs", "use crate::A;\nuse crate::Uri;\n"),
        ("c.rs", "use crate::{a, b};\nfn f() { a::go(); }\n"),
        ("d.rs", "use crate::a::inner;\nfn f() { inner() }\n"),
        ("e.rs", "use crate::a::{self as x, inner::{self}};\nfn f() { inner::run(); x::go() }\n"),
    ];
    assert_eq!(drawn(&files), ["b.rs -> a/inner.rs", "c.rs -> a/inner.rs", "d.rs -> a/inner.rs", "e.rs -> a/inner.rs"]);
}

#[test]
fn nested_imports_renames_and_modules_in_braces_are_followed() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c { pub mod d; pub fn f() { super::b::g() } }\n"),
        ("a.rs", "use crate::{b::{self, g as h}, c::d::{E, F}};\n"),
        ("b.rs", "pub fn g() {}\n"),
        ("c/d.rs", "pub enum E { X }\npub struct F;\nfn f() { use E::*; use super::super::a; }\n"),
    ];
    assert_eq!(drawn(&files), ["a.rs -> b.rs", "a.rs -> c/d.rs", "lib.rs -> b.rs"]);
}

#[test]
fn globs_count_for_the_names_that_are_used() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nconst LIMIT: u8 = 1;\n"),
        ("a.rs", "pub use super::b::*;\npub struct A;\n"),
        ("b.rs", "pub struct B;\n"),
        ("c.rs", "use super::*;\nuse crate::a::*;\nfn f(_: B) {}\n"),
    ];
    assert_eq!(drawn(&files), ["c.rs -> b.rs"]);
}

#[test]
fn variables_fields_and_methods_may_share_a_name_with_an_export() {
    let parent = |code: &str| format!("mod a;\npub use a::{{f, g}};\n{code}\n");
    for code in ["trait T { fn f(); }", "fn h() { let f = 1; f }", "fn h(f: fn()) { f() }", "fn h() { |f| f() }"] {
        assert!(drawn(&[("lib.rs", &parent(code)), ("a.rs", "pub fn f() {}\n")]).is_empty(), "{code}");
    }
    assert_eq!(drawn(&[("lib.rs", &parent("fn h(f: u8) { g() }")), ("a.rs", "pub fn g() {}\n")]), ["lib.rs -> a.rs"]);
}

#[test]
fn tests_comments_and_strings_do_not_count() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod tests;\n"),
        ("tests.rs", "use crate::a::A;\n"),
        (
            "a.rs",
            "//! [`crate::b::B`]\n// use crate::b::B;\npub struct A;\nconst T: &str = \"crate::b::B\";\n\
             #[cfg(test)]\nuse crate::b::B;\nimpl A {\n    #[cfg(test)]\n    pub(crate) fn f<X, Y>() { crate::b::g() }\n}\n\
             #[cfg(all(test, unix))]\nmod tests { use crate::b::B; }\n",
        ),
        ("b.rs", "pub struct B;\n#[cfg(not(test))]\nuse crate::a::A;\n"),
    ];
    assert_eq!(drawn(&files), ["b.rs -> a.rs"]);
}

#[test]
fn all_of_a_name_s_meanings_count() {
    let files = [
        (
            "lib.rs",
            "#[cfg(unix)]\nmod a;\n#[cfg(not(unix))]\n#[path = \"other.rs\"]\nmod a;\n#[path = \"t.rs\"]\n#[cfg(test)]\nmod t;\nmod b;\n",
        ),
        ("t.rs", "pub fn f() {}\n"),
        ("a.rs", "pub fn f() {}\n"),
        ("other.rs", "pub fn f() {}\n"),
        ("b.rs", "use crate::a;\nfn g(f: u8) { a::f() + f }\n"),
    ];
    assert_eq!(drawn(&files), ["b.rs -> a.rs", "b.rs -> other.rs"]);
}

#[test]
fn what_macros_make_belongs_to_its_module() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "thread_local! { pub static X: u8 = const { 1 }; }\nmake!(Y);\n"),
        ("b.rs", "use crate::a::X;\nuse crate::a::Y;\n"),
    ];
    assert_eq!(drawn(&files), ["b.rs -> a.rs"]);
}

#[test]
fn words_in_a_macro_are_its_callers() {
    let a = "mod b;\npub use b::*;\n#[macro_export]\nmacro_rules! m { () => { g h $crate::c::C } }\nfn f() { $crate::m!() }\n";
    let files =
        [("lib.rs", "mod a;\nmod c;\n"), ("a/mod.rs", a), ("a/b.rs", "pub fn g() {}\n"), ("c.rs", "pub struct C;\n")];
    assert_eq!(drawn(&files), ["a/mod.rs -> c.rs"]);
}
