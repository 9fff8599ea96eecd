use super::tally::{Tallies, Times};
use crate::ids::DialId;

/// Most dials whose times are counted apart: 64 of them take 16 MiB. Those beyond count only with all others.
const MOST: usize = 64;

/// The times of messages by dial.
#[derive(Default)]
pub(super) struct DialTallies {
    dials: Vec<(DialId, Tallies)>,
    /// The place of the last one, which is likely to be the next one too.
    last: usize,
}

impl DialTallies {
    #[inline]
    pub(super) fn add(&mut self, dial: DialId, times: Times) {
        if self.dials.get(self.last).is_none_or(|(id, _)| *id != dial) && !self.find(dial) {
            return;
        }
        if let Some((_, tallies)) = self.dials.get_mut(self.last) {
            tallies.add(times);
        }
    }

    /// Makes `dial` the last one. False if there are too many.
    fn find(&mut self, dial: DialId) -> bool {
        let found = self.dials.iter().position(|(id, _)| *id == dial);
        if found.is_none() && self.dials.len() == MOST {
            return false;
        }
        self.last = found.unwrap_or_else(|| {
            self.dials.push((dial, Tallies::new()));
            self.dials.len() - 1
        });
        true
    }

    pub(super) fn of(&self, dial: DialId) -> Option<&Tallies> {
        self.dials.iter().find(|(id, _)| *id == dial).map(|(_, tallies)| tallies)
    }

    pub(super) fn remove(&mut self, dial: DialId) {
        self.dials.retain(|(id, _)| *id != dial);
    }
}

#[cfg(test)]
mod tests {
    use super::{DialTallies, MOST};
    use crate::ids::DialId;
    use crate::probe::Stage;

    #[test]
    fn dials_are_bounded_and_forgotten() {
        let mut tallies = DialTallies::default();
        let ids = || (0_u32..).map(DialId);
        for _ in 0..3 {
            ids().take(MOST + 1).for_each(|dial| tallies.add(dial, [1; 8]));
        }
        let messages = |tallies: &DialTallies, dial| tallies.of(dial).map(|one| one.messages(Stage::App as usize));
        assert!(ids().take(MOST).all(|dial| messages(&tallies, dial) == Some(3)));
        let beyond = DialId(64);
        assert_eq!(messages(&tallies, beyond), None);
        tallies.remove(DialId(7));
        tallies.add(beyond, [1; 8]);
        assert_eq!((messages(&tallies, beyond), messages(&tallies, DialId(7))), (Some(1), None));
    }
}
