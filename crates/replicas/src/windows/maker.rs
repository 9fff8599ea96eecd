use super::end::End;
use tautline::layers::buf::Buf;
use tautline_measure::Error;

/// Makes both ends of connections, each with a full handshake.
pub struct Maker(Box<Make>);

type Make = dyn Fn(Side) -> Result<Box<dyn End>, Error> + Send + Sync;

/// Role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The accepting end.
    Server,
    /// The connecting end; it expects the name `localhost`.
    Client,
}

impl Maker {
    pub(super) fn of(make: impl Fn(Side) -> Result<Box<dyn End>, Error> + Send + Sync + 'static) -> Self {
        Self(Box::new(make))
    }

    /// One end, before its handshake.
    pub fn end(&self, side: Side) -> Result<Box<dyn End>, Error> {
        (self.0)(side)
    }

    /// Both ends after a handshake in memory, the client's first.
    pub fn pair(&self) -> Result<[Box<dyn End>; 2], Error> {
        let mut ends = [self.end(Side::Client)?, self.end(Side::Server)?];
        let [client, server] = &mut ends;
        handshake([&mut **client, &mut **server])?;
        Ok(ends)
    }
}

/// Handshakes in memory, the client's end first.
pub fn handshake(ends: [&mut dyn End; 2]) -> Result<(), Error> {
    let mut wires = [Vec::new(), Vec::new()];
    let mut done = [false; 2];
    // Each flight takes a turn. A handshake has three flights, and five if the group changes.
    for turn in 0..12 {
        let at = turn % 2;
        let mut wire = std::mem::take(&mut wires[at]);
        let mut out = Buf::new();
        let mut used = 0;
        if !done[at] {
            (used, done[at]) = ends[at].handshake(&mut wire, &mut out)?;
        }
        while used < wire.len() {
            // Records that a server sends behind its handshake.
            let read = ends[at].open(&mut wire[used..], &mut out, &mut |_| ())?;
            if read == 0 {
                break;
            }
            used += read;
        }
        wires[1 - at].extend_from_slice(out.filled());
        wire.drain(..used);
        wire.append(&mut wires[at]);
        wires[at] = wire;
    }
    match done {
        [true, true] => Ok(()),
        _ => Err(Error::Failed("a handshake in memory did not complete".to_owned())),
    }
}
