//! The outcome of an attack.

use crate::wire::{self, Frame};

/// The acts of a server, as far as they were noticed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The status and the head of the HTTP answer.
    pub(crate) status: Option<u16>,
    pub(crate) head: String,
    pub(crate) frames: Vec<Frame>,
    /// The number of the alert, if there was a fatal one.
    pub(crate) alert: Option<u8>,
    pub(crate) end: Option<End>,
    /// The code of GOAWAY.
    pub(crate) go_away: Option<u32>,
    /// The codes by which streams were reset.
    pub(crate) resets: Vec<u32>,
    /// Streams whose direction of the server has ended.
    pub(crate) ended: usize,
    /// A program's finding.
    pub(crate) word: &'static str,
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Reset,
}

impl Seen {
    /// The code of the close frame: 0 if it has none.
    pub(crate) fn close(&self) -> Option<u16> {
        let frame = self.frames.iter().find(|frame| frame.first == wire::CLOSE)?;
        Some(frame.payload.first_chunk().map_or(0, |code| u16::from_be_bytes(*code)))
    }

    /// In words, for the table.
    pub(crate) fn outcome(&self) -> String {
        let mut parts = Vec::new();
        parts.extend((!self.word.is_empty()).then(|| self.word.to_owned()));
        parts.extend(self.status.map(|status| format!("HTTP {status}")));
        let data = self.frames.iter().filter(|frame| frame.first & 0x0f < 8).count();
        parts.extend((data > 0).then(|| if data == 1 { "echo".to_owned() } else { format!("{data} echoes") }));
        let pongs = self.frames.iter().filter(|frame| frame.first == wire::PONG).count();
        parts.extend((pongs > 0).then(|| if pongs == 1 { "pong".to_owned() } else { format!("{pongs} pongs") }));
        parts.extend(self.close().map(|code| format!("close {code}")));
        parts.extend(self.alert.map(|alert| format!("alert {alert}")));
        parts.extend((self.ended > 0).then(|| format!("{} streams ended", self.ended)));
        parts.extend(self.resets.last().map(|code| format!("RST_STREAM {code}")));
        parts.extend(self.go_away.map(|code| format!("GOAWAY {code}")));
        parts.extend(self.end.map(|end| if end == End::Finished { "end".to_owned() } else { "reset".to_owned() }));
        if parts.is_empty() { "open, silent".to_owned() } else { parts.join(", ") }
    }
}
