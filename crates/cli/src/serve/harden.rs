//! `--harden`: what the server cannot do any more once it serves, even if its code is taken over.
//!
//! - Files (Landlock): it opens only the folders of its certificates and secrets, to read, and of its Unix sockets. This is set
//!   before the loops start, since a thread passes it on to those that it starts.
//! - System calls (seccomp): it starts no programs, makes no processes and no new rings of a driver, opens no new sockets, and
//!   does not touch other processes, the kernel or the tree of files. The filter lists what is refused: a list of what is allowed
//!   would break with each new version of the C library. Refused calls return an error, and do not kill the process.
//! - No new privileges: set-user-ID programs give it none.
//!
//! Each part that the kernel lacks is reported as a warning, and the server runs without it.

use super::reach::Reach;
use crate::failure::Failure;
use crate::files::folder_of;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline::layers::io::machine::SETUP_CALLS;

/// The version of Landlock that has all that is used here. Older kernels have a part of it.
const LANDLOCK: ABI = ABI::V5;

/// Files of the system that the server reads: for its random numbers, its processors and its memory.
const SYSTEM: [&str; 8] = [
    "/dev/null",
    "/dev/urandom",
    "/proc/meminfo",
    "/proc/self",
    "/proc/sys",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/usr/share/zoneinfo",
];

/// Files by which the C library finds the addresses of hosts, with those to which links at these paths usually lead.
const NAMES: [&str; 8] = [
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf",
    "/run/systemd/resolve",
];

/// Folders that the server still needs.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// Folders to read files from.
    pub(super) read: Vec<PathBuf>,
    /// Folders to make and remove sockets in.
    pub(super) sockets: Vec<PathBuf>,
    /// Folders to make, replace and remove files in.
    pub(super) state: Vec<PathBuf>,
    /// Whether the server looks up names of hosts.
    pub(super) names: bool,
    /// Files to write.
    pub(super) write: Vec<PathBuf>,
    /// Folders to make and write files in.
    pub(super) create: Vec<PathBuf>,
}

impl Folders {
    /// Adds the folder of a file, and that of the file to which a link at this path leads.
    pub(super) fn add_file(&mut self, path: &Path) {
        self.read.push(folder_of(path).to_owned());
        self.read.extend(path.canonicalize().ok().map(|path| folder_of(&path).to_owned()));
    }

    /// Adds the folder of a socket.
    pub(super) fn add_socket(&mut self, path: &Path) {
        self.sockets.push(folder_of(path).to_owned());
    }

    /// Adds the folder of a file that may be made again, and that of the file to which a link at this path leads.
    ///
    /// Of a device only itself is added: the folder, such as `/dev`, has others. A pipe of another process has no place.
    pub(super) fn add_made_file(&mut self, path: &Path) {
        let target = path.canonicalize().ok();
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            self.write.extend(target);
            return;
        }
        let files = [Some(path.to_owned()), target].into_iter().flatten();
        let folders = files.map(|file| folder_of(&file).to_owned());
        self.create.extend(folders.filter(|folder| folder != Path::new("/dev")));
    }

    /// Refuses folders that are the whole tree of files: the server would keep all that it is to give up.
    pub(super) fn refuse_root(&self) -> Result<(), Failure> {
        let is_root = |path: &&PathBuf| path.canonicalize().is_ok_and(|path| path == Path::new("/"));
        let all = [
            (&self.read, "a file or folder that the server reads is / or lies directly in it"),
            (&self.sockets, "a Unix socket of the server lies directly in /"),
            (&self.state, "the folder of --acme is /"),
            (&self.write, "a file that the server writes is /"),
            (&self.create, "a file that the server makes lies directly in /"),
        ];
        match all.into_iter().find(|(folders, _)| folders.iter().any(|folder| is_root(&folder))) {
            None => Ok(()),
            Some((_, what)) => Err(Failure::usage(format!(
                "--harden: {what}, so every file would stay open to it; move that to a folder of its own, such as \
                 /etc/taut, or leave out --harden"
            ))),
        }
    }
}

/// As an exception: "but those in /etc/taut to read".
impl fmt::Display for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (&self.read, "to read", true),
            (&self.sockets, "to make sockets", true),
            (&self.state, "to make, replace and remove files", true),
            (&self.create, "to make and write files", true),
            (&self.write, "to write", false),
        ];
        f.write_str("but those of the system that a server needs")?;
        for (paths, what, are_folders) in all {
            let mut paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            paths.sort_unstable();
            paths.dedup();
            if !paths.is_empty() {
                write!(f, "; {}{} {what}", if are_folders { "in " } else { "" }, paths.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Confines this thread, and all that it starts, to these folders. To be called before it starts any.
pub(super) fn confine_files(folders: &Folders) {
    match restrict(folders) {
        Ok(RulesetStatus::FullyEnforced) => log::info!("hardened: no files can be opened, {folders}"),
        Ok(RulesetStatus::PartiallyEnforced) => {
            log::warn!("--harden: this kernel's Landlock is old and confines the access to files only in part");
        }
        Ok(RulesetStatus::NotEnforced) => {
            log::warn!("--harden: this kernel has no Landlock, so the server can open every file of its user");
        }
        Err(error) => log::warn!("--harden: Landlock failed, so the server can open every file of its user: {error}"),
    }
}

fn restrict(folders: &Folders) -> Result<RulesetStatus, landlock::RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::ReadDir;
    let write = read | AccessFs::WriteFile | AccessFs::Truncate;
    let replace = write | AccessFs::MakeReg | AccessFs::RemoveFile;
    let names: &[&str] = if folders.names { &NAMES } else { &[] };
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(["/dev/null"], write))?
        .add_rules(path_beneath_rules(&folders.read, read))?
        .add_rules(path_beneath_rules(&folders.sockets, sockets))?
        .add_rules(path_beneath_rules(names, read))?
        .add_rules(path_beneath_rules(&folders.state, replace))?
        .add_rules(path_beneath_rules(&folders.write, write))?
        .add_rules(path_beneath_rules(&folders.create, AccessFs::WriteFile | AccessFs::MakeReg))?
        .restrict_self()?;
    Ok(if status.landlock == LandlockStatus::NotImplemented { RulesetStatus::NotEnforced } else { status.ruleset })
}

/// Takes system calls from all threads of this process. One that reaches others keeps the sockets for that.
pub(super) fn confine_calls(reach: Reach) {
    let connects = reach != Reach::default();
    let applied = filters(reach).and_then(|filters| {
        filters.iter().try_for_each(|filter| apply_filter_all_threads(filter).map_err(|error| error.to_string()))
    });
    match applied {
        Ok(()) if connects => log::info!("hardened: no programs, processes, new listeners or new privileges"),
        Ok(()) => log::info!("hardened: no programs, processes, new sockets or new privileges"),
        Err(error) => log::warn!("--harden: seccomp failed, so the server can make every system call: {error}"),
    }
}

/// The filters: one whose calls are not permitted, and one whose calls do not exist, so that the C library takes others.
fn filters(reach: Reach) -> Result<[BpfProgram; 2], String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|_| "it does not know this processor".to_owned())?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    refused.extend(SETUP_CALLS.map(|call| (call, Vec::new())));
    #[cfg(target_arch = "x86_64")]
    refused.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
    if reach != Reach::default() {
        refused.retain(|call, _| ![libc::SYS_bind, libc::SYS_connect].contains(call));
        // All sockets but those for names and connections: the C library also asks the kernel for its routes.
        let internet: &[libc::c_int] =
            if reach.internet { &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] } else { &[] };
        let unix: &[libc::c_int] = if reach.unix { &[libc::AF_UNIX] } else { &[] };
        let others = internet.iter().chain(unix).map(|family| {
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
        });
        let others = others.collect::<Result<Vec<_>, _>>().and_then(SeccompRule::new);
        refused.insert(libc::SYS_socket, vec![others.map_err(|error| error.to_string())?]);
    }
    // A new process is a clone that is no thread.
    let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let is_process = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), 0);
    let is_process = is_process.and_then(|condition| SeccompRule::new(vec![condition]));
    refused.insert(libc::SYS_clone, vec![is_process.map_err(|error| error.to_string())?]);
    // The flags of clone3 are in memory, where no filter sees them.
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let compile = |rules, error: libc::c_int| {
        let action = SeccompAction::Errno(error.unsigned_abs());
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(|error| error.to_string())?;
        BpfProgram::try_from(filter).map_err(|error| error.to_string())
    };
    Ok([compile(refused, libc::EPERM)?, compile(absent, libc::ENOSYS)?])
}

/// Calls that a server does not need once it serves.
const REFUSED: [i64; 46] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_connect,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_listen,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_socket,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Tries what the server must not be able to do, and warns about what still works.
///
/// A file that every user can read shows that files are confined, also for root.
pub(super) fn verify() -> Result<(), Failure> {
    for path in ["/etc/shadow", "/etc/passwd"] {
        match File::open(path) {
            Ok(_) => log::warn!("--harden: the server can still open {path}"),
            Err(error) => log::info!("hardened: {path} cannot be opened: {error}"),
        }
    }
    let itself = std::env::current_exe().map_err(|error| Failure::failed(format!("cannot find taut: {error}")))?;
    match Command::new(itself).arg("version").output() {
        Ok(_) => log::warn!("--harden: the server can still start programs"),
        Err(error) => log::info!("hardened: no program can be started: {error}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Folders;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_whole_tree_of_files_is_refused() {
        let with = |file: &str| {
            let mut folders = Folders::default();
            folders.add_file(Path::new(file));
            folders
        };
        for file in ["/cert.pem", "/etc/../cert.pem", "//cert.pem", "/./cert.pem"] {
            let said = with(file).refuse_root().unwrap_err().to_string();
            assert!(said.contains("--harden") && said.contains("folder of its own"), "{file}: {said}");
        }
        for file in ["/etc/cert.pem", "cert.pem"] {
            with(file).refuse_root().unwrap();
        }
        // A link in another folder whose file lies in the root.
        let link = std::env::temp_dir().join(format!("taut-harden-{}", std::process::id()));
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        let mut folders = Folders::default();
        folders.add_file(&link);
        let linked = folders.refuse_root();
        std::fs::remove_file(&link).unwrap();
        assert!(linked.is_err(), "{folders:?}");
        let root = || vec![PathBuf::from("/")];
        assert!(Folders { sockets: root(), ..Folders::default() }.refuse_root().is_err());
        assert!(Folders { read: root(), ..Folders::default() }.refuse_root().is_err());
    }
    #[test]
    fn devices_and_links_open_no_other_folder() {
        let made = |path: &Path| {
            let mut folders = Folders::default();
            folders.add_made_file(path);
            (folders.write, folders.create)
        };
        assert_eq!(made(Path::new("/dev/full")), (vec!["/dev/full".into()], vec![]));
        let base = std::env::temp_dir().canonicalize().unwrap().join(format!("taut-made-{}", std::process::id()));
        let (here, there) = (base.join("here"), base.join("there"));
        [&here, &there].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        std::fs::write(there.join("access.log"), "").unwrap();
        std::os::unix::fs::symlink(there.join("access.log"), here.join("access.log")).unwrap();
        let (linked, missing) = (made(&here.join("access.log")), made(&here.join("other.log")));
        std::fs::remove_dir_all(&base).unwrap();
        assert_eq!(linked, (vec![], vec![here.clone(), there]));
        assert_eq!(missing, (vec![], vec![here]));
    }
}
