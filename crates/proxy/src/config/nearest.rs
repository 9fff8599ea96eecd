//! Names that somebody may have meant.

use strsim::levenshtein;

/// The nearest of these names, if it is near.
pub(super) fn nearest<'n>(unknown: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let nearest = names.into_iter().min_by_key(|name| levenshtein(unknown, name))?;
    (levenshtein(unknown, nearest) <= unknown.len().max(4) / 2).then_some(nearest)
}

/// A name in place of one that is not known, for the end of a message.
pub(super) fn suggestion<'n>(unknown: &str, names: impl IntoIterator<Item = &'n str> + Clone) -> String {
    match nearest(unknown, names.clone()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => {
            let names: Vec<&str> = names.into_iter().collect();
            if names.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", names.join(", ")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_that_with_the_fewest_changes() {
        assert_eq!(nearest("lisen", ["route", "listen", "backend"]), Some("listen"));
        assert_eq!(nearest("zzzzzz", ["route", "listen"]), None);
    }
}
