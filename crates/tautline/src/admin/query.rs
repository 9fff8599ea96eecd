//! The queries of requests about connections.

use crate::{CloseCode, ConnId};

/// Connections that are listed if a request names no number, and the largest number that it may name.
const LISTED: usize = 20;
const MOST_LISTED: usize = 1000;

/// A request for a list of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Most connections of the list.
    pub(super) most: usize,
    /// Whether it is a page in the order of identifiers, instead of the heaviest.
    pub(super) in_order: bool,
    /// The last connection of the page before.
    pub(super) after: Option<ConnId>,
}

impl Wanted {
    /// Reads `most=N`, `order=id` and `after=ID`.
    pub(super) fn parse(query: &str) -> Result<Self, &'static str> {
        let mut wanted = Self { most: LISTED, in_order: false, after: None };
        for (name, value) in pairs(query) {
            match name {
                "most" => {
                    let most = value.parse().ok().filter(|most| (1..=MOST_LISTED).contains(most));
                    wanted.most = most.ok_or("write ?most=N, with N from 1 to 1000")?;
                }
                "order" if value == "id" => wanted.in_order = true,
                "order" => return Err("write ?order=id, or leave it out for the heaviest"),
                "after" => {
                    let after =
                        value.parse().map_err(|_| "write ?after=ID, as 0.12.3, with the last `id` of a page")?;
                    (wanted.in_order, wanted.after) = (true, Some(after));
                }
                _ => {}
            }
        }
        Ok(wanted)
    }
}

/// Reads `code=N` of a request that closes a connection.
pub(super) fn close_code(query: &str) -> Result<CloseCode, &'static str> {
    let Some((_, code)) = pairs(query).find(|(name, _)| *name == "code") else { return Ok(CloseCode::POLICY) };
    let code = code.parse().ok().map(CloseCode::new).filter(|code| code.is_sendable());
    code.ok_or("write ?code=N, with a code that a close frame may have: 1000 to 1003, 1007 to 1014, 3000 to 4999")
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::{Wanted, close_code};

    #[test]
    fn the_number_of_connections_is_bounded() {
        let most = |query| Wanted::parse(query).ok().map(|wanted| wanted.most);
        assert_eq!([most(""), most("other=1"), most("a=b&most=7")], [Some(20), Some(20), Some(7)]);
        assert_eq!([most("most="), most("most=0"), most("most=1001"), most("most=x")], [None; 4]);
    }

    #[test]
    fn a_page_begins_after_a_connection() {
        assert_eq!(Wanted::parse("").map(|wanted| wanted.in_order), Ok(false));
        let wanted = Wanted::parse("order=id").unwrap();
        assert!(wanted.in_order && wanted.after.is_none());
        let wanted = Wanted::parse("after=0.12.3&most=5").unwrap();
        assert_eq!((wanted.in_order, wanted.after.map(|id| id.to_string())), (true, Some("0.12.3".to_owned())));
        assert!(Wanted::parse("after=12").is_err() && Wanted::parse("order=name").is_err());
    }

    #[test]
    fn only_codes_that_a_close_frame_may_have_are_taken() {
        assert_eq!(["", "code=1012", "code=4999"].map(|query| close_code(query).unwrap().get()), [1008, 1012, 4999]);
        for bad in ["code=", "code=1005", "code=1006", "code=5000", "code=x"] {
            assert!(close_code(bad).is_err(), "{bad}");
        }
    }
}
