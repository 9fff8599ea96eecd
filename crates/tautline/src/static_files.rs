use crate::{Content, Reply, Request};
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tautline_ws::handshake::percent_decode;

/// The file that stands for its folder.
const INDEX: &str = "index.html";

/// Answers requests with the files of a folder, which is opened once.
///
/// ```no_run
/// use tautline::{Conn, Handler, Message, Reply, Request, Server, StaticFiles};
///
/// struct Site(StaticFiles);
///
/// impl Handler for Site {
///     type State = ();
///     fn on_request(&mut self, request: &Request<'_>) -> Reply {
///         if request.is_upgrade { Reply::upgrade() } else { self.0.reply(request) }
///     }
///     fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
/// }
///
/// let files = StaticFiles::open("public")?;
/// Server::plain().listen("127.0.0.1:8080".parse()?).start(move |_shard| Site(files.clone()))?.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// - GET and HEAD, one range of bytes (206, 416, `If-Range`), `ETag` and `Last-Modified` with `If-None-Match` and
///   `If-Modified-Since` (304). Several ranges at once are answered with the whole file.
/// - A folder is answered with its `index.html`. There are no listings.
/// - No path leads out of the folder, and the kernel sees to that (openat2(2), Linux 5.6). A symbolic link is followed if it
///   stays within the folder.
/// - Names that begin with a dot are not served, except `.well-known`.
/// - A file is read on the loop, in pieces of 64 KiB. Use local disks.
#[derive(Clone, Debug)]
pub struct StaticFiles {
    root: Arc<OwnedFd>,
    cache_control: HeaderValue,
}

/// An open file, and what a client is told about it.
struct Found {
    file: File,
    len: u64,
    modified: SystemTime,
    etag: String,
    content_type: HeaderValue,
}

/// The part of a file that a client asks for.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Range(Range<u64>),
    Unsatisfiable,
}

impl StaticFiles {
    /// Opens the folder.
    ///
    /// # Errors
    /// The folder cannot be opened, or the kernel is older than Linux 5.6.
    pub fn open(root: impl AsRef<Path>) -> io::Result<Self> {
        let root = rustix::fs::open(root.as_ref(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let files = Self { root: Arc::new(root), cache_control: HeaderValue::from_static("no-cache") };
        match files.open_beneath(Path::new(".")) {
            Err(error) if error == rustix::io::Errno::NOSYS => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "static files need openat2(2), of Linux 5.6 or newer"))
            }
            result => result.map(|_| files).map_err(Into::into),
        }
    }

    /// Sets `Cache-Control`. Default `no-cache`: browsers ask each time whether a file has changed.
    #[must_use]
    pub fn with_cache_control(mut self, value: HeaderValue) -> Self {
        self.cache_control = value;
        self
    }

    /// The answer to a request: the file at the request's path.
    #[must_use]
    pub fn reply<T>(&self, request: &Request<'_>) -> Reply<T> {
        self.reply_at(request, request.http.uri().path())
    }

    /// The answer to a request: the file at `path`, as in a URI, for example without the prefix of a route.
    #[must_use]
    pub fn reply_at<T>(&self, request: &Request<'_>, path: &str) -> Reply<T> {
        let head = request.http;
        if !matches!(*head.method(), Method::GET | Method::HEAD) {
            return with(Reply::status(StatusCode::METHOD_NOT_ALLOWED), ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        let Some(relative) = relative_path(path) else { return Reply::status(StatusCode::NOT_FOUND) };
        match self.find(&relative, path.ends_with('/')) {
            Ok(Some(found)) => self.answer(found, head),
            // Always a path of this host, since it begins with one slash.
            Ok(None) => match HeaderValue::try_from(format!("{}/", head.uri().path().replace("//", "/"))) {
                Ok(to) if !to.as_bytes().starts_with(b"//") => {
                    with(Reply::status(StatusCode::PERMANENT_REDIRECT), LOCATION, to)
                }
                _ => Reply::status(StatusCode::NOT_FOUND),
            },
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => {
                Reply::status(StatusCode::SERVICE_UNAVAILABLE)
            }
            Err(_) => Reply::status(StatusCode::NOT_FOUND),
        }
    }

    fn open_beneath(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        // A pipe or a device does not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
    }

    /// The file at a path; `None` if it is a folder and the client's path does not say so.
    fn find(&self, path: &Path, is_folder: bool) -> rustix::io::Result<Option<Found>> {
        let mut path = path.to_owned();
        let mut file = self.open_beneath(&path)?;
        let mut stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if !is_folder {
                return Ok(None);
            }
            path.push(INDEX);
            file = self.open_beneath(&path)?;
            stat = fstat(&file)?;
        } else if is_folder {
            return Err(rustix::io::Errno::NOTDIR);
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(rustix::io::Errno::NOENT);
        }
        Ok(Some(Found::new(file.into(), &stat, &path)))
    }

    fn answer<T>(&self, found: Found, head: &http::Request<()>) -> Reply<T> {
        let Found { file, len, modified, etag, content_type } = found;
        let part = if head.method() == Method::GET { part(head.headers(), len, &etag, modified) } else { Part::Whole };
        let (status, range) = match part {
            _ if is_unchanged(head.headers(), &etag, modified) => (StatusCode::NOT_MODIFIED, 0..0),
            Part::Whole => (StatusCode::OK, 0..len),
            Part::Range(range) => (StatusCode::PARTIAL_CONTENT, range),
            Part::Unsatisfiable => {
                let unit = HeaderValue::try_from(format!("bytes */{len}"));
                let reply = Reply::status(StatusCode::RANGE_NOT_SATISFIABLE);
                return unit.map_or_else(
                    |_| Reply::status(StatusCode::INTERNAL_SERVER_ERROR),
                    |unit| with(reply, CONTENT_RANGE, unit),
                );
            }
        };
        let mut response = Response::new(Content::file(file, range.start, range.end - range.start));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let texts = [
            (ETAG, etag),
            (LAST_MODIFIED, httpdate::fmt_http_date(modified)),
            (CONTENT_RANGE, format!("bytes {}-{}/{len}", range.start, range.end.saturating_sub(1))),
        ];
        for (name, text) in texts {
            if (name != CONTENT_RANGE || status == StatusCode::PARTIAL_CONTENT)
                && let Ok(value) = HeaderValue::try_from(text)
            {
                headers.insert(name, value);
            }
        }
        headers.insert(CACHE_CONTROL, self.cache_control.clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Reply::Stream(response)
    }
}

impl Found {
    fn new(file: File, stat: &Stat, path: &Path) -> Self {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        let mime = mime_guess::from_path(path).first_or_octet_stream();
        let is_text = mime.type_() == "text" && mime.get_param("charset").is_none();
        let content_type = if is_text { format!("{mime}; charset=utf-8") } else { mime.to_string() };
        Self {
            file,
            len,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            etag: format!("\"{:x}-{len:x}-{seconds:x}.{:x}\"", stat.st_ino, stat.st_mtime_nsec),
            content_type: HeaderValue::try_from(content_type)
                .unwrap_or(HeaderValue::from_static("application/octet-stream")),
        }
    }
}

fn with<T>(mut reply: Reply<T>, name: HeaderName, value: HeaderValue) -> Reply<T> {
    if let Reply::Respond(response) = &mut reply {
        response.headers_mut().insert(name, value);
    }
    reply
}

/// The path of a file below the folder; `None` for names that are never served.
fn relative_path(path: &str) -> Option<PathBuf> {
    let decoded = percent_decode(path)?;
    let mut relative = PathBuf::from(".");
    // A slash that was encoded separates names too: no file has one in its name.
    for name in decoded.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        if name.contains(&0) || name.starts_with(b".") && name != b".well-known" {
            return None;
        }
        relative.push(OsStr::from_bytes(name));
    }
    Some(relative)
}

/// Whether the client has the file already (RFC 9110, section 13.2.2).
fn is_unchanged(headers: &HeaderMap, etag: &str, modified: SystemTime) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        let mut tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        // Our tags have no comma in them.
        return tags.any(|tags| {
            tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == "*" || tag == etag)
        });
    }
    date(headers, IF_MODIFIED_SINCE).is_some_and(|since| modified <= since)
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// The part that a client asks for (RFC 9110, section 14.2).
fn part(headers: &HeaderMap, len: u64, etag: &str, modified: SystemTime) -> Part {
    let Some(range) = headers.get(RANGE).and_then(|range| range.to_str().ok()) else { return Part::Whole };
    if let Some(validator) = headers.get(IF_RANGE)
        && validator != etag
        && date(headers, IF_RANGE) != Some(modified)
    {
        return Part::Whole;
    }
    let Some((first, last)) = range.trim().strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    let range = match (first.trim(), last.trim()) {
        ("", "") => return Part::Whole,
        ("", suffix) => match number(suffix) {
            Some(suffix) => len.saturating_sub(suffix)..len,
            None => return Part::Whole,
        },
        (first, "") => match number(first) {
            Some(first) => first..len,
            None => return Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => first..len.min(last.saturating_add(1)),
            _ => return Part::Whole,
        },
    };
    if range.start < range.end { Part::Range(range) } else { Part::Unsatisfiable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_never_lead_out() {
        for (path, expected) in [
            ("/", Some(".")),
            ("/a/b.txt", Some("./a/b.txt")),
            ("//a///b/", Some("./a/b")),
            ("/a%2fb%20c", Some("./a/b c")),
            ("/.well-known/x", Some("./.well-known/x")),
            ("/../etc/passwd", None),
            ("/a/%2e%2e/%2E%2e/etc/passwd", None),
            ("/..%2f..%2fetc/passwd", None),
            ("/./a", None),
            ("/.git/config", None),
            ("/a%00b", None),
            ("/%zz", None),
        ] {
            assert_eq!(relative_path(path), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn ranges_are_read_or_ignored() {
        let now = SystemTime::UNIX_EPOCH;
        for (range, expected) in [
            ("bytes=0-4", Part::Range(0..5)),
            ("bytes=5-", Part::Range(5..10)),
            ("bytes=-3", Part::Range(7..10)),
            ("bytes=-30", Part::Range(0..10)),
            ("bytes=9-99", Part::Range(9..10)),
            ("bytes=3-18446744073709551615", Part::Range(3..10)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=4-3", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=99999999999999999999-", Part::Whole),
            ("lines=1-2", Part::Whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(range));
            assert_eq!(part(&headers, 10, "\"x\"", now), expected, "{range}");
            headers.insert(IF_RANGE, HeaderValue::from_static("\"y\""));
            assert_eq!(part(&headers, 10, "\"x\"", now), Part::Whole, "{range}");
        }
    }
}
