use super::end::{End, EngineEnd, RECORD};
use super::maker::{Maker, Side};
use super::variant::{Strategy, Variant, flavours};
use tautline::layers::buf::Buf;
use tautline::layers::tls::Engine as _;
use tautline::layers::tls_libssl::{Engine, Session};
use tautline::{ClientConfig, ServerConfig};
use tautline_measure::Error;

/// A library of the OpenSSL family, or one with the same interface.
struct Libssl {
    end: EngineEnd<Session>,
    /// Memory that records are opened into; without it they are opened in place.
    direct: Option<Vec<u8>>,
}

pub(super) fn maker(variant: Variant, server: &ServerConfig, client: &ClientConfig) -> Result<Maker, Error> {
    let flavour = flavours().find(|flavour| Some(flavour.name()) == variant.tls);
    let flavour = flavour.ok_or_else(|| Error::Usage(format!("{} is not in this build", variant.name())))?;
    let engine = Engine::new(flavour, Some(server), Some(client)).map_err(Error::failed)?;
    let strategy = variant.strategy;
    Ok(Maker::of(move |side| {
        let session = match side {
            Side::Server => engine.accept(),
            Side::Client => engine.connect("localhost"),
        };
        let mut session = session.map_err(Error::failed)?;
        if strategy == Strategy::MemoryBio {
            session.use_memory_bio().map_err(Error::failed)?;
        }
        let direct = (strategy == Strategy::Direct).then(|| vec![0; RECORD]);
        Ok(Box::new(Libssl { end: EngineEnd::new(session), direct }))
    }))
}

impl End for Libssl {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        self.end.handshake(wire, out)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        self.end.seal(plain, out)
    }

    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let Some(place) = &mut self.direct else { return self.end.open(wire, out, take) };
        let opened = self.end.session.open_into(wire, place, out).map_err(Error::failed)?;
        let (used, len) = opened.unwrap_or_default();
        take(&place[..len]);
        Ok(used)
    }

    fn read(&mut self, wire: &mut [u8], place: &mut [u8], out: &mut Buf) -> Result<(usize, usize), Error> {
        if self.direct.is_none() {
            return self.end.read(wire, place, out);
        }
        let opened = self.end.session.open_into(wire, place, out).map_err(Error::failed)?;
        Ok(opened.unwrap_or_default())
    }

    fn spill_all(&mut self) {
        self.end.session.inject(true, false);
    }
}
