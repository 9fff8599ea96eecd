use crate::cert::{DAYS, Key, LOOPBACK, server_files, write_all};
use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tautline::layers::tls::pem;
use x509_parser::certificate::{Validity, X509Certificate};
use x509_parser::prelude::FromDer;

/// A certificate that is valid for fewer days is made anew.
const LEAST_DAYS: u32 = 30;

/// The development certificate of `serve`, made once per user, and again before it expires.
#[derive(Debug)]
pub(crate) struct DevCert {
    /// Certificate of the authority, which clients must trust.
    pub(crate) authority: PathBuf,
    /// Certificate chain.
    pub(crate) chain: PathBuf,
    /// Private key.
    pub(crate) key: PathBuf,
}

impl DevCert {
    /// Its place, whether or not it exists: `$XDG_DATA_HOME/tautline` or `~/.local/share/tautline`.
    pub(crate) fn locate() -> Option<Self> {
        let data = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(std::env::home_dir()?.join(".local/share")))?;
        Some(Self::within(&data.join("tautline")))
    }

    fn within(dir: &Path) -> Self {
        Self { authority: dir.join("ca.pem"), chain: dir.join("cert.pem"), key: dir.join("key.pem") }
    }

    /// Makes all files anew if one is missing or about to expire.
    pub(crate) fn ensure(&self) -> Result<(), Failure> {
        let dir = self.key.parent().unwrap_or_else(|| Path::new("."));
        // If several processes start at once, one makes the files and the others wait for it.
        let lock = fs::create_dir_all(dir).and_then(|()| fs::File::create(dir.join("lock")));
        let _locked = lock.and_then(|lock| lock.lock().map(|()| lock));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
        if self.key.exists() && [&self.authority, &self.chain].into_iter().all(|path| is_fresh(path, now)) {
            return Ok(());
        }
        write_all(dir, &server_files(&LOOPBACK, Key::P256, DAYS, None)?, true)
    }
}

/// Whether the certificate in this file says itself that it is valid now, and for long enough.
///
/// The file's time says nothing about that: a copy, a backup or an image has another one.
fn is_fresh(path: &Path, now: u64) -> bool {
    let content = fs::read(path).unwrap_or_default();
    let Some(Ok(section)) = pem::sections(&content).next() else { return false };
    X509Certificate::from_der(&section.der).is_ok_and(|(_, certificate)| {
        let Validity { not_before, not_after } = certificate.validity();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        not_before.timestamp() <= now && not_after.timestamp() - now >= i64::from(LEAST_DAYS) * 24 * 60 * 60
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A copy of an old certificate is made anew though its file is new. A new certificate stays though its file is old.
    #[test]
    fn the_certificate_says_how_old_it_is() {
        let dir = std::env::temp_dir().join(format!("taut-development-age-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let dev_cert = DevCert::within(&dir);
        let long_ago = SystemTime::now() - Duration::from_secs(2 * 366 * 24 * 60 * 60);
        for (days, stays) in [(DAYS, true), (LEAST_DAYS - 1, false)] {
            write_all(&dir, &server_files(&LOOPBACK, Key::P256, days, None).unwrap(), true).unwrap();
            let before = fs::read(&dev_cert.chain).unwrap();
            for path in [&dev_cert.authority, &dev_cert.chain, &dev_cert.key].into_iter().filter(|_| stays) {
                fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
            }
            dev_cert.ensure().unwrap();
            assert_eq!(fs::read(&dev_cert.chain).unwrap() == before, stays, "{days} days");
        }
        fs::write(&dev_cert.chain, "no certificate").unwrap();
        dev_cert.ensure().unwrap();
        assert!(is_fresh(&dev_cert.chain, SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn it_is_made_once_and_again_if_a_file_is_missing() {
        let dir = std::env::temp_dir().join(format!("taut-development-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let dev_cert = DevCert::within(&dir);
        dev_cert.ensure().unwrap();
        let first = fs::read(&dev_cert.chain).unwrap();
        dev_cert.ensure().unwrap();
        assert_eq!(fs::read(&dev_cert.chain).unwrap(), first);
        fs::remove_file(&dev_cert.key).unwrap();
        dev_cert.ensure().unwrap();
        assert_ne!(fs::read(&dev_cert.chain).unwrap(), first);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn concurrent_starts_use_the_same_files() {
        let dir = std::env::temp_dir().join(format!("taut-development-race-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let barrier = std::sync::Barrier::new(8);
        let read = || {
            let dev_cert = DevCert::within(&dir);
            barrier.wait();
            dev_cert.ensure().unwrap();
            [&dev_cert.authority, &dev_cert.chain, &dev_cert.key].map(|path| fs::read(path).unwrap())
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|files| *files == all[0] && files.iter().all(|file| !file.is_empty())));
        fs::remove_dir_all(&dir).unwrap();
    }
}
