//! An initramfs: an archive in the format `newc` of cpio (Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive that grows by its entries.
#[derive(Default)]
pub(crate) struct Image {
    bytes: Vec<u8>,
    folders: Vec<String>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Image {
    /// Adds a folder and its parents.
    pub(crate) fn folder(&mut self, path: &str) {
        if self.folders.iter().any(|known| known == path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.folders.push(path.to_owned());
        self.entry(path, FOLDER, &[]);
    }

    /// Adds an executable file and its parents.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.entry(path, PROGRAM, content);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Adds a header of 13 numbers with 8 hexadecimal digits each, the name, and the content, padded to 4 bytes.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name = u32::try_from(path.len() + 1).unwrap_or(u32::MAX);
        let links = if mode == FOLDER { 2 } else { 1 };
        // inode, mode, uid, gid, links, mtime, size, major, minor, rmajor, rminor, size of the name, checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, len, 0, 0, 0, 0, name, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn entries_are_laid_out_as_in_cpio() {
        let mut image = Image::default();
        image.file("a/b", b"hello");
        image.file("a/c", b"");
        let bytes = image.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> =
            text.split("070701").skip(1).filter_map(|entry| entry[104..].split('\0').next()).collect();
        assert_eq!(names, ["a", "a/b", "a/c", "TRAILER!!!"], "the folder once, before what lies in it");
        // The header of the second: 110 bytes behind the first entry of 110 + 2 bytes.
        let second = &bytes[112..];
        assert_eq!(&second[..6], b"070701");
        assert_eq!(
            (&second[14..22], &second[54..62], &second[94..102]),
            (&b"000081ed"[..], &b"00000005"[..], &b"00000004"[..])
        );
        assert_eq!(&second[110..116], b"a/b\0\0\0");
        assert_eq!(&second[116..124], b"hello\0\0\0");
    }
}
