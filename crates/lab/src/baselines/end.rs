use super::{MAX_MESSAGE, Source};
use tautline::layers::tls::{Content, Handshake, Session};
use tautline::layers::window::{Buf, Pool};
use tautline::layers::ws::handshake::{HeadLimits, HeadReader, Policy, accept};
use tautline::layers::ws::{Decoder, Encoder, Event, Header, Opcode, Role};
use tautline::{Kind, Message};

/// From this size on a payload is sealed from where it lies, as our loops do.
const LARGE: usize = 16 << 10;

/// The connection is over, in good order or not: what is in `out` leaves, and it is closed.
pub(super) struct Over;

/// The server's end of a connection: TLS, upgrade, messages. No sockets, no threads.
pub(super) struct End<S> {
    session: S,
    stage: Stage,
    decoder: Decoder,
    encoder: Encoder,
}

enum Stage {
    Tls,
    Request(HeadReader, Vec<u8>),
    Open,
}

/// Memory of the thread that works.
pub(super) struct Room {
    pool: Pool,
    scratch: Buf,
    cork: Buf,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { pool: Pool::new(2 * MAX_MESSAGE), scratch: Buf::new(), cork: Buf::new() }
    }
}

/// The way out, for who gets a message.
pub(super) struct Reply<'a, S> {
    session: &'a mut S,
    encoder: &'a mut Encoder,
    cork: &'a mut Buf,
    pool: &'a mut Pool,
    out: &'a mut Buf,
}

impl<S: Session> Reply<'_, S> {
    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Over> {
        if payload.len() < LARGE {
            let key = || [0; 4];
            return self.encoder.message(kind, payload, false, key, self.cork, self.pool).map_err(|_| Over);
        }
        let mut header = [0; Header::MAX_LEN];
        let head = Header { fin: true, rsv1: false, opcode: Opcode::from(kind), key: None, len: payload.len() as u64 };
        let len = head.encode_to(&mut header);
        self.session.seal(&[self.cork.filled(), &header[..len], payload], self.out).map_err(|_| Over)?;
        self.cork.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Over> {
        if !self.cork.is_empty() {
            self.session.seal(&[self.cork.filled()], self.out).map_err(|_| Over)?;
            self.cork.clear();
        }
        Ok(())
    }
}

impl<S: Session> End<S> {
    pub(super) fn new(session: S) -> Self {
        let (decoder, encoder) = (Decoder::new(Role::Server, MAX_MESSAGE), Encoder::new(Role::Server));
        Self { session, stage: Stage::Tls, decoder, encoder }
    }

    /// Takes what arrived; says how much of it is done with. What it has to send is appended to `out`.
    pub(super) fn read(
        &mut self,
        wire: &mut [u8],
        room: &mut Room,
        out: &mut Buf,
        mut each: impl FnMut(Message<'_>, &mut Reply<'_, S>) -> Result<(), Over>,
    ) -> Result<usize, Over> {
        let Self { session, stage, decoder, encoder } = self;
        let Room { pool, scratch, cork } = room;
        let mut used = 0;
        cork.clear();
        loop {
            if matches!(stage, Stage::Tls) {
                let (read, step) = session.handshake(&mut wire[used..], out).map_err(|_| Over)?;
                used += read;
                if step == Handshake::Pending {
                    break;
                }
                *stage = Stage::Request(HeadReader::new(HeadLimits::default()), Vec::new());
            }
            let opened = session.open(&mut wire[used..], scratch, out).map_err(|_| Over)?;
            used += opened.used;
            let plain = match opened.content {
                Content::Data(plain) => plain,
                Content::Control => continue,
                Content::Partial => break,
                Content::Closed => return Err(Over),
            };
            let mut reply = Reply { session: &mut *session, encoder: &mut *encoder, cork, pool, out };
            if let Stage::Request(reader, head) = stage {
                head.extend_from_slice(plain);
                let Some((request, _)) = reader.request(head).map_err(|_| Over)? else { continue };
                accept(&request, &Policy::default()).map_err(|_| Over)?.write(reply.cork);
                // A client has nothing to say before it has read this.
                reply.flush()?;
                *stage = Stage::Open;
                continue;
            }
            messages(decoder, plain, &mut reply, &mut each)?;
        }
        Reply { session, encoder, cork, pool, out }.flush()?;
        Ok(used)
    }

    /// Seals one message.
    pub(super) fn write(&mut self, kind: Kind, payload: &[u8], room: &mut Room, out: &mut Buf) -> Result<(), Over> {
        let Self { session, encoder, .. } = self;
        let Room { pool, cork, .. } = room;
        cork.clear();
        let mut reply = Reply { session, encoder, cork, pool, out };
        reply.send(kind, payload)?;
        reply.flush()
    }
}

fn messages<S: Session>(
    decoder: &mut Decoder,
    plain: &mut [u8],
    reply: &mut Reply<'_, S>,
    each: &mut impl FnMut(Message<'_>, &mut Reply<'_, S>) -> Result<(), Over>,
) -> Result<(), Over> {
    let mut at = 0;
    while at < plain.len() {
        let decoded = decoder.decode(&mut plain[at..], reply.pool).map_err(|_| Over)?;
        at += decoded.used;
        match decoded.event {
            None => break,
            Some(Event::Message(message)) => each(message, reply)?,
            Some(Event::Ping(payload)) => reply.encoder.pong(payload, || [0; 4], reply.cork).map_err(|_| Over)?,
            Some(Event::Close(close)) => {
                let close = close.map(|close| (close.code, close.reason));
                let closed = reply.encoder.close(close, || [0; 4], reply.cork);
                closed.map_err(|_| Over)?;
                reply.flush()?;
                reply.session.close(reply.out);
                return Err(Over);
            }
            Some(Event::Pong(_) | Event::Chunk { .. }) => {}
        }
        decoder.recycle(reply.pool);
    }
    Ok(())
}

/// Answers a message with itself, or with what it asks for.
pub(super) fn answer<'a>(message: &'a Message<'_>, source: Option<&'a Source>) -> (Kind, &'a [u8]) {
    match source {
        None => (message.kind(), message.data()),
        Some(source) => (Kind::Binary, super::answer(source, message)),
    }
}
