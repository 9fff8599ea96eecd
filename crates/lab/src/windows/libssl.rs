use super::end::{End, Own, RECORD};
use super::{Maker, Side, Strategy, Way, failed};
use crate::Error;
use tautline::layers::tls::Engine as _;
use tautline::layers::tls_libssl::{Engine, Flavour, Session};
use tautline::layers::window::Buf;
use tautline::{ClientConfig, ServerConfig, TlsEngine};

/// A library of the OpenSSL family, or driven like one.
struct Libssl {
    own: Own<Session>,
    /// Where records are opened to, where not to where they lay.
    direct: Option<Vec<u8>>,
}

/// The libraries of this build.
pub(super) fn flavours() -> impl Iterator<Item = Flavour> {
    TlsEngine::all().filter_map(|engine| if let TlsEngine::Libssl(flavour) = engine { Some(flavour) } else { None })
}

pub(super) fn maker(way: Way, server: &ServerConfig, client: &ClientConfig) -> Result<Maker, Error> {
    let flavour = flavours().find(|flavour| Some(flavour.name()) == way.tls);
    let flavour = flavour.ok_or_else(|| Error::Usage(format!("{} is not in this build", way.name())))?;
    let engine = Engine::new(flavour, Some(server), Some(client)).map_err(|error| failed(&error))?;
    let strategy = way.strategy;
    Ok(Maker(Box::new(move |side| {
        let session = match side {
            Side::Server => engine.accept(),
            Side::Client => engine.connect("localhost"),
        };
        let mut session = session.map_err(|error| failed(&error))?;
        if strategy == Strategy::MemoryBio {
            session.use_memory_bio().map_err(|error| failed(&error))?;
        }
        let direct = (strategy == Strategy::Direct).then(|| vec![0; RECORD]);
        Ok(Box::new(Libssl { own: Own::new(session), direct }))
    })))
}

impl End for Libssl {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        self.own.handshake(wire, out)
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        self.own.seal(plain, out)
    }

    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let Some(place) = &mut self.direct else { return self.own.open(wire, out, take) };
        let opened = self.own.session.open_into(wire, place, out).map_err(|error| failed(&error))?;
        let (used, len) = opened.unwrap_or_default();
        take(&place[..len]);
        Ok(used)
    }

    fn read(&mut self, wire: &mut [u8], place: &mut [u8], out: &mut Buf) -> Result<(usize, usize), Error> {
        if self.direct.is_none() {
            return self.own.read(wire, place, out);
        }
        let opened = self.own.session.open_into(wire, place, out).map_err(|error| failed(&error))?;
        Ok(opened.unwrap_or_default())
    }

    fn spill_all(&mut self) {
        self.own.session.inject(true, false);
    }
}
