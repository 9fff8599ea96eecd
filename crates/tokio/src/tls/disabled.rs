use crate::error::Error;
use crate::session::Session;

/// The server's end.
pub(crate) enum Server {}

impl Server {
    pub(crate) fn accept(&self) -> Result<Session, Error> {
        match *self {}
    }
}

/// The client's end.
#[derive(Clone)]
pub(crate) enum Client {}

impl Client {
    pub(crate) fn connect(&self, _host: &str) -> Result<Session, tautline_tls::Error> {
        match *self {}
    }
}
