use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read: a chain is some kilobytes.
const LARGEST: u64 = 1 << 20;

/// Bytes that an account and an order of many names take.
const ROOM: usize = 64 << 10;

/// The folder with the account, the certificate and the order in progress. Its files are for their owner alone.
///
/// Each file is replaced at once: a reader finds the old content or the new, also after a loss of power.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// Properties of a file by which a change is noticed. All missing files have the same ones.
pub(crate) type Stamp = Option<(u64, u64, i64, i64)>;

/// The right to order, which one process of several has at a time. The kernel takes it back when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Folder {
    /// Opens a folder, which is made if there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mode = fs::metadata(path)?.mode() & 0o777;
        let shown = path.display();
        if mode & 0o022 != 0 {
            let why = format!("others can write to it (mode {mode:03o}), and so replace keys: chmod 700 {shown}");
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        if mode & 0o055 != 0 {
            log::warn!("others can list the folder of certificates {shown} (mode {mode:03o}): chmod 700 {shown}");
        }
        let folder = Self { path: path.to_owned() };
        // A folder that cannot be written is noticed now, and not in two months.
        folder.replace("probe", b"")?;
        folder.remove("probe")?;
        Ok(folder)
    }

    /// The folder at this path, as it is.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Fails if the files of an order could not be written.
    pub(crate) fn check_room(&self) -> io::Result<()> {
        self.replace("probe", &[0; ROOM])?;
        self.remove("probe")
    }

    /// The content of a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.file(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut content = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            let what = format!("{} is larger than 1 MiB; remove it", self.file(name).display());
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
        Ok(Some(content))
    }

    /// Replaces a file.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let temporary = self.write(name, content)?;
        fs::rename(&temporary, self.file(name))?;
        self.sync()
    }

    /// Replaces a file whose time of writing stays: [`written`](Self::written) is that of its main content.
    pub(crate) fn amend(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let written = fs::metadata(self.file(name))?.modified()?;
        let temporary = self.write(name, content)?;
        OpenOptions::new().write(true).open(&temporary)?.set_modified(written)?;
        fs::rename(&temporary, self.file(name))?;
        self.sync()
    }

    /// Makes a file, unless there is one. Returns whether it was made.
    pub(crate) fn create(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        let temporary = self.write(name, content)?;
        let linked = fs::hard_link(&temporary, self.file(name));
        fs::remove_file(&temporary)?;
        match linked {
            Ok(()) => self.sync().map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file, if there is one.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn stamp(&self, name: &str) -> Stamp {
        let found = fs::metadata(self.file(name)).ok()?;
        Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    }

    /// The time at which a file was last written, since 1970.
    pub(crate) fn written(&self, name: &str) -> Option<u64> {
        fs::metadata(self.file(name)).ok().and_then(|found| u64::try_from(found.mtime()).ok())
    }

    /// What to say of a file with a secret that others than its owner can read.
    pub(crate) fn flaw(&self, name: &str) -> Option<String> {
        let path = self.file(name);
        let mode = fs::metadata(&path).ok()?.mode() & 0o7777;
        (mode & 0o044 != 0).then(|| format!("others can read {} (mode {mode:04o}): chmod 600", path.display()))
    }

    /// Takes the right to order; `None` if another process has it.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(self.file("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process has the right to order.
    pub(crate) fn is_locked(&self) -> bool {
        let opened = OpenOptions::new().read(true).open(self.file("lock"));
        opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// Writes a file beside its place.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        if content.len() as u64 > LARGEST {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{name} would be larger than 1 MiB")));
        }
        // Two threads of a process may begin at the same moment.
        let unique = format!("{name}.{}-{:?}.new", std::process::id(), std::thread::current().id());
        let path = self.file(&unique.replace(['(', ')'], ""));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
        if let Err(error) = file.write_all(content).and_then(|()| file.sync_all()) {
            // A part of a key is left to nobody, and a full disk gets its space back.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(path)
    }

    /// Makes changes of names outlive a loss of power.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tautline-acme-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn folder_and_files_are_for_their_owner_alone() {
        let temporary = Temporary::new("modes");
        let folder = Folder::open(&temporary.0.join("deep/er")).unwrap();
        folder.replace("one", b"secret").unwrap();
        assert!(folder.create("two", b"secret").unwrap());
        drop(folder.lock().unwrap());
        assert_eq!(mode(folder.path()), 0o700);
        for name in ["one", "two", "lock"] {
            assert_eq!(mode(&folder.file(name)), 0o600, "{name}");
        }
        assert_eq!((folder.flaw("one"), folder.flaw("three")), (None, None));
        fs::set_permissions(folder.file("one"), fs::Permissions::from_mode(0o640)).unwrap();
        let flaw = folder.flaw("one").unwrap();
        assert!(flaw.contains("/one (mode 0640): chmod 600"), "{flaw}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let error = Folder::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn a_file_is_replaced_or_made_at_once() {
        let temporary = Temporary::new("files");
        let folder = Folder::open(&temporary.0).unwrap();
        assert_eq!((folder.read("one").unwrap(), folder.stamp("one")), (None, None));
        folder.replace("one", b"old").unwrap();
        let before = folder.stamp("one");
        folder.replace("one", b"new").unwrap();
        assert_ne!(folder.stamp("one"), before);
        assert!(!folder.create("one", b"other").unwrap());
        assert_eq!(folder.read("one").unwrap().unwrap(), b"new");
        folder.remove("one").unwrap();
        folder.remove("one").unwrap();
        fs::write(folder.file("big"), vec![0; (1 << 20) + 1]).unwrap();
        assert!(folder.read("big").is_err());
        // Everything that is written can be read.
        assert!(folder.replace("one", &vec![0; (1 << 20) + 1]).is_err());
        assert_eq!(folder.read("one").unwrap(), None);
    }

    #[test]
    fn one_of_several_has_the_lock_and_its_end_passes_it_on() {
        let temporary = Temporary::new("lock");
        let [one, two] = [(); 2].map(|()| Folder::open(&temporary.0).unwrap());
        let held = one.lock().unwrap();
        assert!(held.is_some() && two.lock().unwrap().is_none());
        drop(held);
        assert!(two.lock().unwrap().is_some());
    }
}
