//! WebSockets on connections of a hyper server.
//!
//! [`upgrade`] answers a request, and returns the WebSocket to be. With the feature `http2` the request may also be an extended
//! CONNECT request of HTTP/2 (RFC 8441). The server has to offer these, by `enable_connect_protocol` of hyper's builder.

use crate::error::Error;
use crate::http2;
use crate::session::Session;
use crate::socket::WebSocket;
use crate::timer::now;
use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection that hyper has upgraded.
///
/// A TCP connection that hyper serves without TLS, by itself or by axum, is found again: then messages leave at once
/// (TCP_NODELAY), and no other layer is between it and the socket. Set TCP_NODELAY for other streams yourself.
#[derive(Debug)]
pub struct Stream(Inner);

#[derive(Debug)]
enum Inner {
    /// The connection, and bytes that hyper had read already.
    Tcp(TcpStream, Bytes),
    Other(TokioIo<Upgraded>),
}

impl Stream {
    fn new(upgraded: Upgraded) -> Self {
        // As hyper's own server has it, or that of axum.
        let found = match upgraded.downcast::<TokioIo<TcpStream>>() {
            Ok(parts) => Ok((parts.io, parts.read_buf)),
            Err(other) => auto::upgrade::downcast::<TokioIo<TcpStream>>(other).map(|parts| (parts.io, parts.read_buf)),
        };
        match found {
            Ok((stream, read)) => {
                let stream = stream.into_inner();
                if let Err(error) = stream.set_nodelay(true) {
                    log::info!("messages may wait for each other (TCP_NODELAY): {error}");
                }
                Self(Inner::Tcp(stream, read))
            }
            Err(other) => Self(Inner::Other(TokioIo::new(other))),
        }
    }

    /// The TCP connection, if it is one without TLS of the server's. A stream of HTTP/2 has none of its own.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpStream> {
        match &self.0 {
            Inner::Tcp(stream, _) => Some(stream),
            Inner::Other(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, window: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Tcp(stream, read) if read.is_empty() => Pin::new(stream).poll_read(cx, window),
            Inner::Tcp(_, read) => {
                let taken = read.split_to(read.len().min(window.remaining()));
                window.put_slice(&taken);
                Poll::Ready(Ok(()))
            }
            Inner::Other(stream) => Pin::new(stream).poll_read(cx, window),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Inner::Other(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_flush(cx),
            Inner::Other(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Inner::Tcp(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Inner::Other(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

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
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    Asked::new(head, request.extensions_mut()).accept(config.into())
}

/// A request for a WebSocket, without its body.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request<()>,
    on_upgrade: Option<OnUpgrade>,
    /// The protocol of an extended CONNECT request.
    protocol: Option<String>,
}

impl Asked {
    /// Takes the parts that hyper has put into the extensions of a request.
    pub(crate) fn new(request: Request<()>, extensions: &mut Extensions) -> Self {
        #[cfg(feature = "http2")]
        let protocol = extensions.get::<hyper::ext::Protocol>().map(|protocol| protocol.as_str().to_owned());
        #[cfg(not(feature = "http2"))]
        let protocol = None;
        Self { request, on_upgrade: extensions.remove(), protocol }
    }

    /// Accepts it, on the terms of the configuration.
    pub(crate) fn accept(self, config: Arc<Config>) -> Result<(Response<()>, Upgrade), Box<Response<String>>> {
        let Self { request, on_upgrade, protocol } = self;
        let (accepted, status) = if request.version() == Version::HTTP_2 {
            (http2::accept(&request, protocol.as_deref(), &config.upgrade)?, StatusCode::NOT_IMPLEMENTED)
        } else {
            let accepted = handshake::accept(&request, &config.upgrade).map_err(|refused| refused.response)?;
            (accepted, StatusCode::UPGRADE_REQUIRED)
        };
        let Some(on_upgrade) = on_upgrade else {
            let mut response = Response::new("this connection cannot be upgraded\n".to_owned());
            *response.status_mut() = status;
            return Err(Box::new(response));
        };
        Ok(opening(request, accepted, on_upgrade, config))
    }
}

/// The response, and the WebSocket to be.
fn opening(
    request: Request<()>,
    accepted: handshake::Accepted,
    on_upgrade: OnUpgrade,
    config: Arc<Config>,
) -> (Response<()>, Upgrade) {
    let deflate = accepted.negotiated.deflate.zip(config.upgrade.deflate);
    let mut opened = Opened::default();
    opened.deflate = deflate.is_some();
    opened.subprotocol = accepted.negotiated.subprotocol;
    opened.request = Some(request);
    (accepted.response, Upgrade { on_upgrade, deflate, opened, config })
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
        let mut socket = WebSocket::new(Stream::new(upgraded), connection, self.config.clone())?;
        socket.set_opened(std::mem::take(&mut self.opened));
        Poll::Ready(Ok(socket))
    }
}

impl std::fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upgrade").field("opened", &self.opened).finish_non_exhaustive()
    }
}
