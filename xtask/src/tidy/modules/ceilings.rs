//! Numbers that may only fall: files that call each other in a circle, and functions of a type that many files add to.

use std::collections::BTreeSet;

use super::calls::Calls;
use super::circles::circles;

const HERE: &str = "xtask/src/tidy/modules/ceilings.rs";

/// The present numbers of a crate.
#[derive(Clone, Copy)]
struct Ceiling {
    package: &'static str,
    /// Files of the largest circle by calls.
    circle: usize,
    /// Types, with the number of functions in their `impl` blocks.
    functions: &'static [(&'static str, usize)],
}

const CEILINGS: &[Ceiling] = &[
    Ceiling { package: "bindings/python", circle: 5, functions: &[] },
    Ceiling { package: "crates/acme", circle: 3, functions: &[] },
    Ceiling { package: "crates/engine", circle: 3, functions: &[("Core", 39), ("Reactor", 44)] },
    Ceiling { package: "crates/hub", circle: 3, functions: &[] },
    Ceiling { package: "crates/io", circle: 3, functions: &[] },
    Ceiling { package: "crates/sim", circle: 2, functions: &[] },
    Ceiling { package: "crates/tautline", circle: 2, functions: &[] },
    Ceiling { package: "crates/tls-records", circle: 2, functions: &[] },
    Ceiling { package: "crates/venue", circle: 2, functions: &[] },
    Ceiling { package: "crates/xdp", circle: 5, functions: &[] },
];

/// Compares all crates with their ceilings. A crate without one has no circle.
pub(super) fn check(crates: &[Calls<'_>]) -> Vec<String> {
    crates.iter().flat_map(|calls| compare(calls, CEILINGS.iter().find(|of| of.package == calls.package))).collect()
}

fn compare(calls: &Calls<'_>, ceiling: Option<&Ceiling>) -> Vec<String> {
    let (circle, functions) = ceiling.map_or((1, &[][..]), |ceiling| (ceiling.circle, ceiling.functions));
    let mut wrong = Vec::new();
    let mut hold = |what: &str, number: usize, most: usize, which: &str| {
        if number > most {
            wrong.push(format!("{}: {what}: {number}, and {most} are the most: {which}", calls.package));
        } else if number < most {
            wrong.push(format!("{}: {what}: write {number} for {most} in {HERE}", calls.package));
        }
    };
    let largest = circles(&calls.edges).into_iter().max_by_key(BTreeSet::len).unwrap_or_default();
    let files: Vec<&str> = largest.into_iter().collect();
    hold("files that call methods of each other in a circle", files.len().max(1), circle, &files.join(", "));
    for (of, most) in functions {
        hold(
            &format!("functions in `impl … {of}`"),
            calls.methods.count(of),
            *most,
            "move some to a part of their own",
        );
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::modules::calls::{Methods, edges};
    use crate::tidy::modules::tree::Sources;

    /// Two files that call each other, and three functions of `Core`.
    fn findings(circle: usize, functions: &'static [(&'static str, usize)]) -> Vec<String> {
        let text = |text: &str| text.to_owned();
        let sources = Sources::from([
            (text("a.rs"), text("impl Core { fn ping(&mut self) { self.pong() } fn one() {} }")),
            (text("b.rs"), text("impl<E> Core<E> { fn pong(&mut self) { self.ping() } }")),
        ]);
        let files = || sources.keys().map(String::as_str);
        let methods = Methods::read(&sources, files());
        let calls = Calls { package: "crates/x", methods, edges: edges(&sources, files(), &BTreeSet::new()) };
        compare(&calls, Some(&Ceiling { package: "crates/x", circle, functions }))
    }

    #[test]
    fn numbers_that_are_written_pass() {
        assert!(findings(2, &[("Core", 3)]).is_empty());
    }

    #[test]
    fn more_than_written_fails_and_names_the_files() {
        let found = findings(1, &[("Core", 2)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("a circle: 2, and 1 are the most: a.rs, b.rs"), "{found:?}");
        assert!(found[1].contains("`impl … Core`: 3, and 2 are the most"), "{found:?}");
    }

    #[test]
    fn fewer_than_written_asks_for_the_present_number() {
        let found = findings(3, &[("Core", 4)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("write 2 for 3") && found[1].contains("write 3 for 4"), "{found:?}");
    }

    #[test]
    fn no_crate_has_two_ceilings() {
        assert!(CEILINGS.is_sorted_by_key(|ceiling| ceiling.package));
        assert!(CEILINGS.windows(2).all(|pair| pair[0].package != pair[1].package));
    }
}
