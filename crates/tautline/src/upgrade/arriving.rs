//! The connections of one old loop, as they come to a loop of the new process.

use super::channel::{Channel, Frame, misbehaves};
use super::kind::Kind;
use super::{batch, ledger};
use crate::erased::ThreadLoop;
use std::io;
use std::time::Duration;
use tautline_engine::Totals;

/// How long the old process may take between two frames.
pub(super) const SAVING: Duration = Duration::from_secs(20);

/// An old loop, and the connections that came from it, by their numbers. Two that move together have one number.
pub(super) struct Arriving {
    pub(super) channel: Channel,
    conns: Vec<Conn>,
}

#[derive(Clone, Copy)]
enum Conn {
    /// The loop here has it under this number.
    Here { number: usize },
    /// The loop here cannot go on with it.
    Refused,
    /// It stays with the old process after all.
    Gone,
}

impl Arriving {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, conns: Vec::new() }
    }

    /// Takes the next frame. After the last one, returns the totals of the old loop.
    pub(super) fn receive(&mut self, shard: &mut dyn ThreadLoop) -> io::Result<Option<Totals>> {
        let frame = self.channel.receive()?;
        match frame.kind {
            Kind::Connections => self.restore(shard, frame)?,
            Kind::Ahead => {
                self.restore(shard, frame)?;
                self.channel.send(Kind::Taken, &[], &[])?;
            }
            Kind::AheadAgain => {
                self.restore_again(shard, &frame)?;
                self.channel.send(Kind::Taken, &[], &[])?;
            }
            Kind::Changed => self.restore_again(shard, &frame)?,
            Kind::Gone => {
                for bytes in frame.content.as_chunks().0 {
                    let conn = self.conns.get_mut(u32::from_be_bytes(*bytes) as usize).ok_or_else(misbehaves)?;
                    undo(shard, conn);
                }
            }
            Kind::End => {
                let totals = Totals::decode(&frame.content)?;
                self.channel.send(Kind::Taken, &self.refused(), &[])?;
                return Ok(Some(totals));
            }
            _ => return Err(misbehaves()),
        }
        Ok(None)
    }

    fn restore(&mut self, shard: &mut dyn ThreadLoop, frame: Frame) -> io::Result<()> {
        batch::open(frame, |sockets, saved| {
            let restored = shard.restore(sockets, saved).map(|number| Conn::Here { number });
            self.conns.push(restored.unwrap_or_else(refused));
        })
    }

    fn restore_again(&mut self, shard: &mut dyn ThreadLoop, frame: &Frame) -> io::Result<()> {
        ledger::open_changes(&frame.content, |number, saved| {
            let conn = self.conns.get_mut(number).ok_or_else(misbehaves)?;
            if let Conn::Here { number } = *conn {
                let restored = shard.restore_again(number, saved).map(|()| Conn::Here { number });
                *conn = restored.unwrap_or_else(refused);
            }
            Ok(())
        })
    }

    /// The numbers of the connections that the loop here cannot go on with.
    fn refused(&self) -> Vec<u8> {
        let refused = self.conns.iter().zip(0_u32..).filter(|(conn, _)| matches!(conn, Conn::Refused));
        refused.flat_map(|(_, number)| number.to_be_bytes()).collect()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as callers have it")]
fn refused(error: io::Error) -> Conn {
    log::info!("a connection stays with the old process: {error}");
    Conn::Refused
}

fn undo(shard: &mut dyn ThreadLoop, conn: &mut Conn) {
    if let Conn::Here { number } = *conn {
        shard.undo_restore(number);
    }
    *conn = Conn::Gone;
}
