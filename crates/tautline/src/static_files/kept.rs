//! Small files that have not changed lately: an answer from memory takes one system call instead of five.

use super::described::Described;
use crate::stamp::Stamp;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The largest file that is kept.
const MOST_OF_FILE: u64 = 16 << 10;
/// Bytes of all files that are kept.
const MOST: usize = 1 << 20;
/// Bytes that a kept file takes beside its own.
const OVERHEAD: usize = 512;
/// A file that changed a shorter time ago is not kept: the clock of its file system may give the next change the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// Files by their paths below the folder.
#[derive(Debug, Default)]
pub(super) struct KeptFiles {
    by_path: Mutex<ByPath>,
}

#[derive(Debug, Default)]
struct ByPath {
    files: HashMap<PathBuf, Arc<KeptFile>>,
    /// Bytes of them, with `OVERHEAD` for each.
    bytes: usize,
}

/// A file in memory.
#[derive(Debug)]
pub(super) struct KeptFile {
    stamp: Stamp,
    pub(super) described: Described,
    pub(super) bytes: Vec<u8>,
}

impl KeptFiles {
    /// The file at a path below the folder `root`, if it is kept and still the same.
    ///
    /// The path may lead elsewhere meanwhile, and out of the folder: what is found there is only compared.
    pub(super) fn get(&self, root: &OwnedFd, path: &Path) -> Option<Arc<KeptFile>> {
        let kept = Arc::clone(self.lock().files.get(path)?);
        let now = statx(root, path, AtFlags::NO_AUTOMOUNT, StatxFlags::BASIC_STATS).ok();
        if now.is_some_and(|now| Stamp::of_statx(&now) == kept.stamp) {
            return Some(kept);
        }
        self.lock().remove(path);
        None
    }

    /// Reads and keeps a file, if it is small and has settled.
    pub(super) fn keep(
        &self,
        path: PathBuf,
        file: &File,
        metadata: &Metadata,
        described: &Described,
    ) -> Option<Arc<KeptFile>> {
        let stamp = Stamp::of(metadata);
        if stamp.size > MOST_OF_FILE || !has_settled(&stamp, SystemTime::now()) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(stamp.size).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        if Stamp::of(&file.metadata().ok()?) != stamp {
            return None;
        }
        let kept = Arc::new(KeptFile { stamp, described: described.clone(), bytes });
        self.lock().add(path, Arc::clone(&kept));
        Some(kept)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ByPath> {
        // Each change of the map is whole.
        self.by_path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptFile {
    /// The bytes in a range, of which there may be none.
    pub(super) fn part(&self, range: Range<u64>) -> &[u8] {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        self.bytes.get(place(range.start)..place(range.end)).unwrap_or_default()
    }
}

impl ByPath {
    fn add(&mut self, path: PathBuf, kept: Arc<KeptFile>) {
        self.remove(&path);
        let bytes = kept.bytes.len() + OVERHEAD;
        if self.bytes + bytes > MOST {
            // A folder with more files than fit is read anew from time to time.
            *self = Self::default();
        }
        self.bytes += bytes;
        self.files.insert(path, kept);
    }

    fn remove(&mut self, path: &Path) {
        if let Some(kept) = self.files.remove(path) {
            self.bytes -= kept.bytes.len() + OVERHEAD;
        }
    }
}

/// Whether the last change of a file was long enough before `now`.
fn has_settled(stamp: &Stamp, now: SystemTime) -> bool {
    let changed = u64::try_from(stamp.changed.0).ok().map(Duration::from_secs);
    let since = changed.and_then(|changed| now.duration_since(SystemTime::UNIX_EPOCH + changed).ok());
    // The second in which it changed counts as a whole one.
    since.is_some_and(|since| since > SETTLED + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::super::described::Described;
    use super::{ByPath, KeptFile, KeptFiles, MOST, MOST_OF_FILE, OVERHEAD, SETTLED, Stamp, has_settled};
    use http::HeaderValue;
    use rustix::fd::OwnedFd;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    fn changed_at(seconds: i64) -> Stamp {
        let mut stamp = Stamp::NONE;
        stamp.changed = (seconds, 5);
        stamp
    }

    fn file_of(len: usize) -> Arc<KeptFile> {
        let text = HeaderValue::from_static("x");
        let described = Described {
            modified: SystemTime::UNIX_EPOCH,
            etag: text.clone(),
            last_modified: text.clone(),
            content_type: text,
        };
        Arc::new(KeptFile { stamp: changed_at(0), described, bytes: vec![0; len] })
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_kept() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        for (changed, expected) in [(96, true), (97, false), (100, false), (101, false), (i64::MAX, false)] {
            assert_eq!(has_settled(&changed_at(changed), now), expected, "{changed}");
        }
        assert!(!has_settled(&changed_at(-1), now));
    }

    #[test]
    fn a_file_that_has_settled_is_kept_until_it_changes() {
        let base = std::env::temp_dir().join(format!("tautline-kept-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let path = base.join("a.txt");
        std::fs::write(&path, "text").unwrap();
        let root = OwnedFd::from(File::open(&base).unwrap());
        let (kept, name) = (KeptFiles::default(), Path::new("./a.txt"));
        let keep = || {
            let file = File::open(&path).unwrap();
            let metadata = file.metadata().unwrap();
            kept.keep(name.to_owned(), &file, &metadata, &file_of(0).described).is_some()
        };
        assert!(!keep(), "it has just changed");
        std::thread::sleep(SETTLED + Duration::from_millis(1_100));
        assert!(kept.get(&root, name).is_none() && keep());
        assert_eq!(kept.get(&root, name).unwrap().part(1..3), b"ex");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(kept.get(&root, name).is_none(), "its rights have changed");
        assert_eq!(kept.lock().bytes, 0);
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn kept_files_have_a_bound() {
        let mut kept = ByPath::default();
        let len = usize::try_from(MOST_OF_FILE).unwrap();
        for number in 0..1_000 {
            kept.add(PathBuf::from(format!("{number}")), file_of(len));
            kept.add(PathBuf::from(format!("{number}")), file_of(len));
            assert_eq!(kept.bytes, kept.files.len() * (len + OVERHEAD));
            assert!(kept.bytes <= MOST);
        }
        kept.remove(Path::new("999"));
        kept.remove(Path::new("none"));
        assert_eq!(kept.bytes, kept.files.len() * (len + OVERHEAD));
    }
}
