//! `--access-log`: a line for each answered HTTP request and each ended WebSocket.

use super::privilege::PrivilegeArguments;
use crate::failure::{Failure, one_line};
use crate::output::{self, Lines, Target};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tautline::{Access, AccessLog, Cause, Note};

/// The time between two lines of the log about lines that this log has lost.
const NEWS: Duration = Duration::from_secs(10);

/// The access log of a server. Clones are the same one.
#[derive(Clone)]
pub(super) struct AccessFile(Lines);

impl AccessFile {
    /// Opens the file to append to it; `-` is standard output.
    ///
    /// The server's user opens it and owns it. Root would follow links of that user to files that are not its own.
    pub(super) fn open(path: &Path, privilege: &PrivilegeArguments) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self(output::standard_output().clone()));
        }
        let file = privilege.as_user(|| append(path))?.map_err(|error| {
            let user = privilege.user().map(|user| format!(" as {user}")).unwrap_or_default();
            Failure::usage(format!("--access-log: cannot write {}{user}: {error}", path.display()))
        })?;
        let target = Appended { path: path.to_owned(), file, is_cut: false, reported: None };
        Ok(Self(output::lines_to(target, "access")))
    }

    /// The part of it that gets the entries.
    pub(super) fn log(&self) -> AccessLog {
        let lines = self.0.clone();
        AccessLog::new(move |access| {
            let time = jiff::Timestamp::now();
            let line = if output::is_json() { object(time, access) } else { text(time, access) };
            lines.add(line.as_bytes());
        })
    }

    /// Opens the file again, behind the lines so far: a program has moved it away.
    pub(super) fn reopen(&self) {
        self.0.reopen();
    }
}

/// A file to which lines are appended.
struct Appended {
    path: PathBuf,
    file: File,
    /// Whether the end of the file is a part of a line.
    is_cut: bool,
    /// When lost lines were reported last.
    reported: Option<Instant>,
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Writes lines. Stores whether the last one that has begun is cut: a full disk may take a part of it.
fn write(file: &mut impl Write, mut lines: &[u8], is_cut: &mut bool) -> io::Result<()> {
    while !lines.is_empty() {
        match file.write(lines) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                let (written, rest) = lines.split_at(count);
                *is_cut = !written.ends_with(b"\n");
                lines = rest;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Target for Appended {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_cut {
            return write(&mut self.file, &[b"\n", lines].concat(), &mut self.is_cut);
        }
        write(&mut self.file, lines, &mut self.is_cut)
    }

    fn reopen(&mut self) {
        match append(&self.path) {
            Ok(file) => {
                // It may be the same one.
                self.is_cut &= file.metadata().is_ok_and(|found| found.len() > 0);
                self.file = file;
            }
            Err(error) => {
                log::error!("the access log goes on in its old file: cannot open {}: {error}", self.path.display());
            }
        }
    }

    fn report(&mut self, lost: u64, why: &str) -> bool {
        if self.reported.is_some_and(|at| at.elapsed() < NEWS) {
            return false;
        }
        self.reported = Some(Instant::now());
        log::warn!("{lost} lines of the access log were lost: {why}");
        true
    }
}

/// The side that ended a WebSocket.
const fn ended_by(cause: &Cause) -> &'static str {
    match cause {
        Cause::Peer | Cause::Finished | Cause::Truncated => "client",
        Cause::Io(_) => "network",
        _ => "server",
    }
}

/// An entry for people. Texts of the client are escaped.
fn text(time: jiff::Timestamp, access: &Access<'_>) -> String {
    let Access { peer, status, traffic, .. } = access;
    let (method, path) = (access.method.map_or("-", |method| method.as_str()), access.path.unwrap_or("-"));
    let status = status.map_or_else(|| "-".to_owned(), |status| status.as_u16().to_string());
    let mut line = format!("{time:.3} {peer} {:?} {status}", format_args!("{method} {path}").to_string());
    line += &format!(" seconds={:.3} bytes={}/{}", access.duration.as_secs_f64(), traffic.bytes_in, traffic.bytes_out);
    if let Some(closed) = access.closed {
        let (code, by, cause) = (closed.code.get(), ended_by(&closed.cause), closed.cause.name());
        let (received, sent) = (traffic.messages_in, traffic.messages_out);
        line += &format!(" messages={received}/{sent} code={code} by={by} cause={cause}");
    }
    if access.is_cut {
        line += " cut";
    }
    if let Some(version) = access.tls_version {
        line += &format!(" tls={version}");
    }
    if access.http2 {
        line += " http=2";
    }
    if let Some(direct) = access.direct {
        line += &format!(" direct={direct}");
    }
    for (name, note) in access.notes.iter() {
        line += &match note {
            Note::Text(text) => format!(" {name}={}", quoted(text)),
            Note::Time(time) => format!(" {name}={:.3}", time.as_secs_f64()),
        };
    }
    line += &format!(" agent={:?}", access.user_agent.unwrap_or("-"));
    // The address of a Unix socket may be any path.
    format!("{}\n", one_line(&line))
}

/// A text as one word, for programs that part the line at blanks.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("{text:?}") }
}

/// An entry for collectors.
fn object(time: jiff::Timestamp, access: &Access<'_>) -> String {
    let traffic = &access.traffic;
    let mut entry = json!({
        "time": format!("{time:.3}"),
        "peer": access.peer.to_string(),
        "direct": access.direct.map(ToString::to_string),
        "method": access.method.map(|method| method.as_str()),
        "path": access.path,
        "status": access.status.map(|status| status.as_u16()),
        "cut": access.is_cut,
        "seconds": access.duration.as_secs_f64(),
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "tls": access.tls_version.map(|version| version.to_string()),
        "http2": access.http2,
        "user_agent": access.user_agent,
    });
    let Some(fields) = entry.as_object_mut() else { return String::new() };
    for (name, note) in access.notes.iter() {
        let value = match note {
            Note::Text(text) => serde_json::Value::from(&**text),
            Note::Time(time) => time.as_secs_f64().into(),
        };
        fields.insert(name.to_owned(), value);
    }
    if let Some(closed) = access.closed {
        fields.insert("messages_in".to_owned(), traffic.messages_in.into());
        fields.insert("messages_out".to_owned(), traffic.messages_out.into());
        fields.insert("code".to_owned(), closed.code.get().into());
        fields.insert("by".to_owned(), ended_by(&closed.cause).into());
        fields.insert("cause".to_owned(), closed.cause.name().into());
    }
    output::json_line(&entry)
}

#[cfg(test)]
mod tests {
    use super::{Appended, append, write};
    use crate::output::Target as _;
    use std::io;

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_cuts_a_line_only_where_it_takes_a_part_of_it() {
        for (room, cut) in [(0, false), (3, true), (4, false), (6, true)] {
            let mut is_cut = false;
            let error = write(&mut Disk(room), b"one\ntwo\n", &mut is_cut).unwrap_err();
            assert_eq!((error.kind(), is_cut), (io::ErrorKind::StorageFull, cut), "{room}");
        }
        let mut is_cut = true;
        write(&mut Disk(0), b"two\n", &mut is_cut).unwrap_err();
        assert!(is_cut, "nothing has changed");
        write(&mut Disk(5), b"\ntwo\n", &mut is_cut).unwrap();
        assert!(!is_cut);
    }

    #[test]
    fn the_line_behind_a_part_of_one_begins_anew() {
        let path = std::env::temp_dir().join(format!("taut-access-{}", std::process::id()));
        std::fs::write(&path, "on").unwrap();
        let file = append(&path).unwrap();
        let mut log = Appended { path: path.clone(), file, is_cut: true, reported: None };
        log.reopen();
        log.write(b"two\n").unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "on\ntwo\nthree\n");
        log.is_cut = true;
        std::fs::remove_file(&path).unwrap();
        log.reopen();
        log.write(b"four\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "four\n");
    }
}
