//! An extractor for axum, used as axum's own.

use crate::error::Error;
use crate::hyper::{Asked, Stream};
use crate::socket::WebSocket;
use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Request};
use std::convert::Infallible;
use std::sync::Arc;
use tautline_engine::Config;
use tautline_ws::deflate::DeflateConfig;
use tautline_ws::handshake::Origins;

/// A WebSocket over a connection that axum serves.
pub type Socket = WebSocket<Stream>;

/// The extractor of a request for a WebSocket. [`on_upgrade`](Self::on_upgrade) answers it.
///
/// A page of another origin is refused, unless [`origins`](Self::origins) allows it.
///
/// With the feature `http2` it takes WebSockets over HTTP/2 too, which come by the method CONNECT: give it a route of all methods
/// (`routing::any`).
#[derive(Debug)]
#[must_use]
pub struct WebSocketUpgrade {
    asked: Asked,
    config: Config,
}

impl<S: Send + Sync> FromRequestParts<S> for WebSocketUpgrade {
    /// Nothing is refused here: [`on_upgrade`](Self::on_upgrade) answers requests that are no valid upgrades.
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut request = Request::new(());
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.version_mut() = parts.version;
        *request.headers_mut() = parts.headers.clone();
        Ok(Self { asked: Asked::new(request, &mut parts.extensions), config: Config::default() })
    }
}

impl WebSocketUpgrade {
    /// Sets all limits, deadlines and terms of the upgrade together.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the longest message that is accepted, in bytes; 1 MiB by default.
    pub const fn max_message_size(mut self, bytes: usize) -> Self {
        self.config.limits.max_message = bytes;
        self
    }

    /// Sets the subprotocols, the preferred first.
    pub fn protocols<I: IntoIterator<Item: Into<String>>>(mut self, protocols: I) -> Self {
        self.config.upgrade.subprotocols = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the web pages that may connect; by default those of the same host.
    pub fn origins(mut self, origins: Origins) -> Self {
        self.config.upgrade.origins = origins;
        self
    }

    /// Offers permessage-deflate.
    pub const fn deflate(mut self, deflate: DeflateConfig) -> Self {
        self.config.upgrade.deflate = Some(deflate);
        self
    }

    /// The headers of the request.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.asked.request.headers()
    }

    /// Answers the request, and calls `serve` with the WebSocket on a task of its own.
    ///
    /// A request that is no valid upgrade gets a response that says why. A failure after the response is logged.
    #[must_use]
    pub fn on_upgrade<C, F>(self, serve: C) -> Response
    where
        C: FnOnce(Socket) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_upgrade_or(serve, |error| log::info!("a WebSocket was not opened: {error:#}"))
    }

    /// As [`on_upgrade`](Self::on_upgrade), with a callback for failures after the response.
    #[must_use]
    pub fn on_upgrade_or<C, F, E>(self, serve: C, failed: E) -> Response
    where
        C: FnOnce(Socket) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
        E: FnOnce(Error) + Send + 'static,
    {
        match self.asked.accept(Arc::new(self.config)) {
            Ok((response, upgrade)) => {
                tokio::spawn(async move {
                    match upgrade.await {
                        Ok(socket) => serve(socket).await,
                        Err(error) => failed(error),
                    }
                });
                response.map(|()| Body::empty())
            }
            Err(response) => (*response).into_response(),
        }
    }
}
