use crate::cert::{DAYS, Key, LOOPBACK, server_files, write_all};
use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `serve` uses where no certificate is given: made once for each user, and again before it ends.
#[derive(Debug)]
pub(crate) struct Development {
    /// What clients must trust.
    pub(crate) authority: PathBuf,
    /// Certificate chain.
    pub(crate) chain: PathBuf,
    /// Private key.
    pub(crate) key: PathBuf,
}

impl Development {
    /// Where it lies, whether or not it exists: `$XDG_DATA_HOME/tautline` or `~/.local/share/tautline`.
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

    /// Makes what is missing or about to end.
    pub(crate) fn ensure(&self) -> Result<(), Failure> {
        let almost = Duration::from_secs(u64::from(DAYS - 30) * 24 * 60 * 60);
        let is_fresh = |path: &PathBuf| {
            fs::metadata(path).and_then(|facts| facts.modified()).is_ok_and(|made| {
                // A time in the future has no age; such a file was made just now by another clock.
                made.elapsed().is_ok_and(|age| age < almost) || made.elapsed().is_err()
            })
        };
        let dir = self.key.parent().unwrap_or_else(|| Path::new("."));
        // Of those that start at once one makes them, and the others wait until they are whole.
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
    fn it_is_made_once_and_again_when_part_is_missing() {
        let dir = std::env::temp_dir().join(format!("taut-development-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let development = Development::within(&dir);
        development.ensure().unwrap();
        let first = fs::read(&development.chain).unwrap();
        development.ensure().unwrap();
        assert_eq!(fs::read(&development.chain).unwrap(), first);
        fs::remove_file(&development.key).unwrap();
        development.ensure().unwrap();
        assert_ne!(fs::read(&development.chain).unwrap(), first);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn those_that_start_at_once_use_the_same() {
        let dir = std::env::temp_dir().join(format!("taut-development-race-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let barrier = std::sync::Barrier::new(8);
        let read = || {
            let development = Development::within(&dir);
            barrier.wait();
            development.ensure().unwrap();
            [&development.authority, &development.chain, &development.key].map(|path| fs::read(path).unwrap())
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.iter().all(|files| *files == all[0] && files.iter().all(|file| !file.is_empty())));
        fs::remove_dir_all(&dir).unwrap();
    }
}
