use crate::{Certificate, ClientAuth, Error, Reloader, ServerConfig, TicketKeySource, TicketSecret};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A server's TLS configuration whose certificates lie in files, to be loaded, and loaded again when they change.
#[derive(Clone)]
pub struct ServerFiles {
    base: ServerConfig,
    certificates: Vec<CertificateFiles>,
    client_roots: Option<PathBuf>,
    /// What the files were like when they were last read.
    seen: Arc<Mutex<Vec<Stamp>>>,
}

/// Where a certificate lies.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// Chain, end entity first, PEM.
    pub chain: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Response of the authority's OCSP responder, DER.
    pub ocsp: Option<PathBuf>,
}

/// What a file is like, by which a change is noticed: whoever writes, renames or links it changes one of these, and so does
/// a symbolic link on the way to it that leads elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl ServerFiles {
    /// All that does not come from files. Certificates from files come behind those of `base`.
    #[must_use]
    pub fn new(base: ServerConfig) -> Self {
        Self { base, certificates: Vec::new(), client_roots: None, seen: Arc::default() }
    }

    /// A certificate.
    #[must_use]
    pub fn certificate(mut self, files: CertificateFiles) -> Self {
        self.certificates.push(files);
        self
    }

    /// Takes the roots for client certificates from this PEM file. Certificates are required, but where `base` says
    /// [`ClientAuth::Optional`].
    #[must_use]
    pub fn client_roots(mut self, path: PathBuf) -> Self {
        self.client_roots = Some(path);
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::Tls`] where one cannot be read, or holds nothing of the kind. Whether a key belongs to its certificate is seen
    /// when the configuration is used; that error names the file too.
    pub fn load(&self) -> Result<ServerConfig, Error> {
        // First, so that what changes while it is read is read again.
        let stamps = self.stamps();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamps;
        let mut config = self.base.clone();
        for CertificateFiles { chain, key, ocsp } in &self.certificates {
            config.certificates.push(Certificate {
                chain: read(chain, "certificate", "BEGIN CERTIFICATE")?,
                key: read(key, "key", "PRIVATE KEY")?,
                ocsp: ocsp.as_ref().map_or_else(|| Ok(Vec::new()), |ocsp| read(ocsp, "OCSP response", ""))?,
                name: format!("certificate {} with key {}", chain.display(), key.display()),
            });
        }
        if let Some(roots) = &self.client_roots {
            let roots = read(roots, "authority for client certificates", "BEGIN CERTIFICATE")?;
            config.client_auth = match config.client_auth {
                ClientAuth::Optional(_) => ClientAuth::Optional(roots),
                _ => ClientAuth::Required(roots),
            };
        }
        Ok(config)
    }

    /// Looks at the files `every` so often, on a thread of its own, and reloads what changed once it has not changed for as
    /// long again. What cannot be used is logged, leaves everything as it is, and is tried again every minute, for the clock
    /// may be what was wrong. Files are followed through symbolic links, so that whole folders can be swapped.
    ///
    /// # Errors
    /// [`Error::Machine`] where no thread can be started.
    pub fn watch(self, reloader: Reloader, every: Duration) -> Result<Watch, Error> {
        let (alive, over) = channel();
        let spawned = std::thread::Builder::new()
            .name("tautline-watch".to_owned())
            .spawn(move || watch(&self, &reloader, every, &over));
        spawned.map_err(|error| Error::Machine { what: "cannot start a thread", error })?;
        Ok(Watch { _alive: alive })
    }

    fn stamps(&self) -> Vec<Stamp> {
        let of_certificates =
            self.certificates.iter().flat_map(|files| [Some(&files.chain), Some(&files.key), files.ocsp.as_ref()]);
        let paths = of_certificates.flatten().chain(&self.client_roots);
        // All of a file that is not there are alike.
        paths.map(|path| fs::metadata(path).map_or(Stamp::NONE, |metadata| Stamp::of(&metadata))).collect()
    }

    fn have_changed(&self, stamps: &[Stamp]) -> bool {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != stamps
    }
}

/// Watches files until it is dropped.
#[must_use = "it ends when it is dropped"]
#[derive(Debug)]
pub struct Watch {
    _alive: Sender<()>,
}

/// Secrets for tickets in a file, one a line, as [`TicketSecret::parse`] takes them. It is read again every five seconds.
#[derive(Clone, Debug)]
pub struct TicketFile {
    path: PathBuf,
}

impl TicketFile {
    /// Secrets from this file.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl TicketKeySource for TicketFile {
    fn secrets(&self) -> Result<Vec<TicketSecret>, tautline_tls::Error> {
        use tautline_tls::Error;
        let path = self.path.display();
        // The file's bytes are erased as the secrets are, whether they can be used or not.
        let text = fs::read(&self.path)
            .map(zeroize::Zeroizing::new)
            .map_err(|error| Error::Config(format!("cannot read the ticket secret {path}: {error}")))?;
        TicketSecret::parse(&text).map_err(|error| match error {
            Error::Config(why) => Error::Config(format!("{path}: {why}")),
            other => other,
        })
    }
}

impl Stamp {
    const NONE: Self = Self { device: 0, inode: 0, size: 0, modified: (0, 0), changed: (0, 0) };

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// How long to wait with files that cannot be used and do not change.
const RETRY: Duration = Duration::from_secs(60);

fn watch(files: &ServerFiles, reloader: &Reloader, every: Duration, over: &Receiver<()>) {
    let mut before = Vec::new();
    let mut failed: Option<(String, Instant)> = None;
    while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let stamps = files.stamps();
        // Certificate and key are rarely replaced at once.
        let settled = stamps == before;
        let changed = files.have_changed(&stamps);
        before = stamps;
        let due = failed.as_ref().is_some_and(|(_, at)| at.elapsed() >= RETRY);
        if !settled || !(changed || due) {
            continue;
        }
        match reloader.try_files(files) {
            Err(error) if !changed && failed.as_ref().is_some_and(|(why, _)| *why == error.to_string()) => {
                failed = Some((error.to_string(), Instant::now()));
            }
            result => failed = reloader.told(result).err().map(|error| (error.to_string(), Instant::now())),
        }
    }
}

/// What `path` holds, which must have `mark` in it.
fn read(path: &Path, what: &str, mark: &str) -> Result<Vec<u8>, Error> {
    let refused = |why: &str| {
        let path = path.display();
        Error::Tls(tautline_tls::Error::Config(format!("cannot read the {what} {path}: {why}")))
    };
    let bytes = fs::read(path).map_err(|error| refused(&error.to_string()))?;
    if bytes.is_empty() {
        return Err(refused("the file is empty"));
    }
    if !bytes.windows(mark.len().max(1)).any(|window| window.starts_with(mark.as_bytes())) {
        return Err(refused(&format!("it is not PEM, for nothing in it says {mark:?}")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
