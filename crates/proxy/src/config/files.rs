use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tautline::StaticFiles;

/// The longest file that is read: a configuration, a page or an answer.
const LONGEST: u64 = 4 << 20;

/// The files that a configuration names.
#[derive(Debug)]
pub(super) struct Files<'p> {
    /// The folder of the configuration.
    folder: &'p Path,
    /// The files that were read.
    seen: RefCell<Vec<PathBuf>>,
    /// The folders that were opened.
    folders: RefCell<Vec<PathBuf>>,
    /// Whether files that TLS reads are looked at, so that a fault has its line.
    looks: bool,
}

impl<'p> Files<'p> {
    pub(super) fn of(configuration: &'p Path) -> Self {
        let folder = configuration.parent().unwrap_or_else(|| Path::new(""));
        Self { folder, seen: RefCell::default(), folders: RefCell::default(), looks: false }
    }

    /// Looks at files that TLS reads, too.
    pub(super) fn looking(self) -> Self {
        Self { looks: true, ..self }
    }

    pub(super) const fn looks(&self) -> bool {
        self.looks
    }

    /// Whether a file that TLS reads can be opened, if it is looked at.
    pub(super) fn look(&self, path: &Path) -> Result<(), String> {
        let path = self.path(path);
        if self.looks { fs::File::open(&path).map(drop).map_err(|error| cannot_read(&path, &error)) } else { Ok(()) }
    }

    /// Whether a certificate and its key are the other way round, if they are looked at. Files without either are left to TLS.
    pub(super) fn look_for_swap(&self, cert: &Path, key: &Path) -> Result<(), String> {
        if !self.looks {
            return Ok(());
        }
        let (has_certificate, has_key) = self.contents(cert);
        if has_key && !has_certificate {
            let path = self.path(cert);
            return Err(format!(
                "{} holds a private key, and no certificate: are cert and key swapped?",
                path.display()
            ));
        }
        let (has_certificate, has_key) = self.contents(key);
        if has_certificate && !has_key {
            let path = self.path(key);
            return Err(format!(
                "{} holds a certificate, and no private key: are cert and key swapped?",
                path.display()
            ));
        }
        Ok(())
    }

    /// Whether a file in PEM holds certificates, and whether it holds private keys. A pipe is not read, since TLS reads it later.
    fn contents(&self, path: &Path) -> (bool, bool) {
        let path = self.path(path);
        let bytes = if path.is_file() { read_file(&path).unwrap_or_default() } else { Vec::new() };
        let has = |mark: &str| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
        (has("-----BEGIN CERTIFICATE-----"), has("PRIVATE KEY-----"))
    }

    /// The path of a file that the configuration names.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let path = self.path(path);
        let bytes = read_file(&path);
        self.seen.borrow_mut().push(path);
        bytes
    }

    /// Opens a folder of files that requests ask for.
    pub(super) fn open(&self, path: &Path) -> Result<StaticFiles, String> {
        let path = self.path(path);
        let opened = StaticFiles::open(&path).map_err(|error| {
            format!("cannot open the folder {}: {error}; make it readable, or name another", path.display())
        });
        self.folders.borrow_mut().push(path);
        opened
    }

    /// The files that were read, and the folders.
    pub(super) fn into_seen(self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        (self.seen.into_inner(), self.folders.into_inner())
    }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.map_err(|error| cannot_read(path, &error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LONGEST) {
        Ok(bytes)
    } else {
        Err(format!("{} has more than {} MiB: name a shorter file", path.display(), LONGEST >> 20))
    }
}

fn cannot_read(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}; make it readable, or name another", path.display())
}
