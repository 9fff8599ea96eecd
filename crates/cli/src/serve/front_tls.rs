//! TLS of a front: the certificates in its configuration and the rules about clients, which a reload replaces.

use super::tls::TlsArguments;
use crate::failure::Failure;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tautline::{Reloader, ServerFiles, Watch};
use tautline_proxy::Plan;
use tautline_proxy::plan::{CertificatePaths, Certified};

/// Adds the certificates and the authorities of a plan.
pub(super) fn take_tls(tls: &mut TlsArguments, plan: &Plan) -> Result<(), Failure> {
    tls.take_certificates(plan.certificates.iter().map(CertificatePaths::files).collect(), plan.plain)?;
    if let Some(ordered) = &plan.acme {
        if tls.plain || tls.has_certificates() {
            return Err(Failure::usage("[acme] is in the configuration: leave out --plain, --cert and --key"));
        }
        tls.acme.take(ordered)?;
    }
    if plan.asks_clients() {
        tls.forbid_client_ca()?;
    }
    // Each certificate of the configuration has its rule already.
    if let Some(path) = plan.client_ca.as_ref().filter(|_| plan.certificates.is_empty()) {
        tls.take_client_ca(path.clone(), plan.client_certificate == Certified::Optional);
    }
    Ok(())
}

/// The TLS of a front.
#[derive(Debug)]
pub(super) struct FrontTls {
    /// The options, without the additions of a configuration.
    own: TlsArguments,
    /// Set once the loops serve with certificates of the configuration.
    live: OnceLock<Live>,
}

struct Live {
    reloader: Reloader,
    current: Mutex<Current>,
}

/// The files in use. The lock also keeps two reloads apart.
struct Current {
    /// The certificates that the files are of.
    certificates: Vec<CertificatePaths>,
    files: ServerFiles,
    watch: Option<Watch>,
}

impl FrontTls {
    pub(super) const fn new(own: TlsArguments) -> Self {
        Self { own, live: OnceLock::new() }
    }

    /// Takes over the files of a configuration's certificates, and their watch.
    pub(super) fn begin(
        &self,
        certificates: Vec<CertificatePaths>,
        files: ServerFiles,
        watch: Option<Watch>,
        reloader: Reloader,
    ) {
        let _ = self.live.set(Live { reloader, current: Mutex::new(Current { certificates, files, watch }) });
    }

    /// Whether a reload replaces the certificates.
    pub(super) fn is_live(&self) -> bool {
        self.live.get().is_some()
    }

    /// Serves with the certificates of this plan from now on. If one cannot be used, nothing changes, and the error is for the log.
    pub(super) fn reload(&self, plan: &Plan) -> Result<(), Failure> {
        let Some(live) = self.live.get().filter(|_| !plan.certificates.is_empty()) else { return Ok(()) };
        let mut current = live.current();
        if plan.certificates == current.certificates {
            // Their watch goes on, and does not report again what this reading finds.
            return Ok(live.reloader.try_reload_files(&current.files)?);
        }
        let mut tls = self.own.clone();
        take_tls(&mut tls, plan)?;
        let files = tls.files(None)?;
        // It would bring the old files back.
        let is_watched = current.watch.take().is_some();
        let reloaded = live.reloader.try_reload_files(&files);
        if reloaded.is_ok() {
            current.certificates.clone_from(&plan.certificates);
            current.files = files;
        }
        if is_watched {
            match self.own.watch(&current.files, &live.reloader) {
                Ok(watch) => current.watch = watch,
                Err(failure) => log::error!("the certificates are not watched: {failure}"),
            }
        }
        Ok(reloaded?)
    }

    /// Reads the files in use again. The reloader logs a failure.
    pub(super) fn reload_contents(&self) {
        if let Some(live) = self.live.get() {
            let _ = live.reloader.reload_files(&live.current().files);
        }
    }
}

impl Live {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Live")
    }
}
