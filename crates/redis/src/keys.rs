//! Names of keys and channels.
//!
//! The keys of a topic have one hash tag, `{…}`, so that a cluster has them in one slot. A topic's name may be any text, so braces
//! in it are encoded.

/// The keys of a topic with offsets, and its channel, in the order of the scripts.
pub(crate) fn of_log(prefix: &str, topic: &str) -> [String; 7] {
    let tag = tag('l', topic);
    ["state", "stream", "order", "values", "ids0", "ids1", "news"].map(|part| format!("{prefix}:{{{tag}}}:{part}"))
}

/// The channel of a topic with offsets.
pub(crate) fn news(prefix: &str, topic: &str) -> String {
    let [.., news] = of_log(prefix, topic);
    news
}

/// The topic of that channel.
pub(crate) fn topic_of_news(prefix: &str, channel: &str) -> Option<String> {
    let tag = channel.strip_prefix(prefix)?.strip_prefix(":{l")?.strip_suffix("}:news")?;
    Some(decode(tag))
}

/// The channel of a plain topic.
pub(crate) fn plain(prefix: &str, topic: &str) -> String {
    format!("{prefix}:plain:{topic}")
}

/// The topic of a plain topic's channel.
pub(crate) fn topic_of_plain<'c>(prefix: &str, channel: &'c str) -> Option<&'c str> {
    channel.strip_prefix(prefix)?.strip_prefix(":plain:")
}

/// The pattern of the channels of all plain topics whose names begin so.
pub(crate) fn pattern(prefix: &str, topics: &str) -> String {
    let mut pattern = String::new();
    for character in plain(prefix, topics).chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('*');
    pattern
}

/// A tag is never empty: a cluster would take an empty one for none.
fn tag(kind: char, topic: &str) -> String {
    format!("{kind}{}", topic.replace('%', "%25").replace('{', "%7B").replace('}', "%7D"))
}

fn decode(tag: &str) -> String {
    tag.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::{news, of_log, pattern, plain, topic_of_news, topic_of_plain};

    #[test]
    fn every_topic_has_keys_of_its_own_in_one_slot() {
        let mut seen = std::collections::HashSet::new();
        for topic in ["a", "", "}", "{", "{}", "%7D", "%257D", "a:news", "log:x{y}z", "\u{e9} \n"] {
            let keys = of_log("taut", topic);
            let tags: Vec<_> =
                keys.iter().map(|key| key.split_once('{').unwrap().1.split_once('}').unwrap().0).collect();
            assert!(tags.iter().all(|tag| *tag == tags[0] && !tag.is_empty()), "{keys:?}");
            assert!(keys.iter().all(|key| seen.insert(key.clone())), "{keys:?}");
            assert_eq!(topic_of_news("taut", &news("taut", topic)).as_deref(), Some(topic));
            assert_eq!(topic_of_plain("taut", &plain("taut", topic)), Some(topic));
        }
        assert_eq!(topic_of_news("other", &news("taut", "a")), None);
        assert_eq!(topic_of_plain("taut", "taut:plai"), None);
    }

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(pattern("taut", "a*[b]\\"), "taut:plain:a\\*\\[b\\]\\\\*");
    }
}
