//! axum's extractor, as in the documentation of `axum::extract::ws`.

use crate::common::{Failure, Hub, Stream, hub, send_to_all};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::{Router, routing};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;

static HUB: Hub<Message> = hub();

pub(crate) async fn serve(stream: impl Stream, to_all: bool) -> Result<(), Failure> {
    let route = if to_all { routing::any(answer_to_all) } else { routing::any(answer) };
    let service = TowerToHyperService::new(Router::new().route("/", route));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

/// WebSockets on the streams of an HTTP/2 connection (RFC 8441).
pub(crate) async fn serve_http2(stream: impl Stream) -> Result<(), Failure> {
    let service = TowerToHyperService::new(Router::new().route("/", routing::any(answer)));
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    Ok(http2.enable_connect_protocol().serve_connection(TokioIo::new(stream), service).await?)
}

async fn answer(request: WebSocketUpgrade) -> Response {
    request.on_upgrade(messages)
}

async fn answer_to_all(request: WebSocketUpgrade) -> Response {
    request.on_upgrade(|socket| async {
        let is_data = |message: &Message| matches!(message, Message::Text(_) | Message::Binary(_));
        // A connection that fails ends alone.
        let _ = send_to_all(socket, &HUB, is_data).await;
    })
}

async fn messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}
