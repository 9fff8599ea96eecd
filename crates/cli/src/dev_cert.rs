use crate::cert::{DAYS, Key, LOOPBACK, server_files, write_all};
use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
        let almost = Duration::from_secs(u64::from(DAYS - 30) * 24 * 60 * 60);
        let is_fresh = |path: &PathBuf| {
            fs::metadata(path).and_then(|facts| facts.modified()).is_ok_and(|made| {
                // A time in the future is no age. The file was made recently, by another clock.
                made.elapsed().is_ok_and(|age| age < almost) || made.elapsed().is_err()
            })
        };
        let dir = self.key.parent().unwrap_or_else(|| Path::new("."));
        // If several processes start at once, one makes the files and the others wait for it.
        let lock = fs::create_dir_all(dir).and_then(|()| fs::File::create(dir.join("lock")));
        let _locked = lock.and_then(|lock| lock.lock().map(|()| lock));
        if [&self.authority, &self.chain, &self.key].into_iter().all(is_fresh) {
            return Ok(());
        }
        write_all(dir, &server_files(&LOOPBACK, Key::P256, DAYS, None)?, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
