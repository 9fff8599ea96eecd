//! Kinds of topics that only the file of rules tells, on two hosts with a common log.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

use crate::helpers::{client, message, publish, stop, subscribe};
use std::collections::BTreeMap;
use std::path::Path;
use tautline::ServerHandle;
use tautline_hub::{Rules, Subscribe};

/// Kinds that the names of their topics do not tell.
const KINDS: &str = "\
[[namespace]]
topics = \"ticks:*\"
kind = \"latest\"
anyone = [\"subscribe\", \"publish\"]
[[namespace]]
topics = \"latest:*\"
kind = \"history\"
anyone = [\"subscribe\", \"publish\", \"history\"]
";

pub(crate) fn by_the_rules(folder: &Path, start: impl Fn(Rules) -> ServerHandle) {
    std::fs::create_dir_all(folder).unwrap();
    let file = folder.join("hub.toml");
    std::fs::write(&file, KINDS).unwrap();
    let hosts = [0; 2].map(|_| start(Rules::load(&file).unwrap()));
    let (here, there) = (client(&hosts[0]), client(&hosts[1]));
    for (key, data) in [("a", "1"), ("a", "2"), ("b", "3")] {
        publish(&here, "ticks:x", Some(key), data).unwrap();
    }
    for n in 0..3 {
        publish(&here, "latest:x", None, &n.to_string()).unwrap();
    }
    subscribe(&there, "ticks:x", Subscribe::default());
    let values: BTreeMap<_, _> = (0..2).map(|_| message(&there)).map(|it| (it.key.unwrap(), it.data)).collect();
    assert_eq!(values.into_values().collect::<Vec<_>>(), ["2", "3"], "the latest of each key");
    publish(&here, "ticks:x", Some("b"), "4").unwrap();
    assert_eq!(message(&there).data, "4");
    subscribe(&there, "latest:x", Subscribe::default().after(0, None));
    for n in 0..4 {
        if n == 3 {
            publish(&here, "latest:x", None, "3").unwrap();
        }
        assert_eq!(message(&there).data, n.to_string(), "all that was published");
    }
    hosts.into_iter().for_each(stop);
}
