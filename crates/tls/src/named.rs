//! The authorities that the environment names instead of the platform's, as for OpenSSL.

use crate::pem;
use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Gives each certificate (DER) of the file in `SSL_CERT_FILE` and of the folders in `SSL_CERT_DIR` to `trust`, once.
///
/// `trust` returns whether it can use the certificate. Returns what cannot be read or used, as warnings. `None` if the
/// environment names neither.
pub fn trust_named(trust: impl FnMut(&[u8]) -> bool) -> Option<Vec<String>> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty());
    let (file, folders) = (named("SSL_CERT_FILE").map(PathBuf::from), named("SSL_CERT_DIR"));
    if file.is_none() && folders.is_none() {
        return None;
    }
    let mut reader = Reader { trust, files: HashSet::new(), certificates: HashSet::new(), warnings: Vec::new() };
    if let Some(file) = file {
        reader.file("SSL_CERT_FILE", &file);
    }
    reader.folders(&folders.unwrap_or_default());
    Some(reader.warnings)
}

struct Reader<F> {
    trust: F,
    /// Files that were read. Folders hold links to most of their files.
    files: HashSet<PathBuf>,
    /// Certificates that `trust` had. Folders hold bundles of their certificates.
    certificates: HashSet<Vec<u8>>,
    warnings: Vec<String>,
}

impl<F: FnMut(&[u8]) -> bool> Reader<F> {
    fn folders(&mut self, folders: &OsStr) {
        for folder in env::split_paths(folders).filter(|folder| !folder.as_os_str().is_empty()) {
            let entries = fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut entries = entries.unwrap_or_else(|error| {
                self.refuse("SSL_CERT_DIR", &folder, &error);
                Vec::new()
            });
            entries.sort_unstable_by_key(fs::DirEntry::file_name);
            // A link without a target is no file either.
            for path in entries.iter().map(fs::DirEntry::path).filter(|path| path.is_file()) {
                self.file("SSL_CERT_DIR", &path);
            }
        }
    }

    fn file(&mut self, variable: &str, path: &Path) {
        if !self.files.insert(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())) {
            return;
        }
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) => return self.refuse(variable, path, &error),
        };
        let (known, trust) = (&mut self.certificates, &mut self.trust);
        for unusable in pem::trust_each(&content, |der| !known.insert(der.to_vec()) || trust(der)) {
            let path = path.display();
            self.warnings.push(format!("{variable}: {path}: {unusable}; this certificate is not trusted"));
        }
    }

    fn refuse(&mut self, variable: &str, path: &Path, error: &io::Error) {
        self.warnings.push(format!("{variable}: {}: {error}: its certificates are not trusted", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_of_a_folder_is_read_once() {
        let folder = env::temp_dir().join(format!("tautline-named-{}", std::process::id()));
        fs::create_dir_all(folder.join("folder")).unwrap();
        let pem = |base64| format!("\u{feff}-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
        fs::write(folder.join("one.pem"), pem("MAA=")).unwrap();
        fs::write(folder.join("bundle.pem"), pem("MAA=") + &pem("MAE=")[3..]).unwrap();
        fs::write(folder.join("cut.pem"), &pem("MAA=")[..40]).unwrap();
        std::os::unix::fs::symlink("one.pem", folder.join("12345678.0")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.join("23456789.0")).unwrap();
        let mut seen = Vec::new();
        let trust = |der: &[u8]| {
            seen.push(der.to_vec());
            seen.len() == 1
        };
        let mut reader = Reader { trust, files: HashSet::new(), certificates: HashSet::new(), warnings: Vec::new() };
        reader.folders(&env::join_paths([folder.as_path(), Path::new("/nonexistent-folder")]).unwrap());
        let warnings = reader.warnings;
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, [[0x30, 0], [0x30, 1]].map(Vec::from));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }
}
