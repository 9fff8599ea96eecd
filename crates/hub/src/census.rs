//! Figures of namespaces, for operators.
//!
//! Each namespace of the rules has figures of its own, and so do the topics without one. Their number is that of the file of rules:
//! no client can add to it.

use crate::figures::{Counts, NamespaceFigures};
use crate::lock::lock;
use crate::rules::Rules;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tautline::Totals;

/// Most namespaces with figures of their own. Further ones have figures together.
const MOST: usize = 100;

/// Names of figures that are not those of one namespace: of all topics where everybody may do everything, of topics without a
/// namespace, and of namespaces beyond the bound.
const ALL: &str = "*";
const NONE: &str = "(none)";
const FURTHER: &str = "(further)";

/// The figures of all namespaces of the rules.
#[derive(Default)]
pub(crate) struct Census(Mutex<Vec<Arc<Counts>>>);

impl Census {
    /// Gives rules the figures of their namespaces, those of before where a pattern was there already.
    pub(crate) fn equip(&self, rules: &mut Rules) {
        let mut known = lock(&self.0);
        let before: HashMap<Arc<str>, Arc<Counts>> =
            known.iter().map(|counts| (counts.name.clone(), counts.clone())).collect();
        known.clear();
        let names = rules.namespaces.iter().enumerate();
        let names = names.map(|(number, space)| if number < MOST { space.topics.text() } else { FURTHER });
        let of_others = if rules.is_open { ALL } else { NONE };
        let all = names.chain([of_others]).map(|name| {
            if let Some(counts) = known.iter().find(|counts| *counts.name == *name) {
                return counts.clone();
            }
            let counts = before.get(name).cloned().unwrap_or_else(|| Counts::new(name));
            known.push(counts.clone());
            counts
        });
        rules.counts = all.collect();
    }

    pub(crate) fn figures(&self) -> Vec<NamespaceFigures> {
        lock(&self.0).iter().map(|counts| counts.figures()).collect()
    }

    /// The totals, by their names.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for of in self.figures() {
            let all = [of.publications, of.deliveries, of.drops, of.history, of.left_out];
            for (kind, value) in KINDS.into_iter().zip(all) {
                totals.put(format!("{kind}/{}", of.name), value);
            }
        }
        totals
    }

    /// Goes on with the totals of an earlier process.
    pub(crate) fn add_totals(&self, totals: &Totals) {
        let known = lock(&self.0);
        for (name, value) in totals.iter() {
            let Some((kind, name)) = name.split_once('/') else { continue };
            let Some(counts) = known.iter().find(|counts| *counts.name == *name) else { continue };
            match KINDS.iter().position(|of| *of == kind) {
                Some(0) => counts.publish(value),
                Some(1) => counts.topics.add(value, 0),
                Some(2) => counts.topics.add(0, value),
                Some(3) => counts.send_history(value),
                Some(4) => counts.leave_out(value),
                _ => {}
            }
        }
    }
}

/// Names of totals.
const KINDS: [&str; 5] = ["publications", "deliveries", "drops", "history", "left-out"];

#[cfg(test)]
mod tests {
    use super::{Census, MOST};
    use crate::rules::{Namespace, Rights, Rules, Terms};

    fn rules(patterns: impl IntoIterator<Item = String>) -> Rules {
        let mut rules = Rules::closed();
        let space = |pattern: String| {
            let (anyone, users, terms) = (Rights::default(), Rights::default(), Terms::default());
            Namespace { topics: pattern.parse().unwrap(), anyone, users, terms }
        };
        rules.namespaces = patterns.into_iter().map(space).collect();
        rules
    }

    #[test]
    fn figures_go_on_over_reloads_and_their_number_is_bounded() {
        let census = Census::default();
        let mut first = rules(["chat:*", "news"].map(str::to_owned));
        census.equip(&mut first);
        first.counts_of("chat:1").unwrap().publish(1);
        first.counts_of("other").unwrap().publish(1);
        let names = || census.figures().iter().map(|of| (of.name.to_string(), of.publications)).collect::<Vec<_>>();
        let named = |name: &str, number| (name.to_owned(), number);
        assert_eq!(names(), [named("chat:*", 1), named("news", 0), named("(none)", 1)]);
        let mut second = rules((0..3 * MOST).map(|number| format!("n{number}")).chain(["chat:*".to_owned()]));
        census.equip(&mut second);
        assert_eq!(census.figures().len(), MOST + 2);
        second.counts_of("n250").unwrap().publish(1);
        second.counts_of("n299").unwrap().publish(1);
        assert!(names().contains(&named("(further)", 2)) && names().contains(&named("(none)", 1)));
        census.equip(&mut Rules::open());
        assert_eq!(names(), [named("*", 0)]);
    }

    #[test]
    fn totals_go_on_in_another_process() {
        let [old, new] = [0; 2].map(|_| Census::default());
        let [mut before, mut after] = [0; 2].map(|_| rules(["chat:*".to_owned()]));
        old.equip(&mut before);
        new.equip(&mut after);
        let counts = before.counts_of("chat:1").unwrap();
        counts.publish(1);
        counts.send_history(7);
        counts.topics.add(5, 3);
        new.add_totals(&old.totals());
        assert_eq!(new.figures(), old.figures());
        let figures = &new.figures()[0];
        assert_eq!((figures.publications, figures.deliveries, figures.drops, figures.history), (1, 5, 3, 7));
    }
}
