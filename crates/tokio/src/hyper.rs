//! WebSockets on connections of a hyper server.
//!
//! [`upgrade`] answers a request, and returns the WebSocket to be.

use crate::error::Error;
use crate::session::Session;
use crate::socket::WebSocket;
use crate::timer::now;
use http::{Request, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tautline_engine::Config;
use tautline_engine::connection::{Connection, Opened};
use tautline_tls::plain;
use tautline_ws::Role;
use tautline_ws::deflate::{DeflateConfig, DeflateParams};
use tautline_ws::handshake;

/// A connection that hyper has upgraded.
pub type Stream = TokioIo<Upgraded>;

/// Accepts the WebSocket that a request asks for, on the terms of [`Config::upgrade`].
///
/// Return the response from the service, and await the [`Upgrade`] on another task: it completes after the service has
/// returned. The connection must be served with upgrades.
///
/// # Errors
/// The request is no valid upgrade, or the configuration forbids it: the response that says why.
pub fn upgrade<B>(
    request: &mut Request<B>,
    config: impl Into<Arc<Config>>,
) -> Result<(Response<()>, Upgrade), Box<Response<String>>> {
    let on_upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    accept(head, on_upgrade, config.into())
}

pub(crate) fn accept(
    request: Request<()>,
    on_upgrade: Option<OnUpgrade>,
    config: Arc<Config>,
) -> Result<(Response<()>, Upgrade), Box<Response<String>>> {
    let accepted = handshake::accept(&request, &config.upgrade).map_err(|refused| refused.response)?;
    let Some(on_upgrade) = on_upgrade else {
        let mut response = Response::new("this connection cannot be upgraded\n".to_owned());
        *response.status_mut() = http::StatusCode::UPGRADE_REQUIRED;
        return Err(Box::new(response));
    };
    let deflate = accepted.negotiated.deflate.zip(config.upgrade.deflate);
    let mut opened = Opened::default();
    opened.deflate = deflate.is_some();
    opened.subprotocol = accepted.negotiated.subprotocol;
    opened.request = Some(request);
    Ok((accepted.response, Upgrade { on_upgrade, deflate, opened, config }))
}

/// A WebSocket that opens once its response has been sent.
#[must_use = "the WebSocket opens when this is awaited"]
pub struct Upgrade {
    on_upgrade: OnUpgrade,
    deflate: Option<(DeflateParams, DeflateConfig)>,
    opened: Opened,
    config: Arc<Config>,
}

impl Upgrade {
    /// The result of the opening handshake.
    #[must_use]
    pub const fn opened(&self) -> &Opened {
        &self.opened
    }
}

impl Future for Upgrade {
    type Output = Result<WebSocket<Stream>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let upgraded = ready!(Pin::new(&mut self.on_upgrade).poll(cx)).map_err(io::Error::other)?;
        let session: Session = Box::new(plain::Session);
        let connection = Connection::upgraded(session, Role::Server, self.deflate, self.config.clone(), now());
        let mut socket = WebSocket::new(TokioIo::new(upgraded), connection, self.config.clone())?;
        socket.set_opened(std::mem::take(&mut self.opened));
        Poll::Ready(Ok(socket))
    }
}

impl std::fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upgrade").field("opened", &self.opened).finish_non_exhaustive()
    }
}
