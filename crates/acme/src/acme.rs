use crate::answers::Answers;
use crate::clock::now;
use crate::config::AcmeConfig;
use crate::error::Error;
use crate::folder::{Folder, Stamp};
use crate::leaf::{self, Leaf};
use crate::order::{ACCOUNT, CERTIFICATE, ORDER, StoredOrder};
use crate::plan::Time;
use crate::status::Status;
use crate::transport::Transport;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_tls::Challenges;
use zeroize::Zeroizing;

/// A server's certificate by ACME. Clones are the same one.
///
/// The folder always has a file with a chain and its key ([`certificate_file`](Self::certificate_file)). Before the first
/// certificate it is one that nobody trusts, so that a server can start and answer the authority.
#[derive(Clone)]
pub struct Acme(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: AcmeConfig,
    pub(crate) folder: Folder,
    pub(crate) answers: Arc<Answers>,
    pub(crate) transport: Transport,
    status: Mutex<Status>,
    seen: Mutex<Seen>,
}

/// A change of the certificate's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    /// The certificate is the same, and what stands beside it has changed.
    Response,
    Certificate,
    /// The file is missing or cannot be used any more. The server goes on with the certificate that it has.
    Lost,
}

/// The files when they were last read.
#[derive(Default)]
struct Seen {
    certificate: Stamp,
    order: Stamp,
    leaf: Option<Leaf>,
}

impl Acme {
    /// Opens the folder, reads what is in it, and reads the roots of the authority. No thread starts.
    ///
    /// # Errors
    /// [`Error`] if the folder or the roots cannot be used. The text says what to do.
    pub fn open(config: AcmeConfig) -> Result<Self, Error> {
        let folder = Folder::open(&config.folder)
            .map_err(|error| Error::folder(format!("cannot use the folder {}", config.folder.display()), &error))?;
        for flaw in [ACCOUNT, ORDER].into_iter().filter_map(|name| folder.flaw(name)) {
            log::warn!("acme: {flaw}");
        }
        let transport = Transport::new(config.roots.as_deref()).map_err(Error::Roots)?;
        let acme = Self(Arc::new(Shared {
            config,
            folder,
            answers: Arc::default(),
            transport,
            status: Mutex::default(),
            seen: Mutex::default(),
        }));
        acme.0.ensure_file()?;
        let _ = acme.0.look(now());
        Ok(acme)
    }

    /// The file with the chain, the key and perhaps an OCSP response in PEM, which a renewal replaces at once.
    #[must_use]
    pub fn certificate_file(&self) -> PathBuf {
        self.0.folder.file(CERTIFICATE)
    }

    /// The names of the certificate, in lower case.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0.config.names
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder.path()
    }

    /// The certificates for an authority that validates a name by TLS-ALPN-01; `None` if the configuration has none.
    #[must_use]
    pub fn challenges(&self) -> Option<Arc<dyn Challenges>> {
        self.0.config.tls_alpn.then(|| self.0.answers.clone() as Arc<dyn Challenges>)
    }

    /// The body of the answer to a plain HTTP request for this path; `None` unless an authority asks for it (HTTP-01).
    #[must_use]
    pub fn http_answer(&self, path: &str) -> Option<String> {
        self.0.answers.text(path)
    }

    /// Whether the server staples the OCSP response in that file.
    #[must_use]
    pub fn staples(&self) -> bool {
        self.0.config.stapling
    }

    /// How the certificate and its renewal are.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status().clone()
    }
}

impl Shared {
    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate in use, unless it is a placeholder.
    pub(crate) fn leaf(&self) -> Option<Leaf> {
        self.seen().leaf.clone()
    }

    /// Puts a placeholder where there is no certificate, or one that cannot be read.
    pub(crate) fn ensure_file(&self) -> Result<(), Error> {
        let file = self.certificate_file();
        let failed = |error| Error::folder(format!("cannot use {}", file.display()), &error);
        let unmade = |error: rcgen::Error| Error::Key(error.to_string());
        let placeholder = || leaf::placeholder(&self.config.names, now()).map_err(unmade);
        match self.folder.read(CERTIFICATE).map_err(failed)? {
            None => _ = self.folder.create(CERTIFICATE, placeholder()?.as_bytes()).map_err(failed)?,
            Some(content) => {
                if let Err(error) = Leaf::read(&content) {
                    log::error!("acme: {} is replaced: {error}", file.display());
                    self.folder.replace(CERTIFICATE, placeholder()?.as_bytes()).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the files that have changed. Returns what has.
    pub(crate) fn look(&self, now: Time) -> Change {
        let mut seen = self.seen();
        let order = self.folder.stamp(ORDER);
        if order != seen.order {
            seen.order = order;
            let file = self.folder.read(ORDER).ok().flatten();
            self.answers.set(&StoredOrder::read(file.as_deref()).map(|order| order.answers).unwrap_or_default());
        }
        let certificate = self.folder.stamp(CERTIFICATE);
        if certificate == seen.certificate {
            return Change::Nothing;
        }
        seen.certificate = certificate;
        let content = self.folder.read(CERTIFICATE);
        // A folder that cannot be read says nothing of the certificate, which is in use.
        let is_hidden = content.is_err() || (certificate.is_none() && !self.folder.path().is_dir());
        let read = match content.map(|content| content.map(Zeroizing::new)) {
            Ok(Some(content)) => Leaf::read(&content),
            Ok(None) => Err("there is no such file".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let leaf = match read {
            Ok(leaf) => Some(leaf).filter(|leaf| !leaf.is_placeholder),
            Err(why) => {
                let stays = if seen.leaf.is_some() { "; the certificate in use stays" } else { "" };
                log::error!("acme: {} cannot be used: {why}{stays}", self.certificate_file().display());
                if is_hidden {
                    return Change::Nothing;
                }
                seen.leaf = None;
                return Change::Lost;
            }
        };
        let before = std::mem::replace(&mut seen.leaf, leaf);
        let written = self.folder.written(CERTIFICATE).map(Time::from_secs);
        let mut status = self.status();
        status.expiry = seen.leaf.as_ref().map(|leaf| leaf.life.end);
        status.last_success = seen.leaf.as_ref().and(written).map(|at| at.min(now));
        status.names_responder = seen.leaf.as_ref().is_some_and(|leaf| leaf.responder.is_some());
        status.response_expiry = seen.leaf.as_ref().and_then(Leaf::response_life).map(|life| life.end);
        match (&before, &seen.leaf) {
            (Some(before), Some(leaf)) if before.der == leaf.der => Change::Response,
            _ => Change::Certificate,
        }
    }

    fn certificate_file(&self) -> PathBuf {
        self.folder.file(CERTIFICATE)
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme").field("config", &self.0.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LETS_ENCRYPT;
    use std::fs;

    /// A certificate for one name, in a file of the folder.
    fn certificate() -> String {
        let made = rcgen::generate_simple_self_signed(["one.example".to_owned()]).unwrap();
        leaf::file(LETS_ENCRYPT, &made.cert.pem(), &made.signing_key.serialize_pem())
    }

    #[test]
    fn the_certificate_in_use_outlives_its_folder() {
        let path = std::env::temp_dir().join(format!("tautline-acme-hidden-{}", std::process::id()));
        let away = path.with_extension("away");
        [&path, &away].into_iter().for_each(|path| _ = fs::remove_dir_all(path));
        let acme = Acme::open(AcmeConfig::new(["one.example"], &path).unwrap()).unwrap();
        let text = certificate();
        acme.0.folder.replace(CERTIFICATE, text.as_bytes()).unwrap();
        assert_eq!(acme.0.look(now()), Change::Certificate);
        let der = acme.0.leaf().unwrap().der;
        let is_in_use = || acme.status().unreadiness().is_none() && acme.status().expiry.is_some();
        // Moved away, and back.
        fs::rename(&path, &away).unwrap();
        assert_eq!(acme.0.look(now()), Change::Nothing);
        assert!(is_in_use() && acme.0.leaf().is_some_and(|leaf| leaf.der == der));
        fs::rename(&away, &path).unwrap();
        assert_eq!(acme.0.look(now()), Change::Response);
        // A file that cannot be read. (A folder can be by root, whatever its mode is.)
        fs::remove_file(acme.certificate_file()).unwrap();
        fs::create_dir(acme.certificate_file()).unwrap();
        assert_eq!(acme.0.look(now()), Change::Nothing);
        assert!(is_in_use() && acme.0.leaf().is_some());
        fs::remove_dir(acme.certificate_file()).unwrap();
        // A file that is gone, or damaged: another one is ordered, and this one serves.
        assert_eq!(acme.0.look(now()), Change::Lost);
        assert!(is_in_use() && acme.0.leaf().is_none());
        assert_eq!(acme.0.look(now()), Change::Nothing);
        acme.0.folder.replace(CERTIFICATE, &text.as_bytes()[..100]).unwrap();
        assert_eq!(acme.0.look(now()), Change::Lost);
        assert!(is_in_use());
        acme.0.folder.replace(CERTIFICATE, text.as_bytes()).unwrap();
        assert_eq!(acme.0.look(now()), Change::Certificate);
        fs::remove_dir_all(&path).unwrap();
    }
}
