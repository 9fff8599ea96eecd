//! Whether a file is still the same.

#[cfg(feature = "files")]
use rustix::fs::{Statx, makedev};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Properties of a file by which a change is noticed.
///
/// Writing, renaming or linking the file changes at least one of them. So does a change of a symbolic link in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Stamp {
    /// That of no file.
    pub(crate) const NONE: Self = Self { device: 0, inode: 0, size: 0, modified: (0, 0), changed: (0, 0) };

    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    #[cfg(feature = "files")]
    pub(crate) fn of_statx(found: &Statx) -> Self {
        Self {
            device: makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: found.stx_size,
            modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec.into()),
            changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec.into()),
        }
    }
}
