//! The parts of a response that follow from the path and the metadata of a file.

use http::header::HeaderValue;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The last second of the year 9999.
const LATEST: u64 = 253_402_300_799;

/// The parts of a response that describe a file.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub(super) modified: SystemTime,
    pub(super) etag: HeaderValue,
    pub(super) last_modified: HeaderValue,
    pub(super) content_type: HeaderValue,
}

impl Described {
    /// `seconds` is the time of the last modification.
    pub(super) fn new(metadata: &Metadata, seconds: i64, path: &Path) -> Self {
        // A date of HTTP has a year of four digits. A file system takes later times, too.
        let seconds = u64::try_from(seconds).unwrap_or(0).min(LATEST);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mime = mime_guess::from_path(path).first_or_octet_stream();
        let is_text = mime.type_() == "text" && mime.get_param("charset").is_none();
        let etag = format!("\"{:x}-{:x}-{seconds:x}.{:x}\"", metadata.ino(), metadata.size(), metadata.mtime_nsec());
        Self {
            modified,
            etag: value(etag),
            last_modified: value(httpdate::fmt_http_date(modified)),
            content_type: value(if is_text { format!("{mime}; charset=utf-8") } else { mime.to_string() }),
        }
    }
}

/// A header of printable text.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}
