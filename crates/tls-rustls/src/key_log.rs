//! The file of secrets that SSLKEYLOGFILE names.

use rustls::{KeyLog, KeyLogFile};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

/// Opens the log. A new file is its owner's alone, and one that others can read or write is reported.
pub(crate) fn open() -> Arc<dyn KeyLog> {
    if let Some(path) = std::env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty()).map(PathBuf::from) {
        match fs::metadata(&path) {
            Ok(facts) if facts.is_file() => {
                if let Some(why) = tautline_tls::key_log_flaw(&path, facts.permissions().mode()) {
                    log::warn!("{why}");
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // rustls reports a file that cannot be opened.
                let _ = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
            }
            _ => {}
        }
    }
    Arc::new(KeyLogFile::new())
}
