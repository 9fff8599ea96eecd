use crate::stamp::Stamp;
use crate::{
    Certificate, Challenges, ClientAuth, ClientRule, Error, Reloader, ServerConfig, TicketKeySource, TicketSecret,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use tautline_tls::pem;

/// A server's TLS configuration with certificates in files, which can be reloaded when they change.
///
/// ```
/// use tautline::{CertificateFiles, Error, ServerConfig, ServerFiles, Tls};
///
/// fn tls() -> Result<Tls<ServerConfig>, Error> {
///     let certificate = CertificateFiles::new("/etc/tls/tls.crt", "/etc/tls/tls.key");
///     let files = ServerFiles::new(ServerConfig::default()).certificate(certificate);
///     Ok(files.load()?.into())
/// }
/// # assert!(tls().is_err());
/// ```
#[derive(Clone)]
pub struct ServerFiles {
    base: ServerConfig,
    certificates: Vec<CertificateFiles>,
    client_roots: Option<PathBuf>,
    /// The files' stamps when they were last read.
    seen: Arc<Mutex<Vec<Stamp>>>,
}

/// The files of a certificate.
///
/// ```
/// use tautline::{CertificateFiles, ServerConfig, ServerFiles};
///
/// let certificate = CertificateFiles::new("cert.pem", "key.pem").with_ocsp("ocsp.der");
/// let files = ServerFiles::new(ServerConfig::default()).certificate(certificate);
/// assert!(files.load().is_err(), "the files do not exist");
/// ```
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    chain: PathBuf,
    key: PathBuf,
    ocsp: Option<PathBuf>,
    /// No response is stapled: the engine cannot.
    bare: bool,
    clients: Option<ClientRoots>,
}

/// The authorities of the clients of one certificate.
#[derive(Clone, Debug)]
struct ClientRoots {
    /// The name of the rule.
    rule: String,
    path: PathBuf,
    required: bool,
}

impl CertificateFiles {
    /// A chain, end entity first, and its private key, both in PEM, without an OCSP response.
    pub fn new(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { chain: chain.into(), key: key.into(), ocsp: None, bare: false, clients: None }
    }

    /// Adds an OCSP response to staple, DER.
    ///
    /// Without one, a response in the file of the chain is stapled if the key is in it too (`BEGIN OCSP RESPONSE`, as OpenSSL
    /// writes it).
    #[must_use]
    pub fn with_ocsp(mut self, ocsp: impl Into<PathBuf>) -> Self {
        self.ocsp = Some(ocsp.into());
        self
    }

    /// Requests certificates of the clients that get this certificate, by the authorities in this PEM file.
    ///
    /// The [rule](ClientRule) gets this name. Clients without a certificate are rejected if one is `required`.
    #[must_use]
    pub fn with_client_roots(mut self, rule: impl Into<String>, path: impl Into<PathBuf>, required: bool) -> Self {
        self.clients = Some(ClientRoots { rule: rule.into(), path: path.into(), required });
        self
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let clients = self.clients.as_ref().map(|clients| clients.path.as_path());
        [Some(self.chain.as_path()), Some(self.key.as_path()), self.ocsp.as_deref(), clients].into_iter().flatten()
    }

    /// Leaves a response in the file of the chain alone, for an engine that cannot staple.
    #[cfg(feature = "acme")]
    pub(crate) fn without_stapling(mut self) -> Self {
        self.bare = true;
        self
    }
}

impl ServerFiles {
    /// A configuration without files. Certificates from files are added behind those of `base`.
    #[must_use]
    pub fn new(base: ServerConfig) -> Self {
        Self { base, certificates: Vec::new(), client_roots: None, seen: Arc::default() }
    }

    /// Adds a certificate.
    #[must_use]
    pub fn certificate(mut self, files: CertificateFiles) -> Self {
        self.certificates.push(files);
        self
    }

    /// Answers authorities that validate the server's names with these certificates.
    #[must_use]
    pub fn challenges(mut self, challenges: Arc<dyn Challenges>) -> Self {
        self.base.challenges = Some(challenges);
        self
    }

    /// Takes the roots for client certificates from this PEM file.
    ///
    /// Client certificates are required, unless `base` has [`ClientAuth::Optional`].
    #[must_use]
    pub fn client_roots(mut self, path: PathBuf) -> Self {
        self.client_roots = Some(path);
        self
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Error::Tls`] if a file cannot be read or has the wrong content. A key that does not belong to its certificate is
    /// noticed when the configuration is used; that error names the file too.
    pub fn load(&self) -> Result<ServerConfig, Error> {
        // Before reading, so that a file that changes meanwhile is read again.
        let stamps = self.stamps();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = stamps;
        let mut config = self.base.clone();
        // Rules of one name have the same roots, even if the file changes meanwhile.
        let mut roots = BTreeMap::new();
        for CertificateFiles { chain, key, ocsp, bare, clients } in &self.certificates {
            let name = format!("certificate {} with key {}", chain.display(), key.display());
            warn_if_shared(key, "private key");
            let mut certificate = if chain == key {
                // Both from one reading, since a rename may replace the file between two. The key is wiped from the chain's copy.
                let both = zeroize::Zeroizing::new(read(key, "certificate", "BEGIN CERTIFICATE")?);
                let response = pem::ocsp_response(&both).filter(|_| !bare).unwrap_or_default();
                Certificate::new(certificates_of(&both, &name)?, both.as_slice()).with_ocsp(response).with_name(name)
            } else {
                let chain = read(chain, "certificate", "BEGIN CERTIFICATE")?;
                Certificate::new(chain, read(key, "key", "PRIVATE KEY")?).with_name(name)
            };
            if let Some(ocsp) = ocsp {
                certificate.ocsp = read(ocsp, "OCSP response", "")?;
            }
            certificate.client_rule = clients.as_ref().map(|clients| clients.load(&mut roots)).transpose()?;
            config.certificates.push(certificate);
        }
        if let Some(roots) = &self.client_roots {
            let roots = read_roots(roots)?;
            config.client_auth = match config.client_auth {
                ClientAuth::Optional(_) => ClientAuth::Optional(roots),
                _ => ClientAuth::Required(roots),
            };
        }
        Ok(config)
    }

    /// Whether a file has changed since the files were read last.
    ///
    /// Files that cannot be used and stay as they are have not changed.
    ///
    /// ```
    /// use tautline::{Error, Reloader, ServerFiles};
    ///
    /// /// Reads the files again only if that can have an effect.
    /// fn keep_up(reloader: &Reloader, files: &ServerFiles) -> Result<(), Error> {
    ///     if files.have_changed() { reloader.reload_files(files) } else { Ok(()) }
    /// }
    /// ```
    #[must_use]
    pub fn have_changed(&self) -> bool {
        self.differ(&self.stamps())
    }

    /// Reloads the files when they change. A thread looks at them each time the interval `every` has passed.
    ///
    /// A changed file is reloaded once it has not changed for another interval. Files that cannot be used are logged and change
    /// nothing. They are tried again every minute, since the machine's clock may have been wrong. Symbolic links are followed,
    /// so that whole folders can be swapped.
    ///
    /// # Errors
    /// [`Error::Machine`] if the thread cannot be started.
    pub fn watch(self, reloader: Reloader, every: Duration) -> Result<Watch, Error> {
        let (alive, over) = channel();
        let spawned = std::thread::Builder::new()
            .name("tautline-watch".to_owned())
            .spawn(move || watch(&self, &reloader, every, &over));
        spawned.map_err(|error| Error::Machine { what: "cannot start a thread", error })?;
        Ok(Watch { _alive: alive })
    }

    fn stamps(&self) -> Vec<Stamp> {
        let of_certificates = self.certificates.iter().flat_map(CertificateFiles::paths);
        let paths = of_certificates.chain(self.client_roots.as_deref());
        // All missing files have the same stamp.
        paths.map(|path| fs::metadata(path).map_or(Stamp::NONE, |metadata| Stamp::of(&metadata))).collect()
    }

    fn differ(&self, stamps: &[Stamp]) -> bool {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) != stamps
    }
}

impl Reloader {
    /// Reads `files` and [reloads](Self::reload) the configuration from them.
    ///
    /// # Errors
    /// As [`reload`](Self::reload). The error names a file that cannot be read or used.
    pub fn reload_files(&self, files: &ServerFiles) -> Result<(), Error> {
        self.report(self.try_reload(|| files.load()))
    }

    /// Does the same without a log line about an error, which is the caller's to report.
    ///
    /// # Errors
    /// As [`reload_files`](Self::reload_files).
    pub fn try_reload_files(&self, files: &ServerFiles) -> Result<(), Error> {
        self.count(self.try_reload(|| files.load()))
    }
}

/// A watch on files, which ends when it is dropped.
///
/// ```
/// use std::time::Duration;
/// use tautline::{Error, ServerFiles, ServerHandle, Watch};
///
/// /// Looks for replaced certificates every second, until the watch is dropped.
/// fn watch(server: &ServerHandle, files: ServerFiles) -> Result<Watch, Error> {
///     files.watch(server.reloader(), Duration::from_secs(1))
/// }
/// ```
#[must_use = "the watch ends when it is dropped"]
#[derive(Debug)]
pub struct Watch {
    _alive: Sender<()>,
}

/// A file with secrets of ticket keys, one per line ([`TicketSecret::parse`]). It is read again every five seconds.
///
/// ```
/// use std::sync::Arc;
/// use tautline::{ServerConfig, TicketFile, Tickets};
///
/// let source = Arc::new(TicketFile::new("/run/secrets/tickets".into()));
/// let config = ServerConfig::default().with_tickets(Tickets::Fleet { source, epoch: Tickets::LONGEST });
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
pub struct TicketFile {
    path: PathBuf,
    /// Whether others' access to the file was looked at.
    checked: Arc<Once>,
}

impl TicketFile {
    /// The file at this path.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, checked: Arc::new(Once::new()) }
    }
}

impl TicketKeySource for TicketFile {
    fn secrets(&self) -> Result<Vec<TicketSecret>, tautline_tls::Error> {
        use tautline_tls::Error;
        let path = self.path.display();
        self.checked.call_once(|| warn_if_shared(&self.path, "ticket secret"));
        // The file's bytes are erased like the secrets, even if they are invalid.
        let text = fs::read(&self.path)
            .map(zeroize::Zeroizing::new)
            .map_err(|error| Error::Config(format!("cannot read the ticket secret {path}: {error}")))?;
        TicketSecret::parse(&text).map_err(|error| match error {
            Error::Config(why) => Error::Config(format!("{path}: {why}")),
            other => other,
        })
    }
}

/// Time after which unchanged files that could not be used are tried again.
const RETRY: Duration = Duration::from_secs(60);

fn watch(files: &ServerFiles, reloader: &Reloader, every: Duration, over: &Receiver<()>) {
    let mut before = Vec::new();
    let mut failed: Option<(String, Instant)> = None;
    while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let stamps = files.stamps();
        // A certificate and its key are rarely replaced at the same moment.
        let settled = stamps == before;
        let changed = files.differ(&stamps);
        before = stamps;
        let due = failed.as_ref().is_some_and(|(_, at)| at.elapsed() >= RETRY);
        if !settled || !(changed || due) {
            continue;
        }
        let mut is_over = false;
        let result = reloader.try_reload(|| {
            // Other files may be in use since the watch has ended.
            is_over = over.try_recv() == Err(TryRecvError::Disconnected);
            if is_over {
                Err(tautline_tls::Error::Config("the watch has ended".to_owned()).into())
            } else {
                files.load()
            }
        });
        if is_over {
            return;
        }
        match result {
            Err(error) if !changed && failed.as_ref().is_some_and(|(why, _)| *why == error.to_string()) => {
                failed = Some((error.to_string(), Instant::now()));
            }
            result => failed = reloader.report(result).err().map(|error| (error.to_string(), Instant::now())),
        }
    }
}

/// Warns if other users than the owner can read a secret.
fn warn_if_shared(path: &Path, what: &str) {
    let Ok(metadata) = fs::metadata(path) else { return };
    let mode = metadata.mode() & 0o7777;
    let who = match (mode & 0o040, mode & 0o004) {
        (0, 0) => return,
        (_, 0) => format!("group {}", metadata.gid()),
        _ => "every user".to_owned(),
    };
    log::warn!("the {what} {} can be read by {who} (mode {mode:04o}): chmod 600", path.display());
}

/// The certificates of a file, in PEM.
fn certificates_of(file: &[u8], name: &str) -> Result<Vec<u8>, Error> {
    let sections = pem::certificates(file, name)?;
    Ok(sections.iter().flat_map(|section| section.to_pem().to_vec()).collect())
}

impl ClientRoots {
    /// Reads the file, unless it is among those that were read.
    fn load<'p>(&'p self, known: &mut BTreeMap<&'p Path, Vec<u8>>) -> Result<ClientRule, Error> {
        let roots = match known.get(self.path.as_path()) {
            Some(roots) => roots.clone(),
            None => {
                let roots = read_roots(&self.path)?;
                known.insert(&self.path, roots.clone());
                roots
            }
        };
        let auth = if self.required { ClientAuth::Required(roots) } else { ClientAuth::Optional(roots) };
        Ok(ClientRule::new(self.rule.as_str(), auth))
    }
}

fn read_roots(path: &Path) -> Result<Vec<u8>, Error> {
    read(path, "authority for client certificates", "BEGIN CERTIFICATE")
}

/// Reads the file at `path`, which must contain `mark`. `what` names the file's content in errors.
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
        return Err(refused(&format!("it is not PEM: it does not contain {mark:?}")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
