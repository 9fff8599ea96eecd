//! Files of a folder as answers of HTTP.

mod described;
mod kept;

use crate::{Content, Reply, Request};
use described::Described;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, LOCATION, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode, Uri};
use kept::{KeptFile, KeptFiles};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
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
/// - `If-Match` and `If-Unmodified-Since` are answered with 412 if the file has changed, so that a download which is
///   resumed never mixes two versions.
/// - A folder is answered with its `index.html`. There are no listings. A path without the slash at its end is
///   redirected, with its query.
/// - No path leads out of the folder, and the kernel sees to that (openat2(2), Linux 5.6). A symbolic link is followed if it
///   stays within the folder.
/// - Names that begin with a dot are not served, except `.well-known`.
/// - Replace a file by renaming a new one, rather than writing in place. A response whose file is written meanwhile is cut
///   off by a reset, so that no client takes a mix of two versions for one ([`Content::of_version`]).
/// - A file is read on the loop, in pieces of 64 KiB. Use local disks.
/// - Files of up to 16 KiB that have not changed for some seconds are kept in memory, 1 MiB of them for each clone. Each answer
///   asks the kernel whether the file is still the same.
#[derive(Debug)]
pub struct StaticFiles {
    root: Arc<OwnedFd>,
    cache_control: HeaderValue,
    kept: KeptFiles,
}

/// A file, and what a client is told about it.
enum Found {
    Open(File, Box<Metadata>, Described),
    Kept(Arc<KeptFile>),
}

/// Each clone keeps files of its own, so that loops do not wait for each other.
impl Clone for StaticFiles {
    fn clone(&self) -> Self {
        let Self { root, cache_control, .. } = self;
        Self { root: Arc::clone(root), cache_control: cache_control.clone(), kept: KeptFiles::default() }
    }
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
        let files = Self {
            root: Arc::new(root),
            cache_control: HeaderValue::from_static("no-cache"),
            kept: KeptFiles::default(),
        };
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
        match self.find(relative, path.ends_with('/')) {
            Ok(Some(found)) => self.answer(found, head),
            Ok(None) => match folder_location(head.uri()) {
                Some(to) => with(Reply::status(StatusCode::PERMANENT_REDIRECT), LOCATION, to),
                None => Reply::status(StatusCode::NOT_FOUND),
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
    fn find(&self, mut path: PathBuf, is_folder: bool) -> rustix::io::Result<Option<Found>> {
        if is_folder {
            path.push(INDEX);
        }
        if let Some(kept) = self.kept.get(&self.root, &path) {
            return Ok(Some(Found::Kept(kept)));
        }
        // A path that ends with a slash and leads to a file has none below it.
        let file = File::from(self.open_beneath(&path)?);
        let metadata = metadata_of(&file)?;
        if metadata.is_dir() && !is_folder {
            return Ok(None);
        }
        if !metadata.is_file() {
            return Err(rustix::io::Errno::NOENT);
        }
        let described = Described::new(&metadata, metadata.mtime(), &path);
        Ok(Some(match self.kept.keep(path, &file, &metadata, &described) {
            Some(kept) => Found::Kept(kept),
            None => Found::Open(file, Box::new(metadata), described),
        }))
    }

    fn answer<T>(&self, found: Found, head: &http::Request<()>) -> Reply<T> {
        let (len, described) = match &found {
            Found::Open(_, metadata, described) => (metadata.size(), described),
            Found::Kept(kept) => (kept.bytes.len() as u64, &kept.described),
        };
        let Described { modified, etag, .. } = described;
        let etag = etag.to_str().unwrap_or_default();
        let part = if head.method() == Method::GET { part(head.headers(), len, etag, *modified) } else { Part::Whole };
        // The order of RFC 9110, section 13.2.2.
        let (status, range) = match part {
            _ if has_changed(head.headers(), etag, *modified) => {
                return Reply::status(StatusCode::PRECONDITION_FAILED);
            }
            _ if is_unchanged(head.headers(), etag, *modified) => (StatusCode::NOT_MODIFIED, 0..0),
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
        let mut head = Response::new(());
        *head.status_mut() = status;
        let headers = head.headers_mut();
        headers.insert(ETAG, described.etag.clone());
        headers.insert(LAST_MODIFIED, described.last_modified.clone());
        headers.insert(CONTENT_TYPE, described.content_type.clone());
        headers.insert(CACHE_CONTROL, self.cache_control.clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::PARTIAL_CONTENT
            && let Ok(range) =
                HeaderValue::try_from(format!("bytes {}-{}/{len}", range.start, range.end.saturating_sub(1)))
        {
            headers.insert(CONTENT_RANGE, range);
        }
        match found {
            Found::Open(file, metadata, _) => Reply::Stream(
                head.map(|()| Content::file(file, range.start, range.end - range.start).of_version(&metadata)),
            ),
            Found::Kept(kept) => Reply::Respond(head.map(|()| kept.part(range).to_vec())),
        }
    }
}

fn metadata_of(file: &File) -> rustix::io::Result<Metadata> {
    file.metadata().map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
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

/// Where a folder is, whose path lacks the slash at its end: always a path of this host, since it begins with one slash.
fn folder_location(uri: &Uri) -> Option<HeaderValue> {
    let path = uri.path().replace("//", "/");
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let to = format!("{path}/{query}");
    if to.starts_with("//") { None } else { HeaderValue::try_from(to).ok() }
}

/// Whether the client means another version of the file (RFC 9110, sections 13.1.1 and 13.1.4).
fn has_changed(headers: &HeaderMap, etag: &str, modified: SystemTime) -> bool {
    if headers.contains_key(IF_MATCH) {
        let mut tags = headers.get_all(IF_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        // A weak tag matches nothing here. Our tags have no comma in them.
        return !tags.any(|tags| tags.split(',').map(str::trim).any(|tag| tag == "*" || tag == etag));
    }
    date(headers, IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since)
}

/// Whether the client has the file already (RFC 9110, sections 13.1.2 and 13.1.3).
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

/// The date in a header, unless it is no date or occurs twice: then the header is ignored.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    httpdate::parse_http_date(value.to_str().ok()?).ok()
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
    let ranges = range.trim().split_once('=').filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"));
    let Some((first, last)) = ranges.and_then(|(_, range)| range.split_once('-')) else {
        return Part::Whole;
    };
    // A number of any length is one of RFC 9110. One that is too large for us is beyond the end of every file.
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Some(text.parse::<u64>().unwrap_or(u64::MAX)),
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
    fn a_file_of_any_time_has_a_date() {
        let files = StaticFiles::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let request = http::Request::get("/Cargo.toml").body(()).unwrap();
        let latest = "Fri, 31 Dec 9999 23:59:59 GMT";
        for (time, date) in [
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (253_402_300_799, latest),
            (253_402_300_800, latest),
            (i64::MAX, latest),
        ] {
            let file = File::from(files.open_beneath(Path::new("Cargo.toml")).unwrap());
            let metadata = file.metadata().unwrap();
            let described = Described::new(&metadata, time, Path::new("Cargo.toml"));
            let found = Found::Open(file, Box::new(metadata), described);
            let Reply::<()>::Stream(response) = files.answer(found, &request) else { panic!("no file") };
            assert_eq!(response.headers()[LAST_MODIFIED], date, "{time}");
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
            ("bytes=3-9999999999999999999999", Part::Range(3..10)),
            ("bytes=-9999999999999999999999", Part::Range(0..10)),
            ("BYTES=0-1", Part::Range(0..2)),
            ("Bytes=-3", Part::Range(7..10)),
            ("bytes=10-", Part::Unsatisfiable),
            ("bytes=99999999999999999999-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=4-3", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes=1-2x", Part::Whole),
            ("bytes 1-2", Part::Whole),
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
