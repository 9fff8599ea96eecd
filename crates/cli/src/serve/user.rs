//! `--user`: the user and the groups that the server runs as once it is bound.

use crate::failure::Failure;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fmt;
use std::fs::read_to_string;
use tautline::layers::io::machine;

/// A user, its main group and further groups, as numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    name: String,
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

/// Understands `NAME`, `NAME:GROUP`, and numbers for both.
pub(super) fn user(text: &str) -> Result<User, String> {
    let read = |path: &str| read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"));
    find(text, &read("/etc/passwd")?, &read("/etc/group")?)
}

fn find(text: &str, users: &str, groups: &str) -> Result<User, String> {
    let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
    let known = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.len() > 3 && (fields[0] == name || fields[2] == name));
    let number = |field: &str| field.parse::<u32>().ok();
    let (user, main) = match &known {
        Some(fields) => (number(fields[2]), number(fields[3])),
        None => (number(name), None),
    };
    let user = user.ok_or_else(|| format!("there is no user {name:?}"))?;
    if user == 0 {
        return Err("the server would stay root; name another user".to_owned());
    }
    let in_groups = || groups.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|fields| fields.len() > 3);
    let group = match group {
        Some(group) => in_groups()
            .find(|fields| fields[0] == group)
            .and_then(|fields| number(fields[2]))
            .or_else(|| number(group))
            .ok_or_else(|| format!("there is no group {group:?}"))?,
        None => main.ok_or_else(|| format!("user {name} has no group; write {name}:GROUP"))?,
    };
    let login = known.map_or(name, |fields| fields[0]);
    let is_member = |fields: &Vec<&str>| fields[3].split(',').any(|member| member == login);
    let mut all = vec![group];
    all.extend(in_groups().filter(is_member).filter_map(|fields| number(fields[2])).filter(|other| *other != group));
    if group == 0 || all.contains(&0) {
        return Err(format!("user {name} would keep the group root; write {name}:GROUP"));
    }
    Ok(User { name: text.to_owned(), user, group, groups: all })
}

impl User {
    /// Does this work as this user, on this thread alone, and then goes on as before.
    pub(super) fn act<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        let cannot =
            |error| Failure::failed(format!("cannot act as {self}: {error}; start as root, or leave out --user"));
        let (own_user, own_group, own_groups) = (geteuid(), getegid(), getgroups().map_err(cannot)?);
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        // Only root can change groups, so the user is the last to change, and the first to come back.
        set_thread_groups(&groups)
            .and_then(|()| set_thread_res_gid(None, Gid::from_raw(self.group), None))
            .and_then(|()| set_thread_res_uid(None, Uid::from_raw(self.user), None))
            .map_err(cannot)?;
        let done = work();
        set_thread_res_uid(None, own_user, None)
            .and_then(|()| set_thread_res_gid(None, own_group, None))
            .and_then(|()| set_thread_groups(&own_groups))
            .map_err(cannot)?;
        Ok(done)
    }

    /// Makes all threads of this process run as this user.
    pub(super) fn become_it(&self) -> Result<(), Failure> {
        machine::become_user(self.user, self.group, &self.groups).map_err(|error| {
            let name = &self.name;
            Failure::failed(format!("cannot run as {name}: {error}; start as root, or leave out --user"))
        })?;
        log::info!("running as {} (user {}, group {})", self.name, self.user, self.group);
        Ok(())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{User, find};

    const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/var/www:/bin/false\nbroken\n";
    const GROUPS: &str = "root:x:0:\nwww:x:34:\nkeys:x:101:bin,web\nadm:x:102:webmaster\n";

    fn found(text: &str) -> Result<(u32, u32, Vec<u32>), String> {
        find(text, USERS, GROUPS).map(|User { user, group, groups, .. }| (user, group, groups))
    }

    #[test]
    fn names_and_numbers_are_found() {
        assert_eq!(found("web"), Ok((33, 34, vec![34, 101])));
        assert_eq!(found("33"), Ok((33, 34, vec![34, 101])));
        assert_eq!(found("web:keys"), Ok((33, 101, vec![101])));
        assert_eq!(found("1234:5678"), Ok((1234, 5678, vec![5678])));
    }

    #[test]
    fn root_and_strangers_are_refused() {
        for (text, why) in [
            ("root", "would stay root"),
            ("0:34", "would stay root"),
            ("web:root", "keep the group root"),
            ("nobody-here", "there is no user \"nobody-here\""),
            ("web:none", "there is no group \"none\""),
            ("1234", "has no group; write 1234:GROUP"),
        ] {
            let error = found(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
