use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The longest file that is read: a configuration, a page or an answer.
const LONGEST: u64 = 4 << 20;

/// The files that a configuration names.
#[derive(Debug)]
pub(super) struct Files<'p> {
    /// The folder of the configuration.
    folder: &'p Path,
    /// The files that were read.
    seen: RefCell<Vec<PathBuf>>,
}

impl<'p> Files<'p> {
    pub(super) fn of(configuration: &'p Path) -> Self {
        Self { folder: configuration.parent().unwrap_or_else(|| Path::new("")), seen: RefCell::default() }
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

    /// The files that were read.
    pub(super) fn into_seen(self) -> Vec<PathBuf> {
        self.seen.into_inner()
    }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let cannot =
        |error: std::io::Error| format!("cannot read {}: {error}; make it readable, or name another", path.display());
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= LONGEST) {
        Ok(bytes)
    } else {
        Err(format!("{} has more than {} MiB: name a shorter file", path.display(), LONGEST >> 20))
    }
}
