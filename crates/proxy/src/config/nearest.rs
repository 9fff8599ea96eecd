//! Names that somebody may have meant.

/// The nearest of these names, if it is near.
pub(super) fn nearest<'n>(unknown: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let nearest = names.into_iter().min_by_key(|name| distance(unknown, name))?;
    (distance(unknown, nearest) <= unknown.len().max(4) / 2).then_some(nearest)
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

/// Letters to insert, remove or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (column, candidate) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *candidate);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_that_with_the_fewest_changes() {
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("a", "a")), (3, 3, 0));
        assert_eq!(nearest("lisen", ["route", "listen", "backend"]), Some("listen"));
        assert_eq!(nearest("zzzzzz", ["route", "listen"]), None);
    }
}
