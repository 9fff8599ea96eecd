//! All attacks on a server. A category is a file, and a script is a value.

mod clients;
mod closing;
mod deflate;
mod extensions;
mod floods;
mod frames;
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
    ];
    let numbered = (1..).zip(groups).flat_map(|(group, scripts)| {
        (1..).zip(scripts).map(move |(number, script)| (format!("{group}.{number}"), script))
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use super::all;
    use std::collections::BTreeSet;

    #[test]
    fn every_script_has_its_own_name() {
        let mut names = BTreeSet::new();
        for (number, script) in all() {
            assert!(!script.expect.is_empty(), "{number} expects nothing");
            assert!(names.insert((script.group, script.name.clone())), "{number} {} is there twice", script.name);
        }
        assert!(names.len() > 250, "{}", names.len());
    }
}
