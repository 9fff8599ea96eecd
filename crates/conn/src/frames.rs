//! The receiving path behind TLS: plaintext → frames → messages.

use crate::outbound::Outbound;
use crate::verdict::Stop;
use core::ops::ControlFlow;
use tautline_buf::Pool;
use tautline_ws::deflate::{DeflateConfig, DeflateParams, Inflater};
use tautline_ws::{Close, CloseCode, Decoded, Decoder, Event, Role};

/// The receiver of a connection's messages and control frames.
///
/// That of a loop calls the handler. That of a connection without I/O keeps one event for its caller.
pub trait Visitor {
    /// Unused buffers, for a message that does not lie in one piece.
    fn pool(&mut self) -> &mut Pool;

    /// Whether another frame is to be decoded. `used` bytes of the plaintext were used so far.
    fn wants_frame(&mut self, used: usize) -> bool;

    /// A frame was decoded, or as much of it as has arrived.
    #[inline]
    fn decoded(&mut self) {}

    /// Takes an event. All but the peer's close frame come here.
    ///
    /// After `Break` no further frame is decoded, and the bytes of this event stay where they are. They lie in the decoder
    /// if it [holds](Decoder::held) them. Otherwise they are the last ones that were used of the plaintext.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn visit(&mut self, event: Event<'_>) -> Result<ControlFlow<()>, Stop>;
}

/// The result of [`read`].
#[derive(Debug, PartialEq, Eq)]
pub enum Read<T = usize> {
    /// The number of bytes that were used. If others are left, the visitor has stopped.
    Used(T),
    /// The peer's close frame, with its code and reason. Nothing behind it is read (RFC 6455, section 5.5.1).
    Closed(CloseCode, String),
}

/// Prepares an open connection for messages of up to `max_message` bytes, which it takes in pieces if `streaming` is set.
/// `deflate` has what was negotiated, and our terms.
pub fn open(
    decoder: &mut Decoder,
    out: &mut Outbound,
    deflate: Option<&(DeflateParams, DeflateConfig)>,
    max_message: usize,
    streaming: bool,
) {
    if let Some((params, config)) = deflate {
        *decoder = self::decoder(out.role(), max_message, deflate);
        out.set_deflate(*params, config);
    }
    decoder.set_streaming(streaming);
}

/// The decoder of an open connection, with messages of up to `max_message` bytes. `deflate` has what was negotiated, and our terms.
#[must_use]
pub fn decoder(role: Role, max_message: usize, deflate: Option<&(DeflateParams, DeflateConfig)>) -> Decoder {
    let decoder = Decoder::new(role, max_message);
    match deflate {
        Some((params, config)) => decoder.with_inflater(Inflater::new(params, role, config.max_ratio)),
        None => decoder,
    }
}

/// Decodes frames, where they lie, and calls `visitor` with what they hold.
///
/// # Errors
/// The peer broke the protocol, or the visitor cannot go on.
#[inline]
pub fn read<V: Visitor>(decoder: &mut Decoder, plain: &mut [u8], visitor: &mut V) -> Result<Read, Stop> {
    let mut used = 0;
    while used < plain.len() && visitor.wants_frame(used) {
        let Decoded { used: more, event } = decoder.decode(&mut plain[used..], visitor.pool())?;
        visitor.decoded();
        used += more;
        match event {
            None => break,
            Some(Event::Close(close)) => {
                let (code, reason) = code_and_reason(close);
                decoder.recycle(visitor.pool());
                return Ok(Read::Closed(code, reason));
            }
            Some(event) => {
                if visitor.visit(event)?.is_break() {
                    break;
                }
            }
        }
        decoder.recycle(visitor.pool());
    }
    Ok(Read::Used(used))
}

/// Code and reason of a close frame.
fn code_and_reason(close: Option<Close<'_>>) -> (CloseCode, String) {
    close.map_or((CloseCode::NO_STATUS, String::new()), |Close { code, reason }| (code, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Read, Visitor, read};
    use crate::verdict::Stop;
    use core::ops::ControlFlow;
    use tautline_buf::Pool;
    use tautline_ws::{CloseCode, Decoder, Event, Role};

    /// Notes texts. It stops after `most` of them, and wants no frame behind `until`.
    struct Notes {
        pool: Pool,
        texts: Vec<String>,
        most: usize,
        until: usize,
    }

    impl Visitor for Notes {
        fn pool(&mut self) -> &mut Pool {
            &mut self.pool
        }

        fn wants_frame(&mut self, used: usize) -> bool {
            used < self.until
        }

        fn visit(&mut self, event: Event<'_>) -> Result<ControlFlow<()>, Stop> {
            if let Event::Message(message) = event {
                self.texts.push(message.text().unwrap_or_default().to_owned());
            }
            Ok(if self.texts.len() == self.most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        }
    }

    fn notes(most: usize) -> (Decoder, Notes) {
        let notes = Notes { pool: Pool::new(1 << 20), texts: Vec::new(), most, until: usize::MAX };
        (Decoder::new(Role::Client, 100), notes)
    }

    /// Frames of a server: `a`, a ping, `bc` in two fragments, `d`, `e`.
    const FRAMES: &[u8] = b"\x81\x01a\x89\x00\x01\x01b\x80\x01c\x81\x01d\x81\x01e";

    #[test]
    fn a_visitor_stops_within_the_plaintext() {
        for (most, used, texts) in [(1, 3, "a"), (2, 11, "a bc"), (9, 17, "a bc d e")] {
            let (mut decoder, mut notes) = notes(most);
            let mut plain = FRAMES.to_vec();
            assert_eq!(read(&mut decoder, &mut plain, &mut notes).ok(), Some(Read::Used(used)));
            assert_eq!(notes.texts.join(" "), texts);
        }
    }

    #[test]
    fn a_visitor_is_asked_before_each_frame() {
        let (mut decoder, mut notes) = notes(9);
        notes.until = 5;
        assert_eq!(read(&mut decoder, &mut FRAMES.to_vec(), &mut notes).ok(), Some(Read::Used(5)));
        assert_eq!(notes.texts, ["a"]);
    }

    #[test]
    fn an_event_on_which_the_visitor_stops_keeps_its_bytes() {
        let (mut decoder, mut notes) = notes(2);
        let mut plain = FRAMES.to_vec();
        assert_eq!(read(&mut decoder, &mut plain, &mut notes).ok(), Some(Read::Used(11)));
        assert_eq!(decoder.held(), Some(&b"bc"[..]));
        notes.most = 3;
        assert_eq!(read(&mut decoder, &mut plain[11..], &mut notes).ok(), Some(Read::Used(3)));
        assert_eq!((decoder.held(), &plain[13..14]), (None, &b"d"[..]));
    }

    #[test]
    fn nothing_is_read_behind_a_close_frame() {
        let (mut decoder, mut notes) = notes(9);
        let mut plain = [FRAMES, b"\x88\x04\x03\xe8ok\x81\x01f"].concat();
        plain.drain(..3);
        assert_eq!(read(&mut decoder, &mut plain, &mut notes).ok(), Some(Read::Closed(CloseCode::NORMAL, "ok".into())));
        assert_eq!(notes.texts, ["bc", "d", "e"]);
    }
}
