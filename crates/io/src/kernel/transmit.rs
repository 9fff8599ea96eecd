use super::{Info, Socket};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{DATA, HEAD, NEW_KEYS, frame};

/// Longest content of one record.
const MAX_PLAIN: usize = 16_384;

/// Most records of one key: AES-GCM allows 2^24.5 (RFC 8446, section 5.5). Sessions change keys at half of it, if the
/// kernel can replace them.
const MOST_RECORDS: u64 = 1 << 24;

/// Number of records after which the kernel is asked for its own count. Short of memory, it makes more than one record
/// of 16 KiB of data.
const ASK_EVERY: u64 = 1 << 20;

/// A direction whose records the kernel seals.
pub(crate) struct Transmit {
    /// Bytes of the current data frame that are still to be sent.
    left: usize,
    /// Number of records that the key has protected, as counted here.
    records: u64,
    ask_at: u64,
    info: Info,
    /// Later keys, one for each [`NEW_KEYS`] frame to come.
    next: VecDeque<Info>,
}

impl Transmit {
    /// Gives the kernel the first keys.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub(crate) fn begin(info: Info, socket: &impl Socket) -> Result<Self, Errno> {
        socket.set(&info)?;
        let records = info.sequence();
        Ok(Self { left: 0, records, ask_at: records + ASK_EVERY, info, next: VecDeque::new() })
    }

    /// Keeps later keys for their [`NEW_KEYS`] frame.
    pub(crate) fn give(&mut self, info: Info) {
        self.next.push_back(info);
    }

    /// Sends frames until the kernel has no room for more.
    ///
    /// # Errors
    /// As send(2), and once a key is used up.
    pub(crate) fn send(&mut self, socket: &impl Socket, buf: &mut Buf) -> io::Result<()> {
        while !buf.is_empty() {
            let sent = if self.left > 0 { self.send_data(socket, buf) } else { self.send_frame(socket, buf) };
            match sent {
                Ok(true) => {}
                Ok(false) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::KEYEXPIRED) => return Err(used_up()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Sends a part of the current data frame. Returns whether there may be room for more.
    fn send_data(&mut self, socket: &impl Socket, buf: &mut Buf) -> Result<bool, Errno> {
        let data = &buf.filled()[..self.left.min(buf.len())];
        let sent = socket.send(DATA, data)?;
        self.count(sent, socket)?;
        buf.take(sent);
        self.left -= sent;
        Ok(self.left == 0)
    }

    fn send_frame(&mut self, socket: &impl Socket, buf: &mut Buf) -> Result<bool, Errno> {
        let (kind, len) = frame(buf.filled()).ok_or(Errno::INVAL)?;
        match kind {
            DATA => {
                buf.take(HEAD);
                self.left = len;
            }
            NEW_KEYS => {
                let info = self.next.pop_front().ok_or(Errno::INVAL)?;
                socket.set(&info)?;
                self.records = info.sequence();
                self.ask_at = self.records + ASK_EVERY;
                self.info = info;
                buf.take(HEAD);
            }
            kind => {
                let content = buf.filled().get(HEAD..HEAD + len).ok_or(Errno::INVAL)?;
                if socket.send(kind, content)? != len {
                    return Err(Errno::IO);
                }
                self.count(len, socket)?;
                buf.take(HEAD + len);
            }
        }
        Ok(true)
    }

    fn count(&mut self, sent: usize, socket: &impl Socket) -> Result<(), Errno> {
        self.records += sent.div_ceil(MAX_PLAIN) as u64;
        if self.records >= self.ask_at {
            self.records = socket.sequence(&self.info).unwrap_or(self.records);
            self.ask_at = self.records + ASK_EVERY;
        }
        if self.records > MOST_RECORDS { Err(Errno::KEYEXPIRED) } else { Ok(()) }
    }
}

fn used_up() -> io::Error {
    io::Error::other("the connection's key is used up, and the kernel has no other: Linux takes others from 6.14 on")
}
