//! Engines and sessions behind one virtual call each, since C has no type parameters.

use crate::connection::{self, AnyConnection};
use std::sync::Arc;
use std::time::Instant;
use tautline::layers::engine::connection::Context;
use tautline::{Config, ConnectError, EngineChoice as _, EngineKind, Target, Then, TlsEngine};
use tautline_buf::Buf;
use tautline_tls::{ClientConfig, Engine, Error, Handshake, Opened, ServerConfig, Session, TlsInfo};

/// An [`Engine`] of any kind.
pub(crate) trait AnyEngine: Send + Sync {
    fn accept(&self) -> Result<Box<dyn AnySession>, Error>;
    fn connect(&self, host: &str) -> Result<Box<dyn AnySession>, Error>;
    fn reload(&self, config: &ServerConfig) -> Result<(), Error>;
    /// A server's end of a whole connection.
    fn accept_ws(&self, config: Arc<Config>, now: Instant) -> Result<Box<dyn AnyConnection>, Error>;
    /// A client's end of a whole connection.
    fn connect_ws(
        &self,
        target: Arc<Target>,
        config: Arc<Config>,
        context: &mut Context,
        now: Instant,
    ) -> Result<Box<dyn AnyConnection>, ConnectError>;
}

/// A [`Session`] of any engine; the methods are those of that trait.
pub(crate) trait AnySession: Send {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error>;
    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error>;
    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error>;
    fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error>;
    /// `seal_into` with one slice.
    fn seal_one(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>, Error>;
    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error>;
    fn close(&mut self, out: &mut Buf);
    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error>;
    fn sent_alert(&self) -> Option<u8>;
    fn tls_info(&self) -> TlsInfo;
}

/// Makes an engine of this kind that accepts connections.
pub(crate) fn server(kind: TlsEngine, config: &ServerConfig) -> Result<Arc<dyn AnyEngine>, Error> {
    struct Server<'a>(&'a ServerConfig);

    impl Then for Server<'_> {
        type Output = Result<Arc<dyn AnyEngine>, Error>;

        fn with<K: EngineKind>(self, kind: K) -> Self::Output {
            Ok(Arc::new(kind.server(self.0)?))
        }
    }
    kind.choose(Server(config))
}

/// Makes an engine of this kind that opens connections.
pub(crate) fn client(kind: TlsEngine, config: &ClientConfig) -> Result<Arc<dyn AnyEngine>, Error> {
    struct Client<'a>(&'a ClientConfig);

    impl Then for Client<'_> {
        type Output = Result<Arc<dyn AnyEngine>, Error>;

        fn with<K: EngineKind>(self, kind: K) -> Self::Output {
            Ok(Arc::new(kind.client(self.0)?))
        }
    }
    kind.choose(Client(config))
}

impl<E: Engine> AnyEngine for E {
    fn accept(&self) -> Result<Box<dyn AnySession>, Error> {
        Ok(Box::new(Engine::accept(self)?))
    }

    fn connect(&self, host: &str) -> Result<Box<dyn AnySession>, Error> {
        Ok(Box::new(Engine::connect(self, host)?))
    }

    fn reload(&self, config: &ServerConfig) -> Result<(), Error> {
        Engine::reload(self, config)
    }

    fn accept_ws(&self, config: Arc<Config>, now: Instant) -> Result<Box<dyn AnyConnection>, Error> {
        connection::accept(self, config, now)
    }

    fn connect_ws(
        &self,
        target: Arc<Target>,
        config: Arc<Config>,
        context: &mut Context,
        now: Instant,
    ) -> Result<Box<dyn AnyConnection>, ConnectError> {
        connection::connect(self, target, config, context, now)
    }
}

impl<S: Session> AnySession for S {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        Session::handshake(self, wire, out)
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        Session::open(self, wire, scratch, out)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        Session::seal(self, plain, out)
    }

    fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        Session::seal_into(self, plain, out)
    }

    fn seal_one(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>, Error> {
        Session::seal_into(self, &[plain], out)
    }

    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        Session::update_keys(self, ask, out)
    }

    fn close(&mut self, out: &mut Buf) {
        Session::close(self, out);
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        Session::export_keying_material(self, label, context, out)
    }

    fn sent_alert(&self) -> Option<u8> {
        Session::sent_alert(self)
    }

    fn tls_info(&self) -> TlsInfo {
        Session::tls_info(self)
    }
}
