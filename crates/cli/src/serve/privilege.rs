//! Options that take privileges from the server once it is bound.

#[cfg(feature = "harden")]
use super::harden;
use super::user::{User, user};
use crate::failure::Failure;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
#[cfg(feature = "harden")]
use std::path::Path;
use std::path::PathBuf;
use tautline::Address;

/// Privileges of the server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Privileges")]
pub(super) struct PrivilegeArguments {
    /// Run as this user once the sockets are bound and the keys are read; only root can ask for it. A reload reads the files as
    /// this user.
    #[arg(long, value_name = "NAME[:GROUP]", value_parser = user)]
    user: Option<User>,
    /// Give up all that a server does not need, as far as the kernel can take it: other files than those of certificates
    /// (Landlock), programs, processes and new sockets (seccomp), new privileges. Missing parts are reported.
    #[cfg(feature = "harden")]
    #[arg(long)]
    harden: bool,
}

/// The needs of a server once it serves.
#[cfg_attr(not(feature = "harden"), expect(dead_code, reason = "only hardening looks at it"))]
pub(super) struct Needs {
    /// Files that are read again at a reload.
    pub(super) files: Vec<PathBuf>,
    /// A folder whose files it serves.
    pub(super) folder: Option<PathBuf>,
    /// A file to which it writes.
    pub(super) key_log: Option<PathBuf>,
    /// The addresses at which it listens.
    pub(super) addresses: Vec<Address>,
    /// Whether its driver needs files and calls of the kernel that others do not.
    pub(super) bypasses_kernel: bool,
}

impl PrivilegeArguments {
    /// Whether the server gives privileges up.
    pub(super) const fn is_on(&self) -> bool {
        #[cfg(feature = "harden")]
        if self.harden {
            return true;
        }
        self.user.is_some()
    }

    /// Confines the access to files, before the loops start: to those that are read again, and to sockets.
    #[cfg(feature = "harden")]
    pub(super) fn confine_files(&self, needs: Needs) -> Result<(), Failure> {
        if !self.harden {
            return Ok(());
        }
        if needs.bypasses_kernel {
            return Err(Failure::usage(
                "--harden cannot confine a driver that bypasses the kernel; leave one of them out",
            ));
        }
        let mut folders = harden::Folders::default();
        for path in needs.files {
            folders.add_file(&path);
        }
        for address in needs.addresses {
            if let Address::Unix(path) = address {
                folders.sockets.extend(path.parent().map(Path::to_owned));
            }
        }
        folders.read.extend(needs.folder);
        folders.write.extend(needs.key_log);
        harden::confine_files(&folders);
        Ok(())
    }

    #[cfg(not(feature = "harden"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn confine_files(&self, _needs: Needs) -> Result<(), Failure> {
        Ok(())
    }

    /// Changes the user, and confines the system calls, of all threads.
    pub(super) fn drop(&self, core_dumps: bool) -> Result<(), Failure> {
        if let Some(user) = &self.user {
            user.become_it()?;
            // A change of user forbids core dumps.
            if core_dumps && let Err(error) = set_dumpable_behavior(DumpableBehavior::Dumpable) {
                log::warn!("--core-dumps: {error}");
            }
        }
        #[cfg(feature = "harden")]
        if self.harden {
            harden::confine_calls();
            harden::verify()?;
        }
        Ok(())
    }
}
