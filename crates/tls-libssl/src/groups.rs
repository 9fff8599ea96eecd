use crate::certificate::Name;
use crate::sys::{Identity, KeyKind};
use std::collections::BTreeMap;
use std::ffi::CString;

/// Groups of certificates that serve the same names.
pub(crate) struct Groups {
    /// Indices of certificates, one for each kind of key, the preferred ones first.
    ///
    /// The first group has the first certificate and those for the same names. It serves clients that send no name, or an
    /// unknown one.
    pub(crate) members: Vec<Vec<usize>>,
    /// Exact names, and wildcards as `*.example.com`, each with the index of its group.
    pub(crate) names: Vec<(CString, u32)>,
}

impl Groups {
    pub(crate) fn of(identities: &[Identity]) -> Self {
        let kinds: Vec<_> = identities.iter().map(Identity::kind).collect();
        let names: Vec<_> = identities.iter().map(|identity| dns_names(&identity.names())).collect();
        Self::by_names(&kinds, &names)
    }

    fn by_names(kinds: &[KeyKind], own_names: &[Vec<String>]) -> Self {
        let mut by_preference: Vec<_> = (0..kinds.len()).collect();
        by_preference.sort_by_key(|&index| kinds[index]);
        let one_of_each = |candidates: Vec<usize>| {
            let mut members: Vec<usize> = Vec::new();
            for index in candidates {
                if members.iter().all(|&member| kinds[member] != kinds[index]) {
                    members.push(index);
                }
            }
            members
        };
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &index in &by_preference {
            for name in &own_names[index] {
                by_name.entry(name).or_default().push(index);
            }
        }
        let fallback =
            by_preference.into_iter().filter(|&index| index == 0 || own_names[index] == own_names[0]).collect();
        let mut members = vec![one_of_each(fallback)];
        let mut names = Vec::new();
        for (name, candidates) in by_name {
            let wanted = one_of_each(candidates);
            let group = members.iter().position(|members| *members == wanted).unwrap_or_else(|| {
                members.push(wanted);
                members.len() - 1
            });
            if let (Ok(name), Ok(group)) = (CString::new(name), u32::try_from(group)) {
                names.push((name, group));
            }
        }
        Self { members, names }
    }
}

fn dns_names(names: &[Name]) -> Vec<String> {
    let mut names: Vec<_> = names
        .iter()
        .filter_map(|name| match name {
            Name::Dns(name) => Some(name.clone()),
            Name::Ip(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::{Groups, KeyKind};

    #[test]
    fn groups_by_name_and_prefers_cheap_keys() {
        use KeyKind::{Ecdsa, Ed25519, Rsa};
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let groups = Groups::by_names(
            &[Rsa, Ecdsa, Rsa, Ed25519, Ecdsa],
            &[names(&["a"]), names(&["a"]), names(&["*.b", "c"]), names(&["c"]), names(&["c"])],
        );
        assert_eq!(groups.members, [vec![1, 0], vec![2], vec![4, 3, 2]]);
        let named: Vec<_> = groups.names.iter().map(|(name, group)| (name.to_str().unwrap(), *group)).collect();
        assert_eq!(named, [("*.b", 1), ("a", 0), ("c", 2)]);
    }
}
