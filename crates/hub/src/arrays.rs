//! JSON arrays of messages, for clients that take several in a frame.

use std::borrow::Cow;
use tautline::{ConnId, Outgoing, Receipt, ShardContext, SlowConsumer};

/// Bytes of the messages of a frame of the hub, beside one that is longer.
const MOST_BYTES: usize = 64 << 10;

/// Puts messages into JSON arrays, each of a bounded size. One that is alone stays as it is.
pub(crate) fn arrays<'t>(messages: impl Iterator<Item = Cow<'t, str>>) -> Vec<Cow<'t, str>> {
    let (mut all, mut array) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for message in messages {
        bytes += message.len();
        if bytes > MOST_BYTES && !array.is_empty() {
            all.push(join(std::mem::take(&mut array)));
            bytes = message.len();
        }
        array.push(message);
    }
    if !array.is_empty() {
        all.push(join(array));
    }
    all
}

/// One message, or an array of several.
pub(crate) fn join(mut messages: Vec<Cow<'_, str>>) -> Cow<'_, str> {
    match (messages.pop(), messages.is_empty()) {
        (Some(single), true) => single,
        (last, _) => {
            messages.extend(last);
            Cow::Owned(format!("[{}]", messages.join(",")))
        }
    }
}

/// Sends texts to a connection. `done` is called once the last of them was delivered.
pub(crate) fn send_all(
    shard: &mut ShardContext<'_>,
    conn: ConnId,
    policy: SlowConsumer,
    texts: &[Cow<'_, str>],
    done: impl FnOnce(Receipt) + Send + 'static,
) {
    let Some((last, first)) = texts.split_last() else { return };
    for text in first {
        shard.send_to(&[conn], Outgoing::text(text).with_policy(policy));
    }
    shard.publish_counted(&[conn][..], Outgoing::text(last).with_policy(policy), done);
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, arrays};
    use serde_json::Value;
    use std::borrow::Cow;

    #[test]
    fn arrays_are_bounded_and_keep_the_order() {
        let texts: Vec<String> = (0..100).map(|number| format!("\"{}\"", "x".repeat(number * 90))).collect();
        let arrays = arrays(texts.iter().map(|text| Cow::Borrowed(&**text)));
        assert!(arrays.len() > 3 && arrays.iter().all(|array| array.len() <= MOST_BYTES + 101));
        let messages = |array: &Cow<'_, str>| match serde_json::from_str(array).unwrap() {
            Value::Array(all) => all,
            single => vec![single],
        };
        let all: Vec<Value> = arrays.iter().flat_map(messages).collect();
        assert!(all.iter().map(|text| text.as_str().unwrap().len()).eq((0..100).map(|number| number * 90)));
        let long = "1".repeat(2 * MOST_BYTES);
        let apart = super::arrays(["2", &*long, "3"].map(Cow::Borrowed).into_iter());
        assert_eq!(apart, ["2", &*long, "3"]);
        assert_eq!(super::arrays(std::iter::empty()), Vec::<Cow<'_, str>>::new());
    }
}
