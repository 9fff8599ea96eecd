//! `taut check`: all that `taut serve` would read and open, without a server.

use super::Arguments;
#[cfg(feature = "proxy")]
use super::proxy;
use super::venue::VenueArguments;
use crate::failure::Failure;
use crate::files::folder_of;
use crate::output;
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
#[cfg(feature = "proxy")]
use std::path::PathBuf;
use tautline::layers::tls::Engine as _;
use tautline::{Address, EngineChoice, EngineKind, ServerConfig, Then};

/// The words of the system about a file that the user may not use.
const DENIED: &str = "Permission denied";

/// Check the files and options of a server, as `taut serve` with the same options would use them.
///
/// Reads the certificates, keys, authorities, OCSP responses and ticket secrets, opens the folder of --files, and looks at the
/// other options. Each fault is printed with its file and remedy. It is stricter than a start, as a reload is: certificates must
/// be valid now, and the user of --user must be able to read them. A chain without its intermediate is a warning. Nothing listens, and a running server is left alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut check --cert cert.pem --key key.pem
  taut check taut.toml                            the configuration of a `taut proxy`
  taut check --listen 0.0.0.0:443 --cert cert.pem --key key.pem --harden && systemctl reload taut")]
pub(crate) struct CheckArguments {
    /// Configuration of `taut proxy` to check, instead of the options of `taut serve`.
    #[cfg(feature = "proxy")]
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    serve: Arguments,
}

pub(crate) fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    if let Some(user) = arguments.serve.common.privilege.user().filter(|_| !geteuid().is_root()) {
        output::note(format_args!(
            "--user: only root can try the files as {user}, so they are tried as the present user"
        ));
    }
    #[cfg(feature = "proxy")]
    let of_file = arguments.config.as_deref().map(|path| proxy::server_of(path, &arguments.serve)).transpose()?;
    #[cfg(not(feature = "proxy"))]
    let of_file: Option<Arguments> = None;
    let mut faults: Vec<Failure> = of_file.as_ref().unwrap_or(&arguments.serve).faults();
    match faults.pop() {
        None => output::print("the files and options can be used\n"),
        Some(last) => {
            for fault in faults {
                output::fail(&fault);
            }
            Err(last)
        }
    }
}

impl Arguments {
    /// Everything that would keep a server with these options from starting or from a reload.
    fn faults(&self) -> Vec<Failure> {
        let addresses = self.addresses(false);
        let needs = self.needs(addresses.clone());
        let mut checks = vec![
            self.check_tls(),
            self.config().map(drop),
            self.common.tls.acme.check_addresses(&addresses),
            self.check_unix_mode(),
            self.common.loops.http2.check(self.common.tls.plain),
            self.common.loops.driver.config().map(drop),
            self.check_as_user(|| self.check_folder()),
            self.broker.check(),
            self.check_as_user(|| self.hub_rules.check(self.app == super::App::Hub, &addresses)),
            VenueArguments::check(self.app == super::App::Venue, self.common.loops.shards),
            self.common.admin.token().map(drop),
            self.common.privilege.check(needs),
        ];
        checks.extend(addresses.iter().chain(self.common.admin.address()).map(check_address));
        let access_log = self.common.access_log.iter().filter(|path| path.as_os_str() != "-");
        checks.extend(access_log.map(|path| self.check_access_log(path)));
        checks.into_iter().filter_map(Result::err).collect()
    }

    /// Loads the files, and makes an engine of them.
    fn check_tls(&self) -> Result<(), Failure> {
        self.check_as_user(|| self.common.tls.check_acme())?;
        if self.common.tls.acme.folder().is_some_and(|folder| !folder.exists()) {
            // The folder, and the first certificate, are made when the server runs.
            return Ok(());
        }
        let acme = self.common.tls.acme(&self.common.privilege)?;
        // Root reads them at the start, and the user at each reload.
        self.check_as_user(|| {
            let (tls, _) = self.common.tls.load(acme.as_ref())?;
            // An engine would make the file of --key-log.
            let config = tls.config.with_key_log(false);
            Ok(tls.engine.choose(Try(&config)).map_err(tautline::Error::from)?)
        })
    }

    /// Does this as the server's user. Only root can: another user does it itself.
    fn check_as_user(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(user) = self.common.privilege.user().filter(|_| geteuid().is_root()) else { return work() };
        self.common.privilege.as_user(work)?.map_err(|failure| {
            let why = failure.to_string();
            if !why.contains(DENIED) {
                return failure;
            }
            Failure::usage(format!("{why} (as {user}, the user of --user); let this user read it"))
        })
    }

    /// Checks that lines can be appended to this file, which is not made.
    fn check_access_log(&self, path: &Path) -> Result<(), Failure> {
        // Without a reader of a named pipe it would wait.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let open = || OpenOptions::new().append(true).custom_flags(flags).open(path).map(drop);
        let make = || accessat(CWD, folder_of(path), Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
        let user = self.common.privilege.user().filter(|_| geteuid().is_root());
        let (opened, may_make) = match user {
            Some(_) => self.common.privilege.as_user(|| (open(), make()))?,
            None => (open(), make()),
        };
        let result = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_folder_of(path, "write the access log to")?;
                match may_make {
                    // The kernel is older than Linux 5.8, and cannot tell.
                    Err(Errno::NOSYS) => Ok(()),
                    may_make => may_make.map_err(Into::into),
                }
            }
            opened => opened,
        };
        result.map_err(|error| {
            let user = user.map(|user| format!(" as {user}")).unwrap_or_default();
            Failure::usage(format!("--access-log: cannot write {}{user}: {error}", path.display()))
        })
    }

    #[cfg(feature = "files")]
    fn check_folder(&self) -> Result<(), Failure> {
        self.static_files().map(drop)
    }

    #[cfg(not(feature = "files"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    fn check_folder(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Checks that a socket can be made at this address.
fn check_address(address: &Address) -> Result<(), Failure> {
    let Address::Unix(path) = address else { return Ok(()) };
    check_folder_of(path, "listen at")
}

/// Checks that the folder exists in which the server is to make this file.
fn check_folder_of(path: &Path, what: &str) -> Result<(), Failure> {
    let folder = folder_of(path);
    if folder.is_dir() {
        return Ok(());
    }
    let (path, folder) = (path.display(), folder.display());
    Err(Failure::usage(format!("cannot {what} {path}: there is no folder {folder}; make it, or pass another path")))
}

/// Makes an engine, and checks its certificates as a reload does.
struct Try<'c>(&'c ServerConfig);

impl Then for Try<'_> {
    type Output = Result<(), tautline::layers::tls::Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let engine = kind.server(self.0)?;
        // The reload finds the same doubts again, which are in the log already.
        let level = log::max_level();
        log::set_max_level(log::LevelFilter::Off);
        let checked = if kind.capabilities().engine == "plain" { Ok(()) } else { engine.reload(self.0) };
        log::set_max_level(level);
        checked
    }
}
