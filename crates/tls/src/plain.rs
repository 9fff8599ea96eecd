//! The null engine: bytes pass unchanged.

use crate::{Content, Facts, Handshake, Opened};
use tautline_window::Buf;

/// No TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Engine;

/// A connection without TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session;

impl crate::Engine for Engine {
    type Session = Session;

    fn name(&self) -> &'static str {
        "plain"
    }

    fn accept(&self) -> Result<Session, crate::Error> {
        Ok(Session)
    }

    fn connect(&self, _host: &str) -> Result<Session, crate::Error> {
        Ok(Session)
    }
}

impl crate::Session for Session {
    const PASSTHROUGH: bool = true;

    fn handshake(&mut self, _wire: &mut [u8], _out: &mut Buf) -> Result<(usize, Handshake), crate::Error> {
        Ok((0, Handshake::Complete))
    }

    fn open<'b>(
        &mut self,
        wire: &'b mut [u8],
        _scratch: &'b mut Buf,
        _out: &mut Buf,
    ) -> Result<Opened<'b>, crate::Error> {
        let used = wire.len();
        let content = if used == 0 { Content::Partial } else { Content::Data(wire) };
        Ok(Opened { used, content })
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), crate::Error> {
        for chunk in plain {
            out.put(chunk);
        }
        Ok(())
    }

    fn close(&mut self, _out: &mut Buf) {}

    fn facts(&self) -> Facts {
        Facts::default()
    }
}
