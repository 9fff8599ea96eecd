//! Tokens of lanes.

use super::lane::Lane;
use tautline::layers::io::Token;

#[derive(Default)]
struct Place {
    generation: u32,
    lane: Option<Box<Lane>>,
}

/// All lanes of a driver, by their tokens.
#[derive(Default)]
pub(super) struct Lanes {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Lanes {
    pub(super) fn add(&mut self, lane: Lane) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            // A load has fewer connections than that.
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[index as usize];
        place.lane = Some(Box::new(lane));
        Token { index, generation: place.generation }
    }

    pub(super) fn get(&self, token: Token) -> Option<&Lane> {
        let place = self.places.get(token.index as usize).filter(|place| place.generation == token.generation)?;
        place.lane.as_deref()
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Lane> {
        let place = self.places.get_mut(token.index as usize).filter(|place| place.generation == token.generation)?;
        place.lane.as_deref_mut()
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Box<Lane>> {
        let place = self.places.get_mut(token.index as usize).filter(|place| place.generation == token.generation)?;
        let lane = place.lane.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::Lane;
    use super::Lanes;

    #[test]
    fn a_token_names_no_later_lane() {
        let mut lanes = Lanes::default();
        let first = lanes.add(Lane::new(0));
        assert!(lanes.remove(first).is_some() && lanes.remove(first).is_none());
        let second = lanes.add(Lane::new(1));
        assert_eq!((second.index, second.generation), (first.index, 1));
        assert!(lanes.get(first).is_none() && lanes.get_mut(second).is_some_and(|lane| lane.carrier == 1));
    }
}
