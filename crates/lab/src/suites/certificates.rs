use super::key::Key;
use crate::Error;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tautline_dev_cert::{Authority, Leaf};

/// Further names of every server, one for each client that is to have sessions of its own.
const CLIENTS: &str = "*.clients.localhost";

/// Certificates of measured servers, in a folder that only this user can read. It is removed when this is dropped.
pub(super) struct Certificates {
    folder: PathBuf,
    authority: String,
}

impl Certificates {
    /// Makes a certificate for each of these keys.
    pub(super) fn new(keys: &[Key]) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("cannot make certificates: {error}"));
        let authority = Authority::new("Tautline bench authority").map_err(|error| failed(&error))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("taut-bench-{}-{}", std::process::id(), since.as_nanos());
        let folder = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&folder).map_err(|error| failed(&error))?;
        let certificates = Self { folder, authority: authority.certificate().to_owned() };
        for &key in keys {
            let leaf = Leaf::new(&["localhost", "127.0.0.1", CLIENTS]).with_key(key.kind());
            let issued = authority.issue(&leaf).map_err(|error| failed(&error))?;
            let (chain, private) = certificates.paths(key);
            let written = write(&chain, &issued.chain).and_then(|()| write(&private, &issued.key));
            written.map_err(|error| failed(&error))?;
        }
        Ok(certificates)
    }

    /// Files of the chain and of the private key.
    pub(super) fn paths(&self, key: Key) -> (PathBuf, PathBuf) {
        let name = key.name();
        (self.folder.join(format!("{name}.pem")), self.folder.join(format!("{name}-key.pem")))
    }

    /// The folder, for further files that servers read.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the authority that clients trust, PEM, and returns its file.
    pub(super) fn write_authority(&self) -> Result<PathBuf, Error> {
        let file = self.folder.join("authority.pem");
        let written = fs::write(&file, &self.authority);
        written.map_err(|error| Error::Failed(format!("cannot write {}: {error}", file.display())))?;
        Ok(file)
    }

    /// Writes the secret of ticket keys that several servers share, and returns its file.
    pub(super) fn write_ticket_secret(&self) -> Result<PathBuf, Error> {
        let (file, mut secret) = (self.folder.join("tickets"), [0; 32]);
        let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut secret));
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let written = read.and_then(|()| write(&file, text.as_bytes()));
        written.map_err(|error| Error::Failed(format!("cannot make a ticket secret: {error}")))?;
        Ok(file)
    }

    /// The authority that clients trust, PEM.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

/// Writes a new file that this user alone can read, or servers warn of it.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(content)
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // A folder that remains holds worthless keys, readable by this user only.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
