use super::bare::Bare;
use super::buffered;
use super::end::EngineEnd;
#[cfg(feature = "libssl")]
use super::libssl;
use super::maker::{Maker, Side};
use super::variant::{Strategy, Variant};
use tautline::layers::tls::Engine as _;
use tautline::{ClientConfig, EngineKind, Fused, Rustls, ServerConfig, Tickets};
use tautline_measure::Error;
use tautline_measure::engine::localhost;

impl Maker {
    /// A maker of connections with AES-128-GCM and a P-256 certificate.
    pub fn new(variant: Variant) -> Result<Self, Error> {
        let (mut server, mut client) = localhost()?;
        server.tickets = Tickets::Off;
        client.no_resumption = true;
        match variant.strategy {
            Strategy::Fused => of_kind(Fused, &server, &client),
            Strategy::Unbuffered => of_kind(Rustls, &server, &client),
            Strategy::Buffered => buffered::maker(&server, &client),
            Strategy::Aead => Ok(Self::of(|side| Ok(Box::new(Bare::new(side)?)))),
            #[cfg(feature = "libssl")]
            Strategy::MemoryBio | Strategy::WindowBio | Strategy::Direct => libssl::maker(variant, &server, &client),
            #[cfg(not(feature = "libssl"))]
            _ => Err(Error::Usage(format!("{} is not in this build", variant.name()))),
        }
    }
}

/// A maker of an engine's sessions.
fn of_kind(kind: impl EngineKind, server: &ServerConfig, client: &ClientConfig) -> Result<Maker, Error> {
    let (server, client) = (kind.server(server).map_err(Error::usage)?, kind.client(client).map_err(Error::usage)?);
    Ok(Maker::of(move |side| {
        let session = match side {
            Side::Server => server.accept(),
            Side::Client => client.connect("localhost"),
        };
        Ok(Box::new(EngineEnd::new(session.map_err(Error::failed)?)))
    }))
}
