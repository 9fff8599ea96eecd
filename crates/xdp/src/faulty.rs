//! Loses and reorders frames, for tests.

use crate::wire::Wire;
use rustix::fd::BorrowedFd;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Faults in each direction, in parts per million of frames. For tests of higher layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that are lost.
    pub lost: u32,
    /// Frames that the next one overtakes.
    pub late: u32,
    /// Seed of the pseudo-random sequence.
    pub seed: u64,
}

/// A wire with the faults of [`Faults`].
pub(crate) struct Faulty<W: Wire> {
    pub(crate) wire: W,
    faults: Option<Faults>,
    state: u64,
    held: Option<W::Frame>,
    late: Option<Vec<u8>>,
}

#[derive(PartialEq, Eq)]
enum Fate {
    Fine,
    Lost,
    Late,
}

impl<W: Wire> Faulty<W> {
    pub(crate) fn new(wire: W, faults: Option<Faults>) -> Self {
        Self { wire, faults, state: faults.map_or(0, |faults| faults.seed), held: None, late: None }
    }

    fn fate(&mut self) -> Fate {
        let Some(faults) = self.faults else { return Fate::Fine };
        // SplitMix64: every seed gives a different sequence.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let dice = (z ^ z >> 31) % 1_000_000;
        if dice < u64::from(faults.lost) {
            Fate::Lost
        } else if dice < u64::from(faults.lost) + u64::from(faults.late) {
            Fate::Late
        } else {
            Fate::Fine
        }
    }

    fn receive_some(&mut self) -> Option<W::Frame> {
        loop {
            let Some(frame) = self.wire.receive() else { return self.held.take() };
            match self.fate() {
                Fate::Lost => self.wire.give_back(frame),
                Fate::Late if self.held.is_none() => self.held = Some(frame),
                _ => return Some(frame),
            }
        }
    }

    fn send_late(&mut self) {
        if let Some(late) = self.late.take() {
            self.wire.send(late.len(), |frame| frame.copy_from_slice(&late));
        }
    }
}

impl<W: Wire> Wire for Faulty<W> {
    type Frame = W::Frame;

    #[inline]
    fn receive(&mut self) -> Option<W::Frame> {
        if self.faults.is_none() { self.wire.receive() } else { self.receive_some() }
    }

    fn bytes<'f>(&self, frame: &'f W::Frame) -> &'f [u8] {
        self.wire.bytes(frame)
    }

    fn stamp(&mut self) -> io::Result<()> {
        self.wire.stamp()
    }

    fn arrival(&self, frame: &mut W::Frame) -> Option<u64> {
        self.wire.arrival(frame)
    }

    fn give_back(&mut self, frame: W::Frame) {
        self.wire.give_back(frame);
    }

    fn recycle(&mut self) {
        self.wire.recycle();
    }

    fn has_room(&mut self) -> bool {
        self.wire.has_room()
    }

    fn send<R>(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        if self.faults.is_none() {
            return self.wire.send(len, fill);
        }
        let fate = self.fate();
        if fate == Fate::Fine {
            let result = self.wire.send(len, fill);
            self.send_late();
            return result;
        }
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        if fate == Fate::Late {
            self.send_late();
            self.late = Some(frame);
        }
        result
    }

    fn flush(&mut self) {
        self.send_late();
        self.wire.flush();
    }

    fn is_readable(&mut self) -> bool {
        self.held.is_some() || self.wire.is_readable()
    }

    fn wait(&mut self, wake: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
        self.wire.wait(wake, timeout)
    }

    fn check(&self) -> io::Result<()> {
        self.wire.check()
    }

    fn claim(&mut self, local: SocketAddr, ours: bool) -> io::Result<()> {
        self.wire.claim(local, ours)
    }
}
