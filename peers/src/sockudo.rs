//! sockudo-ws, as in its `examples/simple_echo.rs`; with compression, its dedicated compressors as in `axum_deflate.rs`.

use crate::common::{Failure, Hub, Stream, hub, send_to_all};
use futures_util::{Sink, SinkExt, StreamExt};
use sockudo_ws::deflate::{DeflateConfig, negotiate_server_deflate};
use sockudo_ws::handshake::{build_response, generate_accept_key, parse_request};
use sockudo_ws::{CompressedWebSocketStream, Config, Error, Message, WebSocketStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

static HUB: Hub<Message> = hub();

/// Most bytes of a request.
const MAX_REQUEST: usize = 16 << 10;

pub(crate) async fn serve(mut stream: impl Stream, deflate: bool, to_all: bool) -> Result<(), Failure> {
    let mut request = Vec::with_capacity(4096);
    let (response, compression) = loop {
        if stream.read_buf(&mut request).await? == 0 || request.len() > MAX_REQUEST {
            return Err(Error::ConnectionClosed.into());
        }
        // The load sends nothing behind its request before the response.
        if let Some((request, _)) = parse_request(&request)? {
            let offers = request.extensions.filter(|_| deflate);
            let compression = offers.and_then(|offers| negotiate_server_deflate(offers, &DeflateConfig::default()));
            let extensions = compression.as_ref().map(|agreed| agreed.to_response_header());
            break (build_response(&generate_accept_key(request.key), None, extensions.as_deref()), compression);
        }
    };
    stream.write_all(&response).await?;
    stream.flush().await?;
    match compression {
        Some(agreed) => messages(CompressedWebSocketStream::server(stream, Config::default(), agreed.config)).await,
        None if to_all => {
            let is_data = |message: &Message| matches!(message, Message::Text(_) | Message::Binary(_));
            send_to_all(WebSocketStream::server(stream, Config::default()), &HUB, is_data).await
        }
        None => messages(WebSocketStream::server(stream, Config::default())).await,
    }
}

async fn messages<S>(mut socket: S) -> Result<(), Failure>
where
    S: futures_util::Stream<Item = sockudo_ws::Result<Message>> + Sink<Message, Error = Error> + Unpin,
{
    while let Some(message) = socket.next().await {
        match message? {
            message @ (Message::Text(_) | Message::Binary(_)) => socket.send(message).await?,
            Message::Close(_) => break,
            _ => {}
        }
    }
    Ok(())
}
