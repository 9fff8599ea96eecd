//! All attacks on a server. A category is a file, and a script is a value.

mod clients;
mod closing;
mod deflate;
mod extensions;
mod floods;
mod frames;
pub(crate) mod http2;
mod smuggling;
mod text;
mod tls;
mod transport;
mod upgrade;

use crate::script::Script;

/// Every script with its number: that of its group, a full stop, and its own.
pub(crate) fn all() -> Vec<(String, Script)> {
    let groups = [
        upgrade::scripts(),
        extensions::scripts(),
        frames::scripts(),
        floods::scripts(),
        text::scripts(),
        closing::scripts(),
        deflate::scripts(),
        tls::scripts(),
        transport::scripts(),
        clients::scripts(),
        // The hostile servers are group 11.
        Vec::new(),
        http2::scripts(),
    ];
    let numbered = (1..).zip(groups).flat_map(|(group, scripts)| {
        (1..).zip(scripts).map(move |(number, script)| (format!("{group}.{number}"), script))
    });
    numbered.collect()
}

/// The scripts of HTTP that run against proxies, with their numbers: those of servers, and a group of their own.
pub(crate) fn of_proxies() -> Vec<(String, Script)> {
    let own = (1..).zip(smuggling::scripts()).map(|(number, script)| (format!("12.{number}"), script));
    let shared = all().into_iter().filter(|(_, script)| script.group == upgrade::GROUP);
    shared.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::{all, of_proxies};
    use std::collections::BTreeSet;

    #[test]
    fn every_script_has_its_own_name() {
        let mut names = BTreeSet::new();
        let own = of_proxies().into_iter().filter(|(number, _)| number.starts_with("12."));
        for (number, script) in all().into_iter().chain(own) {
            assert!(!script.expect.is_empty(), "{number} expects nothing");
            assert!(names.insert((script.group, script.name.clone())), "{number} {} is there twice", script.name);
        }
        assert!(names.len() > 250, "{}", names.len());
    }
}
