//! axum's extractor, as in the documentation of `axum::extract::ws`.

use crate::common::{Failure, Stream};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::{Router, routing};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

pub(crate) async fn echo(stream: impl Stream) -> Result<(), Failure> {
    let service = TowerToHyperService::new(Router::new().route("/", routing::any(answer)));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

async fn answer(request: WebSocketUpgrade) -> Response {
    request.on_upgrade(messages)
}

async fn messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}
