use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read: a chain is some kilobytes.
const LARGEST: u64 = 1 << 20;

/// The end of the names of files that are being written.
const TEMPORARY: &str = ".new";

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
///
/// The folder itself is locked too, where its file system can: somebody may remove the file during an order.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
    _folder: File,
}

impl Folder {
    /// Opens a folder, which is made if there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let found = fs::metadata(path)?;
        let shown = path.display();
        let (owner, own) = (found.uid(), geteuid().as_raw());
        if owner != own {
            let why = format!(
                "it belongs to user {owner}, who can replace keys, and this is user {own}: chown {own} {shown}, or run as \
                 user {owner}"
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        let mode = found.mode() & 0o777;
        if mode & 0o022 != 0 {
            let why = format!("others can write to it (mode {mode:03o}), and so replace keys: chmod 700 {shown}");
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        if mode & 0o055 != 0 {
            log::warn!("others can list the folder of certificates {shown} (mode {mode:03o}): chmod 700 {shown}");
        }
        let folder = Self { path: path.to_owned() };
        folder.remove_leftovers();
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
        let path = self.file(name);
        // A pipe without a writer would hold the call for ever.
        let file = match OpenOptions::new().read(true).custom_flags(flags(OFlags::NONBLOCK)).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            let what = format!("{} is not a regular file; remove it", path.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let mut content = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            let what = format!("{} is larger than 1 MiB; remove it", path.display());
            return Err(io::Error::new(ErrorKind::FileTooLarge, what));
        }
        Ok(Some(content))
    }

    /// Replaces a file.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let (temporary, _file) = self.write(name, content)?;
        fs::rename(&temporary, self.file(name))?;
        self.sync()
    }

    /// Replaces a file whose time of writing stays: [`written`](Self::written) is that of its main content.
    pub(crate) fn amend(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let written = fs::metadata(self.file(name))?.modified()?;
        let (temporary, file) = self.write(name, content)?;
        file.set_modified(written)?;
        fs::rename(&temporary, self.file(name))?;
        self.sync()
    }

    /// Makes a file, unless there is one. Returns whether it was made.
    pub(crate) fn create(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        let (temporary, _file) = self.write(name, content)?;
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

    /// The warning about a file with a secret that others than its owner can read; `None` for others.
    pub(crate) fn flaw(&self, name: &str) -> Option<String> {
        let path = self.file(name);
        let mode = fs::metadata(&path).ok()?.mode() & 0o7777;
        (mode & 0o044 != 0).then(|| format!("others can read {} (mode {mode:04o}): chmod 600", path.display()))
    }

    /// Takes the right to order; `None` if another process has it.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let mut options = OpenOptions::new();
        let flags = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(flags);
        let file = options.open(self.file("lock")).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => io::Error::other("its file `lock` is a symbolic link; remove that"),
            Some(Errno::NXIO) => io::Error::other("its file `lock` is a pipe; remove that"),
            _ => error,
        })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let folder = File::open(&self.path)?;
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            // NFS cannot lock folders. The file alone must do there.
            Ok(()) | Err(_) => Ok(Some(Lock { _file: file, _folder: folder })),
        }
    }

    /// Whether a process has the right to order.
    pub(crate) fn is_locked(&self) -> bool {
        let flags = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.file("lock"));
        let is_held = |opened: io::Result<File>| {
            opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
        };
        is_held(file) || is_held(File::open(&self.path))
    }

    /// Writes a file beside its place. It is locked until it is closed, by which [`remove_leftovers`](Self::remove_leftovers)
    /// knows that it is in use.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<(PathBuf, File)> {
        if content.len() as u64 > LARGEST {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("{name} would be larger than 1 MiB")));
        }
        let (path, mut file) = loop {
            // Nobody can guess the name, and processes of two containers, which may have one number, choose two names.
            let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
            let path = self.file(&format!("{name}.{random:016x}{TEMPORARY}"));
            let mut options = OpenOptions::new();
            options.create_new(true).write(true).mode(0o600).custom_flags(flags(OFlags::NOFOLLOW));
            let file = options.open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Another process may have taken it for a leftover before it was locked.
            if file.metadata()?.nlink() > 0 {
                break (path, file);
            }
        };
        if let Err(error) = file.write_all(content).and_then(|()| file.sync_all()) {
            // A part of a key is left to nobody, and a full disk gets its space back.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok((path, file))
    }

    /// Removes what processes that were killed have left, which may be keys.
    fn remove_leftovers(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let names = entries.flatten().map(|entry| entry.path());
        for path in names.filter(|path| path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes())) {
            let flags = flags(OFlags::NOFOLLOW | OFlags::NONBLOCK);
            // For writing: some file systems demand it for this lock.
            let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
            let is_leftover = match &opened {
                Ok(file) => flock(file, FlockOperation::NonBlockingLockExclusive).is_ok(),
                Err(error) => Errno::from_io_error(error) == Some(Errno::LOOP),
            };
            if !is_leftover {
                continue;
            }
            match fs::remove_file(&path) {
                Ok(()) => log::info!("acme: removed {}, which a process that ended has left", path.display()),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => log::warn!("acme: cannot remove {}, which may hold a key: {error}", path.display()),
            }
        }
    }

    /// Makes changes of names outlive a loss of power.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// Flags for [`OpenOptionsExt::custom_flags`].
const fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
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
    fn a_folder_of_another_user_is_refused() {
        let temporary = Temporary::new("owner");
        fs::create_dir(&temporary.0).unwrap();
        // Only root can give it away. Others know a folder that is not theirs.
        let is_root = geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&temporary.0, Some(12345), None).unwrap();
            fs::set_permissions(&temporary.0, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let path = if is_root { temporary.0.as_path() } else { Path::new("/") };
        let error = Folder::open(path).unwrap_err().to_string();
        let (owner, own) = (fs::metadata(path).unwrap().uid(), geteuid().as_raw());
        let words = [format!("belongs to user {owner}"), format!("chown {own} {}", path.display())];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }

    #[test]
    fn links_in_the_folder_are_not_followed() {
        let temporary = Temporary::new("links");
        let folder = Folder::open(&temporary.0).unwrap();
        let victim = folder.file("victim");
        fs::write(&victim, b"other").unwrap();
        std::os::unix::fs::symlink(&victim, folder.file("lock")).unwrap();
        let error = folder.lock().unwrap_err().to_string();
        assert!(error.contains("`lock` is a symbolic link") && !folder.is_locked(), "{error}");
        // The name that a file once had while it was written.
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        std::os::unix::fs::symlink(&victim, folder.file(&format!("one.{}-{thread}.new", std::process::id()))).unwrap();
        folder.replace("one", b"secret").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"other");
        assert!(fs::symlink_metadata(folder.file("one")).unwrap().is_file());
    }

    #[test]
    fn leftovers_are_removed_unless_they_are_being_written() {
        let temporary = Temporary::new("leftovers");
        let folder = Folder::open(&temporary.0).unwrap();
        fs::write(folder.file("order.json.17-ThreadId2.new"), b"a key").unwrap();
        std::os::unix::fs::symlink("/nowhere", folder.file("link.new")).unwrap();
        let (being_written, file) = folder.write("one", b"secret").unwrap();
        assert_ne!(folder.write("one", b"secret").unwrap().0, being_written);
        let left = || {
            let entries = fs::read_dir(&temporary.0).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        Folder::open(&temporary.0).unwrap();
        assert_eq!(left(), [being_written]);
        drop(file);
        Folder::open(&temporary.0).unwrap();
        assert!(left().is_empty(), "{:?}", left());
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

    #[test]
    fn a_lock_file_that_is_removed_lets_no_second_server_order() {
        let temporary = Temporary::new("removed");
        let [one, two] = [(); 2].map(|()| Folder::open(&temporary.0).unwrap());
        let held = one.lock().unwrap();
        assert!(held.is_some());
        fs::remove_file(one.file("lock")).unwrap();
        assert!(two.lock().unwrap().is_none() && two.is_locked());
        // The attempt has made the file anew.
        assert!(two.lock().unwrap().is_none());
        drop(held);
        assert!(!two.is_locked() && two.lock().unwrap().is_some());
    }

    #[test]
    fn pipes_in_the_folder_are_refused_at_once() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let temporary = Temporary::new("pipes");
        let folder = Folder::open(&temporary.0).unwrap();
        for name in ["certificate.pem", "lock"] {
            mknodat(CWD, folder.file(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let error = folder.read("certificate.pem").unwrap_err().to_string();
        assert!(error.contains("certificate.pem is not a regular file; remove it"), "{error}");
        let error = folder.lock().unwrap_err().to_string();
        assert!(error.contains("`lock` is a pipe") && !folder.is_locked(), "{error}");
        assert!(folder.read("..").is_err());
    }
}
