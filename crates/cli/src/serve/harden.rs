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

use crate::failure::Failure;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;
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

/// Folders that the server still needs.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// Folders to read files from.
    pub(super) read: Vec<PathBuf>,
    /// Folders to make and remove sockets in.
    pub(super) sockets: Vec<PathBuf>,
    /// Files to write.
    pub(super) write: Vec<PathBuf>,
}

impl Folders {
    /// Adds the folder of a file, and that of the file to which a link at this path leads.
    pub(super) fn add_file(&mut self, path: &Path) {
        let folder = |path: &Path| match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        self.read.push(folder(path));
        self.read.extend(path.canonicalize().ok().map(|path| folder(&path)));
    }
}

/// Confines this thread, and all that it starts, to these folders. To be called before it starts any.
pub(super) fn confine_files(folders: &Folders) {
    match restrict(folders) {
        Ok(RulesetStatus::FullyEnforced) => log::info!("hardened: files outside of {folders:?} cannot be opened"),
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
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM, read))?
        .add_rules(path_beneath_rules(["/dev/null"], write))?
        .add_rules(path_beneath_rules(&folders.read, read))?
        .add_rules(path_beneath_rules(&folders.sockets, sockets))?
        .add_rules(path_beneath_rules(&folders.write, write))?
        .restrict_self()?;
    Ok(if status.landlock == LandlockStatus::NotImplemented { RulesetStatus::NotEnforced } else { status.ruleset })
}

/// Takes system calls from all threads of this process.
pub(super) fn confine_calls() {
    let applied = filters().and_then(|filters| {
        filters.iter().try_for_each(|filter| apply_filter_all_threads(filter).map_err(|error| error.to_string()))
    });
    match applied {
        Ok(()) => log::info!("hardened: no programs, processes, new sockets or new privileges"),
        Err(error) => log::warn!("--harden: seccomp failed, so the server can make every system call: {error}"),
    }
}

/// The filters: one whose calls are not permitted, and one whose calls do not exist, so that the C library takes others.
fn filters() -> Result<[BpfProgram; 2], String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|_| "it does not know this processor".to_owned())?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    refused.extend(SETUP_CALLS.map(|call| (call, Vec::new())));
    #[cfg(target_arch = "x86_64")]
    refused.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
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
