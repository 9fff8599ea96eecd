use super::batch::{Batch, messages};
use crate::Error;
use crate::cpu::timed;
use crate::payload::Payload;
use std::time::Duration;
use tautline::layers::buf::{Buf, Pool};
use tautline::layers::tls::{Content, Engine, Opened, Session};
use tautline::layers::ws::{Decoder, Encoder, Event, Header, Opcode, Role};
use tautline::{Kind, Message};
use tautline_replicas::windows::{EngineEnd, handshake};

/// Size from which on a payload is sealed without being copied to the cork, as in a loop.
const LARGE: usize = 16 << 10;

/// Both ends of a connection in memory; the server's end is measured.
pub(super) struct Path<S> {
    server: End<S>,
    client: End<S>,
    payload: Payload,
    /// Messages in a batch, and messages before it.
    messages: usize,
    before: u64,
    /// Ciphertext to the server, and ciphertext from it.
    wire: Buf,
    out: Buf,
}

/// One end of the connection.
struct End<S> {
    session: S,
    decoder: Decoder,
    encoder: Encoder,
    pool: Pool,
    scratch: Buf,
    cork: Buf,
}

impl<S: Session> End<S> {
    fn new(session: S, role: Role, size: usize) -> Self {
        Self {
            session,
            decoder: Decoder::new(role, size),
            encoder: Encoder::new(role),
            pool: Pool::new(1 << 20),
            scratch: Buf::new(),
            cork: Buf::new(),
        }
    }

    /// Opens and decodes all of `wire`. `each` gets every message, with the rest of this end to answer it.
    fn read(
        &mut self,
        wire: &mut [u8],
        out: &mut Buf,
        mut each: impl FnMut(&Message<'_>, Answer<'_, S>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut used = 0;
        while used < wire.len() {
            let rest = &mut wire[used..];
            let opened = self.session.open(rest, &mut self.scratch, out);
            let Opened { used: read, content } = opened.map_err(|error| Error::Failed(format!("open: {error}")))?;
            used += read;
            let plain = match content {
                Content::Data(plain) => plain.bytes(rest, &mut self.scratch),
                Content::Control => continue,
                Content::Partial | Content::Closed => return Err(Error::Failed("a record was cut".to_owned())),
            };
            let mut at = 0;
            while at < plain.len() {
                let decoded = self.decoder.decode(&mut plain[at..], &mut self.pool);
                let decoded = decoded.map_err(|error| Error::Failed(format!("decode: {error}")))?;
                at += decoded.used;
                let Some(event) = decoded.event else { break };
                let Event::Message(message) = event else {
                    return Err(Error::WrongReply("a frame was not a message".to_owned()));
                };
                // The decoder borrows the pool only for its call, so the encoder may use it now.
                let answer = Answer {
                    session: &mut self.session,
                    encoder: &mut self.encoder,
                    pool: &mut self.pool,
                    cork: &mut self.cork,
                    out: &mut *out,
                };
                each(&message, answer)?;
                self.decoder.recycle(&mut self.pool);
            }
        }
        Ok(())
    }

    fn answer<'a>(&'a mut self, out: &'a mut Buf) -> Answer<'a, S> {
        let Self { session, encoder, pool, cork, .. } = self;
        Answer { session, encoder, pool, cork, out }
    }
}

/// Sending half of an end.
struct Answer<'a, S> {
    session: &'a mut S,
    encoder: &'a mut Encoder,
    pool: &'a mut Pool,
    cork: &'a mut Buf,
    out: &'a mut Buf,
}

impl<S: Session> Answer<'_, S> {
    /// Frames and seals one message, in its own records.
    fn send(self, kind: Kind, payload: &[u8], role: Role) -> Result<(), Error> {
        let sealed = if role == Role::Server && payload.len() >= LARGE {
            let header =
                Header { fin: true, rsv1: false, opcode: Opcode::from(kind), key: None, len: payload.len() as u64 };
            let mut bytes = [0; Header::MAX_LEN];
            let len = header.encode_to(&mut bytes);
            self.session.seal(&[&bytes[..len], payload], self.out)
        } else {
            self.encoder
                .message(kind, payload, false, || [0x37, 0xfa, 0x21, 0x3d], self.cork, self.pool)
                .map_err(|error| Error::Failed(format!("encode: {error}")))?;
            let sealed = self.session.seal(&[self.cork.filled()], self.out);
            self.cork.clear();
            sealed
        };
        sealed.map_err(|error| Error::Failed(format!("seal: {error}")))
    }
}

impl<S: Session> Path<S> {
    pub(super) fn new<E: Engine<Session = S>>(client: &E, server: &E, size: usize) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("handshake in memory: {error}"));
        let mut client = EngineEnd::new(client.connect("localhost").map_err(|error| failed(&error))?);
        let mut server = EngineEnd::new(server.accept().map_err(|error| failed(&error))?);
        handshake([&mut client, &mut server])?;
        Ok(Self {
            server: End::new(server.session, Role::Server, size),
            client: End::new(client.session, Role::Client, size),
            payload: Payload::new(size),
            messages: messages(size),
            before: 0,
            wire: Buf::new(),
            out: Buf::new(),
        })
    }
}

impl<S: Session> Batch for Path<S> {
    fn run(&mut self) -> Result<(Duration, usize), Error> {
        let Self { server, client, payload, messages, before, wire, out } = self;
        // `wire` may begin with records of the client's session, which must keep their order.
        for number in 0..*messages as u64 {
            let message = payload.stamp(*before + number);
            client.answer(wire).send(Kind::Binary, message, Role::Client)?;
        }
        let (took, ()) = timed(|| {
            server.read(wire.filled_mut(), out, |message, answer| {
                answer.send(message.kind(), message.data(), Role::Server)
            })
        })?;
        wire.clear();
        let mut number = *before;
        client.read(out.filled_mut(), wire, |message, _| {
            let is_right = payload.matches(number, 0, message.data()) && message.data().len() == payload.len();
            number += 1;
            if is_right { Ok(()) } else { Err(Error::WrongReply("other bytes than were sent".to_owned())) }
        })?;
        out.clear();
        *before += *messages as u64;
        if number == *before {
            Ok((took, *messages))
        } else {
            Err(Error::WrongReply("a message is missing".to_owned()))
        }
    }
}
