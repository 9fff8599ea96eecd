//! Recordings: the messages of a connection in a file, one JSON object on a line.

use super::line::Line;
use crate::failure::Failure;
use crate::files;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A message of a recording, as the file has it.
#[derive(Serialize, Deserialize)]
struct Entry<'e> {
    /// Seconds since the beginning.
    at: f64,
    sent: bool,
    #[serde(skip_serializing_if = "Option::is_none", borrow, default)]
    text: Option<Cow<'e, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow, default)]
    hex: Option<Cow<'e, str>>,
}

/// A message of a recording.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) at: Duration,
    pub(super) is_sent: bool,
    pub(super) line: Line,
}

/// Writes a recording. Clones are the same one.
#[derive(Clone)]
pub(super) struct Recorder(Arc<Mutex<Writing>>);

struct Writing {
    path: PathBuf,
    file: BufWriter<File>,
    began: Instant,
}

impl Recorder {
    /// Makes the file, in place of one that is there.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let cannot = |error| Failure::usage(format!("--record: cannot make the file {}: {error}", path.display()));
        let file = BufWriter::new(File::create(path).map_err(cannot)?);
        Ok(Self(Arc::new(Mutex::new(Writing { path: path.to_owned(), file, began: Instant::now() }))))
    }

    pub(super) fn sent(&self, line: &Line) -> Result<(), Failure> {
        match line {
            Line::Text(text) => self.write(true, Some(text), &[]),
            Line::Binary(bytes) => self.write(true, None, bytes),
        }
    }

    pub(super) fn received(&self, text: Option<&str>, data: &[u8]) -> Result<(), Failure> {
        self.write(false, text, data)
    }

    fn write(&self, sent: bool, text: Option<&str>, data: &[u8]) -> Result<(), Failure> {
        let mut writing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hex = text.is_none().then(|| HEXLOWER.encode(data).into());
        let at = (writing.began.elapsed().as_secs_f64() * 1e6).round() / 1e6;
        let entry = Entry { at, sent, text: text.map(Into::into), hex };
        let written = serde_json::to_writer(&mut writing.file, &entry).map_err(Into::into);
        // A recording is complete up to the end, however that comes.
        let written = written.and_then(|()| writing.file.write_all(b"\n")).and_then(|()| writing.file.flush());
        written.map_err(|error: std::io::Error| {
            Failure::failed(format!("--record: cannot write the file {}: {error}", writing.path.display()))
        })
    }
}

/// Reads a recording.
pub(super) fn read(path: &Path) -> Result<Vec<Recorded>, Failure> {
    let text = files::read(path, "recording")?;
    let wrong = |number: usize, why: &dyn std::fmt::Display| {
        Failure::usage(format!("--replay: line {number} of {} is no message of a recording: {why}", path.display()))
    };
    let lines = text.split(|byte| *byte == b'\n').zip(1..).filter(|(line, _)| !line.is_empty());
    let parsed = lines.map(|(line, number)| {
        let entry: Entry<'_> = serde_json::from_slice(line).map_err(|error| wrong(number, &error))?;
        let at = Duration::try_from_secs_f64(entry.at).map_err(|error| wrong(number, &error))?;
        let line = match (entry.text, entry.hex) {
            (Some(text), None) => Line::Text(text.into_owned()),
            (None, Some(hex)) => {
                let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes());
                Line::Binary(bytes.map_err(|error| wrong(number, &error))?)
            }
            _ => return Err(wrong(number, &"it needs either text or hex")),
        };
        Ok(Recorded { at, is_sent: entry.sent, line })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("taut-recording-{}", std::process::id()));
        let recorder = Recorder::create(&path).unwrap();
        recorder.sent(&Line::Text("a \"b\" \u{e9}\n".to_owned())).unwrap();
        recorder.received(None, &[0, 255]).unwrap();
        let read_back = read(&path).unwrap();
        assert_eq!(read_back[0].line, Line::Text("a \"b\" \u{e9}\n".to_owned()));
        assert_eq!(read_back[1].line, Line::Binary(vec![0, 255]));
        assert_eq!((read_back[0].is_sent, read_back[1].is_sent, read_back.len()), (true, false, 2));
        assert!(read_back[0].at <= read_back[1].at);
        for bad in ["{}", "{\"at\":-1,\"sent\":true,\"text\":\"\"}", "{\"at\":0,\"sent\":true,\"hex\":\"x\"}", "text"] {
            std::fs::write(&path, format!("{{\"at\":0,\"sent\":true,\"text\":\"\"}}\n{bad}\n")).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("line 2 of"), "{bad}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
