//! Texts that are published together, as one text: a JSON array ([`Conn::join_texts`](crate::Conn::join_texts)).

use crate::topics::publications::Publication;
use tautline_conn::message::{Encoded, Outgoing, Published};
use tautline_ws::Kind;

/// Bytes of the texts of an array at most, unless it has one alone.
const MOST: usize = 64 << 10;

/// The messages of a run for connections that join texts.
#[derive(Default)]
pub(crate) enum Joined {
    /// No connection has wanted them.
    #[default]
    Unknown,
    /// They cannot be joined.
    Apart,
    Arrays(Vec<Array>),
}

/// Messages in one text.
pub(crate) struct Array {
    pub(crate) message: Encoded,
    /// The number of messages.
    pub(crate) number: u64,
}

impl Joined {
    /// The arrays of a run. `None` if its messages leave as they are. They are made once for all connections.
    pub(crate) fn of(&mut self, run: &[Publication], published: &Published) -> Option<&[Array]> {
        if matches!(self, Self::Unknown) {
            *self = if are_alike(run) { Self::Arrays(join(run, published)) } else { Self::Apart };
        }
        if let Self::Arrays(arrays) = self { Some(arrays) } else { None }
    }
}

/// Whether nothing tells the messages apart but their texts.
fn are_alike(run: &[Publication]) -> bool {
    let Some(first) = run.first().map(|first| &first.message) else { return false };
    run.iter().all(|Publication { message, except, receipts, timed, .. }| {
        message.message.kind() == Kind::Text
            && message.key.is_none()
            && (message.compress, message.policy) == (first.compress, first.policy)
            && except.is_none()
            && receipts.is_none()
            && timed.is_none()
    })
}

fn join(run: &[Publication], published: &Published) -> Vec<Array> {
    let mut arrays = Vec::new();
    let mut left = run;
    while let Some(first) = left.first() {
        let mut bytes = first.len();
        let others = left.iter().skip(1).take_while(|next| {
            bytes += next.len();
            bytes <= MOST
        });
        let (array, rest) = left.split_at(1 + others.count());
        left = rest;
        let message = match array {
            [single] => single.message.clone(),
            many => {
                let array = array_of(many);
                let mut text = Outgoing::text(&array);
                (text.compress, text.policy) = (first.message.compress, first.message.policy);
                Encoded::new(text, published)
            }
        };
        arrays.push(Array { message, number: array.len() as u64 });
    }
    arrays
}

/// The JSON array of some texts, which are JSON.
fn array_of(texts: &[Publication]) -> String {
    let mut array = String::with_capacity(2 + texts.iter().map(|text| text.len() + 1).sum::<usize>());
    for text in texts {
        array.push(if array.is_empty() { '[' } else { ',' });
        // A text of a shard is UTF-8.
        array.push_str(std::str::from_utf8(text.message.message.payload()).unwrap_or("null"));
    }
    array.push(']');
    array
}

#[cfg(test)]
mod tests {
    use super::{Joined, MOST};
    use crate::topics::publications::Publication;
    use tautline_conn::message::{Outgoing, Published};

    fn texts(joined: &mut Joined, run: &[Publication]) -> Option<Vec<String>> {
        let arrays = joined.of(run, &Published::default())?;
        Some(arrays.iter().map(|array| String::from_utf8_lossy(array.message.message.payload()).into_owned()).collect())
    }

    fn publication(message: Outgoing<'_>) -> Publication {
        Publication::to_topic("t", message, &Published::default())
    }

    #[test]
    fn texts_become_arrays_of_a_bounded_size_in_their_order() {
        let long = format!("\"{}\"", "x".repeat(MOST));
        let all = ["1", "2", &long, "3", "4", "5"].map(|text| publication(Outgoing::text(text)));
        let joined = texts(&mut Joined::default(), &all).unwrap();
        assert_eq!(joined, ["[1,2]", &long, "[3,4,5]"]);
        let half = format!("\"{}\"", "x".repeat(MOST / 2));
        let all = [&half, &half, &half].map(|text| publication(Outgoing::text(text)));
        assert_eq!(texts(&mut Joined::default(), &all).unwrap().len(), 3);
    }

    #[test]
    fn messages_that_differ_in_more_than_their_texts_stay_apart() {
        let text = || publication(Outgoing::text("1"));
        for other in [
            publication(Outgoing::binary(b"1")),
            publication(Outgoing::text("1").with_key(7)),
            publication(Outgoing::text("1").uncompressed()),
            text().counted(|_| ()),
            Publication { timed: Some(1), ..text() },
        ] {
            assert_eq!(texts(&mut Joined::default(), &[text(), other]), None);
        }
        assert_eq!(texts(&mut Joined::default(), &[text(), text()]), Some(vec!["[1,1]".to_owned()]));
    }
}
