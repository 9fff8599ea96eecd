use super::source::MAX_MESSAGE;
use tautline::layers::buf::{Buf, Pool};
use tautline::layers::tls::{Content, Handshake, Session};
use tautline::layers::ws::handshake::{HeadLimits, HeadReader, Policy, accept};
use tautline::layers::ws::{Decoder, Encoder, Event, Header, Opcode, Role};
use tautline::{Kind, Message};

/// Bytes of one receive.
pub(super) const RECEIVE: usize = 64 << 10;

/// Payloads of at least this many bytes are sealed without a copy to the cork, as in Tautline's loops.
const LARGE: usize = 16 << 10;

/// The end of a connection, orderly or not. The socket must be closed once `out` is sent.
pub(super) struct Ended;

/// The server's end of a connection: TLS, upgrade, messages. It has no sockets and no threads.
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

/// Buffers of the thread that works on a connection.
pub(super) struct Buffers {
    pool: Pool,
    scratch: Buf,
    cork: Buf,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { pool: Pool::new(2 * MAX_MESSAGE), scratch: Buf::new(), cork: Buf::new() }
    }
}

/// Encodes and seals the answers to a message.
pub(super) struct Reply<'a, S> {
    session: &'a mut S,
    encoder: &'a mut Encoder,
    cork: &'a mut Buf,
    pool: &'a mut Pool,
    out: &'a mut Buf,
}

impl<S: Session> Reply<'_, S> {
    pub(super) fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Ended> {
        if payload.len() < LARGE {
            let key = || [0; 4];
            return self.encoder.message(kind, payload, false, key, self.cork, self.pool).map_err(|_| Ended);
        }
        let mut header = [0; Header::MAX_LEN];
        let head = Header { fin: true, rsv1: false, opcode: Opcode::from(kind), key: None, len: payload.len() as u64 };
        let len = head.encode_to(&mut header);
        self.session.seal(&[self.cork.filled(), &header[..len], payload], self.out).map_err(|_| Ended)?;
        self.cork.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Ended> {
        if !self.cork.is_empty() {
            self.session.seal(&[self.cork.filled()], self.out).map_err(|_| Ended)?;
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

    /// Reads received bytes and returns the number used. Bytes to send are appended to `out`.
    pub(super) fn read(
        &mut self,
        wire: &mut [u8],
        buffers: &mut Buffers,
        out: &mut Buf,
        mut each: impl FnMut(Message<'_>, &mut Reply<'_, S>) -> Result<(), Ended>,
    ) -> Result<usize, Ended> {
        let Self { session, stage, decoder, encoder } = self;
        let Buffers { pool, scratch, cork } = buffers;
        let mut used = 0;
        cork.clear();
        loop {
            if matches!(stage, Stage::Tls) {
                let (read, step) = session.handshake(&mut wire[used..], out).map_err(|_| Ended)?;
                used += read;
                if step == Handshake::Pending {
                    break;
                }
                *stage = Stage::Request(HeadReader::new(HeadLimits::default()), Vec::new());
            }
            let rest = &mut wire[used..];
            let opened = session.open(rest, scratch, out).map_err(|_| Ended)?;
            used += opened.used;
            let plain = match opened.content {
                Content::Data(plain) => plain.bytes(rest, scratch),
                Content::Control => continue,
                Content::Partial => break,
                Content::Closed => return Err(Ended),
            };
            let mut reply = Reply { session: &mut *session, encoder: &mut *encoder, cork, pool, out };
            if let Stage::Request(reader, head) = stage {
                head.extend_from_slice(plain);
                let Some((request, _)) = reader.request(head).map_err(|_| Ended)? else { continue };
                accept(&request, &Policy::default()).map_err(|_| Ended)?.write(reply.cork);
                // Nothing follows the request yet: a client sends no message before it has read the response.
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
    pub(super) fn write(
        &mut self,
        kind: Kind,
        payload: &[u8],
        buffers: &mut Buffers,
        out: &mut Buf,
    ) -> Result<(), Ended> {
        let Self { session, encoder, .. } = self;
        let Buffers { pool, cork, .. } = buffers;
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
    each: &mut impl FnMut(Message<'_>, &mut Reply<'_, S>) -> Result<(), Ended>,
) -> Result<(), Ended> {
    let mut at = 0;
    while at < plain.len() {
        let decoded = decoder.decode(&mut plain[at..], reply.pool).map_err(|_| Ended)?;
        at += decoded.used;
        match decoded.event {
            None => break,
            Some(Event::Message(message)) => each(message, reply)?,
            Some(Event::Ping(payload)) => reply.encoder.pong(payload, || [0; 4], reply.cork).map_err(|_| Ended)?,
            Some(Event::Close(close)) => {
                let close = close.map(|close| (close.code, close.reason));
                let closed = reply.encoder.close(close, || [0; 4], reply.cork);
                closed.map_err(|_| Ended)?;
                reply.flush()?;
                reply.session.close(reply.out);
                return Err(Ended);
            }
            Some(Event::Pong(_) | Event::Chunk { .. }) => {}
        }
        decoder.recycle(reply.pool);
    }
    Ok(())
}
