//! Options that take privileges from the server once it is bound.

#[cfg(feature = "harden")]
use super::harden;
use super::reach::Reach;
use super::user::{User, user};
use crate::failure::Failure;
use rustix::fs::OFlags;
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use tautline::Address;

/// Privileges of the server.
#[derive(Clone, Debug, clap::Args)]
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
    /// A folder of certificates that it orders, and for which it connects to an authority.
    pub(super) state: Option<PathBuf>,
    /// Folders whose files it serves.
    pub(super) folders: Vec<PathBuf>,
    /// A file to which it writes.
    pub(super) key_log: Option<PathBuf>,
    /// A file to which it writes, and that it may make again.
    pub(super) access_log: Option<PathBuf>,
    /// The addresses at which it listens.
    pub(super) addresses: Vec<Address>,
    /// The others that it connects to.
    pub(super) reach: Reach,
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

    /// Whether the access to files is confined.
    pub(super) const fn confines_files(&self) -> bool {
        #[cfg(feature = "harden")]
        return self.harden;
        #[cfg(not(feature = "harden"))]
        return false;
    }

    /// Confines the access to files, before the loops start: to those that are read again, and to sockets.
    #[cfg(feature = "harden")]
    pub(super) fn confine_files(&self, needs: Needs) -> Result<(), Failure> {
        if !self.harden {
            return Ok(());
        }
        harden::confine_files(&Self::folders(needs)?);
        Ok(())
    }

    /// Checks that the server can give up what the options ask for.
    #[cfg(feature = "harden")]
    pub(super) fn check(&self, needs: Needs) -> Result<(), Failure> {
        if self.harden { Self::folders(needs).map(drop) } else { Ok(()) }
    }

    #[cfg(not(feature = "harden"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn check(&self, _needs: Needs) -> Result<(), Failure> {
        Ok(())
    }

    /// The folders that the server still needs.
    #[cfg(feature = "harden")]
    fn folders(needs: Needs) -> Result<harden::Folders, Failure> {
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
                folders.add_socket(&path);
            }
        }
        folders.names = needs.reach.internet;
        folders.state.extend(needs.state);
        folders.read.extend(needs.folders);
        folders.write.extend(needs.key_log);
        needs.access_log.iter().for_each(|path| folders.add_made_file(path));
        folders.refuse_root()?;
        Ok(folders)
    }

    #[cfg(not(feature = "harden"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(super) fn confine_files(&self, _needs: Needs) -> Result<(), Failure> {
        Ok(())
    }

    /// The user that the server is to run as, if that is another one.
    pub(super) const fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Does this work as the user that the server is to run as.
    pub(super) fn as_user<T>(&self, work: impl FnOnce() -> T) -> Result<T, Failure> {
        match &self.user {
            Some(user) => user.act(work),
            None => Ok(work()),
        }
    }

    /// Warns of files that root reads at the start, and that the user cannot read again at a reload.
    pub(super) fn report_closed(&self, files: &[PathBuf]) -> Result<(), Failure> {
        let Some(user) = self.user.as_ref().filter(|_| geteuid().is_root()) else { return Ok(()) };
        // Without a writer of a named pipe it would wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let error_of = |path| OpenOptions::new().read(true).custom_flags(flags).open(path).err();
        let errors: Vec<_> = user.act(|| files.iter().map(error_of).collect())?;
        for (path, error) in files.iter().zip(errors) {
            if error.is_some_and(|error| error.kind() == ErrorKind::PermissionDenied) {
                let path = path.display();
                log::warn!("{path} cannot be read as {user}, so every reload will fail: let this user read it");
            }
        }
        Ok(())
    }

    /// Changes the user of all threads.
    pub(super) fn change_user(&self, core_dumps: bool) -> Result<(), Failure> {
        let Some(user) = &self.user else { return Ok(()) };
        user.become_it()?;
        // A change of user forbids core dumps.
        if core_dumps && let Err(error) = set_dumpable_behavior(DumpableBehavior::Dumpable) {
            log::warn!("--core-dumps: {error}");
        }
        Ok(())
    }

    /// Confines the system calls of all threads. A server that connects to others keeps what that needs.
    #[cfg_attr(
        not(feature = "harden"),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")
    )]
    pub(super) fn confine_calls(&self, reach: Reach) -> Result<(), Failure> {
        #[cfg(feature = "harden")]
        if self.harden {
            harden::confine_calls(reach);
            harden::verify()?;
        }
        #[cfg(not(feature = "harden"))]
        let _ = reach;
        Ok(())
    }
}
