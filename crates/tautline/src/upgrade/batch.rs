//! Saved connections on their way, many in a frame: one system call for each would be most of the pause.

use super::channel::{Channel, Frame, MOST_FDS, misbehaves};
use super::kind::Kind;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tautline_buf::fields::{put, take};
use tautline_engine::sockets_of;
use zeroize::Zeroizing;

/// Bytes of a frame that is sent at once. The other process restores while this one saves the next ones.
const ENOUGH: usize = 32 << 10;

/// Connections that wait for their frame.
pub(super) struct Batch<'d> {
    content: Zeroizing<Vec<u8>>,
    sockets: Vec<BorrowedFd<'d>>,
}

impl<'d> Batch<'d> {
    pub(super) fn new() -> Self {
        Self { content: Zeroizing::new(Vec::with_capacity(ENOUGH)), sockets: Vec::new() }
    }

    /// Adds connections that move together, and sends the frame if it is full.
    pub(super) fn add(&mut self, channel: &mut Channel, sockets: &[BorrowedFd<'d>], saved: &[u8]) -> io::Result<()> {
        if saved.len() + LEN > ENOUGH {
            self.send(channel)?;
            // A large one goes alone. The buffer never grows, so that it leaves no copy of a key behind.
            let mut alone = Zeroizing::new(Vec::with_capacity(saved.len() + LEN));
            put(saved, &mut alone);
            return channel.send(Kind::Connections, &alone, sockets);
        }
        if self.content.len() + LEN + saved.len() > ENOUGH || self.sockets.len() + sockets.len() > MOST_FDS {
            self.send(channel)?;
        }
        put(saved, &mut self.content);
        self.sockets.extend(sockets);
        Ok(())
    }

    /// Sends all that wait.
    pub(super) fn send(&mut self, channel: &mut Channel) -> io::Result<()> {
        if !self.sockets.is_empty() {
            channel.send(Kind::Connections, &self.content, &self.sockets)?;
            self.content.clear();
            self.sockets.clear();
        }
        Ok(())
    }
}

/// Bytes of the length in front of each connection.
const LEN: usize = 4;

/// The connections of a frame, with their sockets. Two that move together are given together.
pub(super) fn open(frame: Frame, mut each: impl FnMut(Vec<OwnedFd>, &[u8])) -> io::Result<()> {
    let Frame { content, fds, .. } = frame;
    let (mut rest, mut fds) = (&content[..], fds.into_iter());
    while !rest.is_empty() {
        let saved = take(&mut rest).ok_or_else(misbehaves)?;
        let sockets: Vec<OwnedFd> = fds.by_ref().take(sockets_of(saved)).collect();
        if sockets.len() < sockets_of(saved) {
            return Err(misbehaves());
        }
        each(sockets, saved);
    }
    if fds.next().is_none() { Ok(()) } else { Err(misbehaves()) }
}

#[cfg(test)]
mod tests {
    use super::super::channel::{Channel, Frame, MOST_FDS};
    use super::super::kind::Kind;
    use super::{Batch, ENOUGH, open};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use zeroize::Zeroizing;

    /// Sends connections of these lengths, and returns the numbers of connections in each frame.
    fn frames(lens: &[usize]) -> Vec<usize> {
        let (one, two) = UnixStream::pair().unwrap();
        let channel = |stream| Channel::new(stream, Duration::from_secs(20)).unwrap();
        let (mut one, mut two) = (channel(one), channel(two));
        let sent = lens.to_vec();
        let sender = std::thread::spawn(move || {
            let null = File::open("/dev/null").unwrap();
            let mut batch = Batch::new();
            let room = batch.content.capacity();
            for (number, len) in sent.iter().enumerate() {
                batch.add(&mut one, &[null.as_fd()], &vec![number.to_le_bytes()[0]; *len]).unwrap();
            }
            batch.send(&mut one).unwrap();
            batch.send(&mut one).unwrap();
            assert_eq!(batch.content.capacity(), room, "a buffer that grows leaves keys behind");
        });
        let (mut frames, mut number) = (Vec::new(), 0);
        while number < lens.len() {
            let frame = two.receive().unwrap();
            frames.push(frame.fds.len());
            open(frame, |sockets, saved| {
                assert_eq!(sockets.len(), 1);
                assert!(saved == vec![number.to_le_bytes()[0]; lens[number]], "connection {number}");
                number += 1;
            })
            .unwrap();
        }
        sender.join().unwrap();
        assert!(two.receive().is_err(), "nothing more was sent");
        frames
    }

    #[test]
    fn connections_share_frames_in_their_order() {
        assert_eq!(frames(&[0, 1, 500]), [3]);
        assert_eq!(frames(&[500; MOST_FDS]).len(), 4);
        assert_eq!(frames(&[10; MOST_FDS + 1]), [MOST_FDS, 1]);
        assert_eq!(frames(&[7, ENOUGH, 9]), [1, 1, 1]);
        assert_eq!(frames(&[ENOUGH - 4, 0]), [1, 1]);
        assert!(frames(&[]).is_empty());
    }

    /// The first bytes of a saved pair.
    const PAIR: &[u8] = &[5, 2];

    #[test]
    fn no_frame_parts_the_sockets_of_a_pair() {
        let (one, two) = UnixStream::pair().unwrap();
        let channel = |stream| Channel::new(stream, Duration::from_secs(20)).unwrap();
        let (mut one, mut two) = (channel(one), channel(two));
        let null = File::open("/dev/null").unwrap();
        let mut batch = Batch::new();
        batch.add(&mut one, &[null.as_fd()], b"one").unwrap();
        for _ in 0..MOST_FDS / 2 + 1 {
            batch.add(&mut one, &[null.as_fd(); 2], PAIR).unwrap();
        }
        batch.send(&mut one).unwrap();
        for expected in [MOST_FDS / 2 + 1, 1] {
            let mut seen = 0;
            open(two.receive().unwrap(), |sockets, saved| {
                assert_eq!(sockets.len(), if saved == PAIR { 2 } else { 1 });
                seen += 1;
            })
            .unwrap();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn frames_with_other_lengths_are_errors() {
        let null = File::open("/dev/null").unwrap();
        let open = |content: &[u8], fds: usize| {
            let fds = (0..fds).map(|_| null.as_fd().try_clone_to_owned().unwrap()).collect();
            let content = Zeroizing::new(content.to_vec());
            open(Frame { kind: Kind::Connections, content, fds }, |_, _| {})
        };
        assert!(open(&[0, 0, 0, 1, 7], 1).is_ok());
        for (content, fds) in [
            (&[0, 0, 0, 1, 7][..], 2),
            (&[0, 0, 0, 1, 7], 0),
            (&[0, 0, 0, 2, 7], 1),
            (&[0, 0, 0], 1),
            (&[255; 9], 1),
            (&[0, 0, 0, 2, 5, 2], 1),
        ] {
            assert!(open(content, fds).is_err(), "{content:?}");
        }
    }
}
