use super::{Batch, batch, timed};
use crate::Error;
use crate::payload::Payload;
use std::time::Duration;
use tautline::layers::tls::{Content, Engine, Opened, Session};
use tautline::layers::window::{Buf, Pool};
use tautline::layers::ws::{Decoder, Encoder, Event, Header, Opcode, Role};
use tautline::{Kind, Message};
use tautline_testkit::pair::{Pair, Split};

/// The suite that all compared work uses.
const SUITE: &str = "TLS13_AES_128_GCM_SHA256";

/// From this size on a payload is sealed from where it lies, as a loop does.
const LARGE: usize = 16 << 10;

/// A server's end of a connection in memory, and the client that feeds it.
pub(super) struct Path<S> {
    server: End<S>,
    client: End<S>,
    payload: Payload,
    /// Messages in a batch, and how many there were before it.
    messages: usize,
    before: u64,
    /// Ciphertext to the server, and from it.
    wire: Buf,
    out: Buf,
}

/// One end.
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

    /// Opens and decodes all of `wire`; `each` gets every message and, to answer, the rest of this end.
    fn read(
        &mut self,
        wire: &mut [u8],
        out: &mut Buf,
        mut each: impl FnMut(&Message<'_>, Answer<'_, S>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut used = 0;
        while used < wire.len() {
            let opened = self.session.open(&mut wire[used..], &mut self.scratch, out);
            let Opened { used: read, content } = opened.map_err(|error| Error::Failed(format!("open: {error}")))?;
            used += read;
            let plain = match content {
                Content::Data(plain) => plain,
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
                    return Err(Error::WrongReply("something else than a message".to_owned()));
                };
                // The pool is lent to the decoder only for the call, so the encoder may use it now.
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

/// The way out of an end.
struct Answer<'a, S> {
    session: &'a mut S,
    encoder: &'a mut Encoder,
    pool: &'a mut Pool,
    cork: &'a mut Buf,
    out: &'a mut Buf,
}

impl<S: Session> Answer<'_, S> {
    /// Frames and seals one message, in records of its own.
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
        let failed = |error: &dyn std::fmt::Debug| Error::Failed(format!("handshake in memory: {error:?}"));
        let mut pair = Pair::new(client, server, "localhost").map_err(|error| failed(&error))?;
        pair.handshake(&mut Split::Whole).map_err(|error| failed(&error))?;
        let facts = pair.server.session.facts();
        if facts.suite != SUITE {
            return Err(Error::Failed(format!("the sessions agreed on {}, not on {SUITE}", facts.suite)));
        }
        Ok(Self {
            server: End::new(pair.server.session, Role::Server, size),
            client: End::new(pair.client.session, Role::Client, size),
            payload: Payload::new(size),
            messages: batch(size),
            before: 0,
            wire: Buf::new(),
            out: Buf::new(),
        })
    }
}

impl<S: Session> Batch for Path<S> {
    fn run(&mut self) -> Result<(Duration, usize), Error> {
        let Self { server, client, payload, messages, before, wire, out } = self;
        // Answers of the client's session to what it read before come first: they must keep their order.
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
